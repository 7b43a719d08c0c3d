"""What builders of the table share: functions of the language applied to values along common axes."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from .axes import TWICE, Axes, Dim, Dims
from .expressions import Apply, AxesOf, Expr, Line, Number, Over, Param, Word, bare, size
from .naming import reachable
from .refusals import NOWHERE, Place, Refusal
from .sources import is_loop, number_at, number_first
from .spelling import spelled
from .targets import is_library
from .tracing import Trace
from .values import GivenFloat, GivenInt, Symbolic, Value, dtype_name
from .variables import variables


class Building:
    """A trace, its axes and inputs so far, and the node that is translated."""

    def __init__(self, trace: Trace, scalars: Mapping[str, float | int], ones: Container[str] = ()) -> None:
        self.trace, self.scalars, self._ones = trace, scalars, ones
        self.axes = Axes()
        self.axes_of = AxesOf(self.axes)
        self.values: dict[torch.fx.Node, Any] = {}
        self.refused: list[str] = []  # names of nodes that the language cannot express
        self.problems: list[Refusal] = []
        self.inputs: dict[str, Value] = {}
        self.declared: dict[str, Dims] = {}  # dimensions of inputs, with those of length 1 that are axes
        self.params: dict[str, float | int] = {}
        self.same_dtype: list[frozenset[str]] = []  # inputs that a matmul requires to have one dtype
        self.made: list[tuple[int, Place]] = []  # axes that the program makes, and where
        self.lengths: dict[int, Expr] = {}  # of these, computed from lengths of inputs
        self.used: dict[int, Place] = {}  # axes whose lengths the program converts to numbers, and where
        self.result_places: list[Place] = []
        self.is_detached = False
        self._autocast: list[torch.dtype | None] = []  # of the enclosing regions, the innermost last
        self.packet = ""  # the operator that is translated
        self._names = variables(trace)
        self._places: tuple[Place, ...] = ()
        self.node: Any = None  # the one that is translated
        self._depth = 0
        self._noted: dict[int, Expr] = {}  # expressions whose axes are noted already

    @property
    def _result(self) -> torch.Tensor:
        """The (first) result in the trace."""
        found: Any = self.node.meta["val"]
        first: torch.Tensor = found[0] if isinstance(found, tuple | list) else found
        return first

    @property
    def dtype(self) -> torch.dtype:
        return self._result.dtype

    @property
    def sizes(self) -> list[int]:
        """The lengths of the result in the trace."""
        return list(map(hint, self._result.shape))

    def number(self, given: Any) -> Expr:
        """A scalar of the program, as an expression of params if the source has one."""
        if isinstance(given, Symbolic):
            return spelled(given.formula, self.dim_of, lambda number: self.number(GivenFloat(number)))
        if isinstance(given, GivenInt | GivenFloat):
            number = int(given) if isinstance(given, int) else float(given)
            for place in self._places:
                found = number_at(place, number, self.scalars)
                if found is not None:
                    self._note_params(found)
                    return found
            return Number(number)
        return Number(given)

    def is_one(self, given: Any) -> bool:
        """Whether a scalar is the constant 1, and no param with that value."""
        found = self.number(given)
        return isinstance(found, Number) and found.value == 1

    def is_number_first(self) -> bool:
        """Whether the source has a number before a tensor, as in `0.5 * x`, which torch swaps."""
        return bool(self._places) and number_first(self._places[0], self.scalars)

    def _note_params(self, expr: Expr) -> None:
        names = (one.name for one in reachable([expr]) if isinstance(one, Param))
        self.params |= {name: self.scalars[name] for name in names if name in self.scalars}

    def dim_of(self, symbol: Any) -> Dim:
        """The dimension of an input whose length is a symbol of the trace. Raises `Refusal`."""
        if str(symbol) not in self.trace.symbols:
            raise Refusal("a length that no argument has")
        name, place = self.trace.symbols[str(symbol)]
        return self.inputs[name].dims[place]

    def operand(self, given: Any) -> Value:
        """A tensor or a scalar as a value. Raises `Refusal` for other arguments."""
        if isinstance(given, Value):
            return given
        if not isinstance(given, int | float | Symbolic):
            raise Refusal(f"an argument of type {type(given).__name__}")
        number = given.hint if isinstance(given, Symbolic) else given
        dtype = torch.bool if isinstance(number, bool) else torch.int64 if isinstance(number, int) else torch.float32
        return Value(self.number(given), (), dtype, dtype)

    def apply(self, function: str, *given: Any, **options: Any) -> Value:
        """An elementwise function of the language, of tensors and scalars."""
        values, dims = self.broadcast(*map(self.operand, given))
        named = tuple((name, self.number(value)) for name, value in options.items())
        expr = Apply(function, tuple(one.expr for one in values), named)
        return Value(expr, dims, self.dtype, self.natural(values, self.dtype))

    def broadcast(self, *values: Value) -> tuple[list[Value], Dims]:
        """Values with axes aligned for elementwise math, and the dimensions of the result."""
        rank = max((one.rank for one in values), default=0)
        aligned, dims = self.aligned([(one, range(rank - one.rank, rank)) for one in values])
        return aligned, tuple(dims.get(place, ()) for place in range(rank))

    def aligned(self, values: Sequence[tuple[Value, Iterable[Hashable]]]) -> tuple[list[Value], dict[Hashable, Dim]]:
        """Aligns values by labels of their dimensions: one label is one axis, and different labels are different axes.

        If a value has both of two axes that a label would join, they stay separate, and values along one of them are
        indexed along the other (`take`). Also returns the dimension of each label.
        """
        labelled = [(value, list(zip(labels, value.dims, strict=True))) for value, labels in values]
        for value, _ in labelled:
            self.axes.note(self.axes.all_atoms([*value.dims, tuple(self.axes_of(value.expr))]))
        found: dict[Hashable, Dim] = {}
        for _, dims in sorted(labelled, key=lambda one: -sum(bool(dim) for _, dim in one[1])):
            for label, dim in dims:
                if label not in found and dim:
                    self._add_label(found, label, dim)
                for a, b in self.axes.pairs(found[label], dim) if dim else ():
                    if self.axes.may_join(a, b):
                        self.axes.merge(a, b)
        return [self._along(value, dims, found) for value, dims in labelled], found

    def _add_label(self, found: dict[Hashable, Dim], label: Hashable, dim: Dim) -> None:
        """Adds a label's dimension, with second names for axes that other labels have."""
        used = set(self.axes.all_atoms(found.values()))
        atoms = self.axes.atoms(dim)
        found[label] = tuple(self._again(axis, {*used, *atoms}) if axis in used else axis for axis in atoms)
        self.axes.note(self.axes.all_atoms(found.values()))

    def _again(self, axis: int, used: Container[int]) -> int:
        other = self.axes.again(axis, used)
        if not self.axes[other].is_input:
            self.made.append((other, self._place()))
        return other

    def again(self, dim: Dim) -> Dim:
        """A dimension with second names for the axes of another one."""
        atoms = self.axes.atoms(dim)
        return tuple(self._again(axis, atoms) for axis in atoms)

    def _along(self, value: Value, dims: Sequence[tuple[Hashable, Dim]], found: Mapping[Hashable, Dim]) -> Value:
        """The value along the axes that its labels have in `found`."""
        pairs = dict(pair for label, dim in dims if dim for pair in self.axes.pairs(dim, found[label]))
        value = value.of(dims=tuple(found[label] if dim else () for label, dim in dims))
        for one, other in pairs.items():
            self.axes.equate(one, other)
        left = {one: other for one, other in pairs.items() if one in self.axes_of(value.expr)}
        while left:
            has = self.axes_of(value.expr)
            free = [one for one, other in left.items() if other not in has]
            if free:
                one, other = free[0], left.pop(free[0])
            elif has & left.keys() & set(left.values()):  # Axes are swapped.
                one = next(iter(left))
                other = self._again(one, {*has, *left.values()})
                left[other] = left.pop(one)
            else:
                raise Refusal(*TWICE)
            value = value.of(Apply("take", (value.expr, self.index((other,)), Over((one,)))))
        return value

    def compared(self, function: str, *given: Any) -> Value:
        """A comparison, or another function with a boolean result."""
        return replace(self.apply(function, *given), dtype=torch.bool, natural=torch.bool)

    def natural(self, values: Sequence[Value], dtype: torch.dtype) -> torch.dtype:
        """The dtype that the language promotes float operands to, if the trace has a float; else `dtype`."""
        if not dtype.is_floating_point:
            return dtype
        floats = [one for one in values if one.natural.is_floating_point]
        wide = [one.natural for one in floats if one.rank] or [one.natural for one in floats if _is_tensor(one.expr)]
        found = wide[0] if wide else dtype
        for one in wide[1:]:
            found = torch.promote_types(found, one)
        return found

    def reduce(self, function: str, value: Value, dims: Any, keepdim: bool = False, **options: Any) -> Value:
        """A reduction over the dimensions at indices `dims`, or over all of them if there are none."""
        places = [dims] if isinstance(dims, int) else list(dims) if dims else list(range(value.rank))
        places = [value.place(one) for one in places]
        over = [value.dims[place] for place in places]
        left = tuple(() if place in places else dim for place, dim in enumerate(value.dims))
        if not keepdim:
            left = tuple(dim for place, dim in enumerate(value.dims) if place not in places)
        return self.reduced(function, value, over, left, **options)

    def reduced(self, function: str, value: Value, over: Sequence[Dim], left: Dims, **options: Any) -> Value:
        """A reduction over some axes, with `left` as dimensions; a sum over expanded axes is a multiplication."""
        has = self.axes_of(value.expr)
        axes = [axis for dim in over for axis in self.axes.atoms(dim)]
        required = tuple(axis for axis in axes if axis in has)
        expr = value.expr
        missing = tuple(axis for axis in axes if axis not in has)
        if missing and function == "sum":
            expr = Apply("mul", (expr, size(missing)))
        elif missing and function not in ("mean", "max", "min", "any", "all"):
            raise Refusal(f"{function} along an axis that the value was only expanded to")
        for dim in over:
            self.axes.wish(dim, "N", 5)
        if required:
            named = tuple((name, self.number(one)) for name, one in options.items())
            expr = Apply(function, (expr, Over(required)), named)
        return Value(expr, left, self.dtype, self.natural([value], self.dtype))

    def along(self, function: str, value: Value, place: int, may_be_group: bool = True) -> Value:
        """A function along a dimension that the result has, too."""
        expr = Apply(function, (value.expr, self.over(function, value, place, may_be_group)))
        return Value(expr, value.dims, self.dtype, self.natural([value], self.dtype))

    def over(self, function: str, value: Value, place: int, may_be_group: bool = True) -> Over:
        """The axes of a dimension as the argument of a function. Raises `Refusal`."""
        dim = value.dims[place] if value.rank else ()
        axes = self.axes.atoms(dim)
        self.axes.wish(dim, "N", 2)
        if not self.axes_of(value.expr).intersection(axes):
            raise Refusal(f"{function} along a dimension of length 1, or to which the value was only expanded")
        if len(axes) > 1 and not may_be_group:
            raise Refusal(f"{function} along a group of axes")
        return Over(dim)

    def line(self, name: str, value: Value, required: bool = True) -> Value:
        """A value as a line of this name, unless it is an input or a scalar."""
        return value.of(Line(name, value.expr, required)) if isinstance(bare(value.expr), Apply) else value

    def multiplied(self, value: Value) -> Value:
        """An operand of a matmul, cast to its dtype in the trace, since matmuls run in the operands' dtype."""
        if value.dtype == value.natural or not value.dtype.is_floating_point:
            return value
        return replace(value, expr=Apply("cast", (value.expr, Word(dtype_name(value.dtype)))), natural=value.dtype)

    def index(self, dim: Dim) -> Expr:
        return Apply("index", (Over(dim),)) if dim else Number(0)

    def at(self, expr: Expr, *dims: Dim) -> Value:
        """An int64 value, such as positions."""
        return Value(expr, dims, torch.int64, torch.int64)

    def take(
        self, value: Value, place: int, index: Value | int, dims: Iterable[Dim], fill: float | None = None
    ) -> Value:
        """A value at positions `index` along a dimension, which `dims` replace; outside of it, `fill`."""
        dim = value.dims[place]
        expr = value.expr
        if dim and (fill is not None or self.axes_of(expr) & set(self.axes.atoms(dim))):
            at = index.expr if isinstance(index, Value) else Number(index)
            expr = Apply("take", (expr, at, Over(dim)), () if fill is None else (("fill", Number(fill)),))
        return replace(value.with_dim(place, *dims), expr=expr)

    def fresh(self, length: Any, fixed: bool = True) -> Dim:
        """A new axis of a length that the program states: an integer, or computed from lengths of inputs."""
        if isinstance(length, Symbolic):
            dim = self.axes.new(int(length.hint), formula=length.formula)
        else:
            dim = self.axes.new(int(length), fixed=fixed, formula=int(length))
        for axis in dim:
            self.made.append((axis, self._place()))
            with suppress(Refusal):
                self.lengths[axis] = self.number(length)
        return dim

    def result_length(self, place: int) -> Any:
        """The length of a dimension of the result: an integer, or computed from lengths of inputs."""
        return self.length(self.node.meta["val"].shape[place])

    def length(self, size: Any) -> Any:
        """A length of the trace: an integer, or computed from lengths of inputs."""
        formula = known(size)
        return formula if isinstance(formula, int) else Symbolic(hint(size), formula, formula)

    def note_loop(self, dim: Dim) -> None:
        """Notes a dimension that the program iterates over in a Python loop."""
        if is_loop(self._place()):
            self.used |= dict.fromkeys(dim, self._place())

    def _place(self) -> Place:
        last = self._places[-1] if self._places else NOWHERE
        return next((one for one in self._places if not is_library(one.path)), last)


def known(length: Any) -> Any:
    """A length by what is known now: an integer, or a formula of lengths of arguments."""
    return length if isinstance(length, int) else length.node.expr


def hint(length: Any) -> int:
    """A length in the trace; 2 if it is data-dependent."""
    node = getattr(length, "node", None)
    if node is not None and not node.has_hint():  # Data-dependent.
        return 2
    return int(node.hint if node is not None else length)


def _is_tensor(expr: Expr) -> bool:
    return not isinstance(bare(expr), Number | Param)
