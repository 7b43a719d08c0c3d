"""A traced graph -> values of the language, operator by operator; what has no words is collected, all at once."""

from __future__ import annotations

import inspect
import operator as python
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import operators as _operators  # noqa: F401 - fills the table
from .axes import Axes, Dim, Dims
from .expressions import Apply, AxesOf, Expr, Input, Line, Number, Over, Param, Word, bare
from .refusals import NOWHERE, Place, Refusal
from .sources import bound_names, number_at, number_first
from .symbols import spelled
from .table import builder_of
from .targets import Located, is_library
from .tracing import Trace
from .values import Symbolic, Value, dtype_name

if TYPE_CHECKING:
    import torch

_IGNORED = frozenset(
    "memory_format layout device pin_memory requires_grad non_blocking copy out generator implicit".split()
)
_TWICE = (
    "two dimensions of one tensor are the same axis",
    "an axis has one name: pass what it is of twice, as two arguments",
)
_OF_VALUES = (
    "values decide the shape of this",
    "shapes of a spec follow from those of its inputs: write torch.where(mask, x, 0)",
)
_DEEP = 4  # how often an operator may be made of others that are made of others


class Translation:
    """Walks a graph. `values` and `problems` are what came of it."""

    def __init__(self, trace: Trace, scalars: Mapping[str, float | int], ones: Container[str] = ()) -> None:
        self.trace, self.scalars, self._ones = trace, scalars, ones
        self.axes = Axes()
        self.axes_of = AxesOf(self.axes)
        self.values: dict[torch.fx.Node, Any] = {}
        self.problems: list[tuple[Refusal, Place]] = []
        self.inputs: dict[str, Value] = {}
        self.declared: dict[str, Dims] = {}  # the dimensions of inputs, those of length 1 too where they are axes
        self.params: dict[str, float | int] = {}
        self.same_dtype: list[frozenset[str]] = []  # inputs whose dtypes a matmul needs to be one
        self.made: list[tuple[int, Place]] = []  # axes that the program makes, and where
        self.is_detached = False
        self.packet = ""  # the operator that is translated
        self._names = _variables(trace)
        self._places: tuple[Place, ...] = ()
        self.node: Any = None  # the one that is translated
        self._depth = 0

    def run(self) -> list[Any]:
        """The values of the results. Where there are `problems`, some are unknown."""
        nodes = self.trace.graph.graph.nodes
        results: list[Any] = []
        arguments = iter(self.trace.arguments)
        for node in nodes:
            if node.op == "placeholder":
                self._placeholder(node, next(arguments))
            elif node.op == "output":
                found = node.args[0]
                results = [self.values[one] for one in (found if isinstance(found, list | tuple) else [found])]
            else:
                self._places = self.trace.recording.places.get(node.name, ())
                self._translate(node, self.trace.recording.place(node.name))
        self._check_axes()
        return results

    def _check_axes(self) -> None:
        """An axis is in a tensor once; where the trace made it twice, that is refused at the first such operator."""
        for node, value in self.values.items():
            atoms = self.axes.all_atoms(value.dims) if isinstance(value, Value) else ()
            if len(set(atoms)) < len(atoms) and node.name in self.trace.recording.places:
                self.problems.append((Refusal(*_TWICE), self.trace.recording.place(node.name)))
                return

    def _placeholder(self, node: torch.fx.Node, argument: Any) -> None:
        import torch

        dims: list[Dim] = []
        for length, size in zip(argument.shape, argument.tensor.shape, strict=True):
            formula = size.node.expr if isinstance(size, torch.SymInt) else None
            dim = self.axes.new(length.number, fixed=length.fixed, is_input=True, formula=formula)
            if length.name:
                self.axes.wish(dim, length.name, 0)
            if formula is not None and str(formula) in self.trace.recording.used:
                self.axes.fix(dim)
            dims.append(dim)
        dtype = argument.tensor.dtype
        declared = tuple(self.axes.one() if not dim and argument.name in self._ones else dim for dim in dims)
        expr: Expr = Input(argument.name, declared)
        ones = tuple(axis for dim, own in zip(declared, dims, strict=True) if not own for axis in dim)
        if ones:
            expr = Apply("take", (expr, Number(0), Over(ones)))
        value = Value(expr, tuple(dims), dtype, dtype)
        self.declared[argument.name] = declared
        self.inputs[argument.name] = value
        self.values[node] = value

    def _translate(self, node: torch.fx.Node, place: Place) -> None:
        kept, self.node = self.node, node
        try:
            self.values[node] = self._value(node)
        except Refusal as refusal:
            self.problems.append((refusal, place))
            self.values[node] = self._stand_in(node.meta.get("val"))
        finally:
            self.node = kept

    def _stand_in(self, found: Any) -> Any:
        """Tensors of the shapes of what was refused, so that what follows is looked at too."""
        import torch

        if isinstance(found, list | tuple):
            return [self._stand_in(one) for one in found]
        if not isinstance(found, torch.Tensor):
            return 1
        dims = tuple(self.axes.new(hint(one), is_input=True) for one in found.shape)
        return Value(Input("", dims), dims, found.dtype, found.dtype)

    def _value(self, node: torch.fx.Node) -> Any:
        import torch

        found = node.meta.get("val")
        if isinstance(found, torch.SymInt | torch.SymFloat | torch.SymBool):
            formula = found.node._expr  # As it was written, whatever it turned out to equal.
            if not set(map(str, formula.free_symbols)) <= self.trace.symbols.keys():
                raise Refusal(
                    "a number that is read from a tensor", "keep it a tensor: a spec has tensors without axes"
                )
            return Symbolic(found.node.hint, formula)
        if node.op == "get_attr":
            return self._constant(node)
        if node.target is python.getitem:
            several, place = self.argument(node.args[0]), node.args[1]
            return self._named(node, several[place])
        if node.target is torch._C._set_grad_enabled:
            self.is_detached = not node.args[0]
            return None
        if not isinstance(node.target, torch._ops.OpOverload):
            name = getattr(node.target, "__name__", str(node.target))
            if "autocast" in name:
                raise Refusal("autocast inside of the function", "import it without, and cast where it must be")
            raise Refusal(f"the language has no `{name}`")
        _check_dtypes(node)
        value = self._called(node)
        return self._named(node, value)

    def _called(self, node: Any) -> Any:
        """The value of a call of an ATen operator."""
        target = node.target
        args, kwargs = self.argument(node.args), self.argument(dict(node.kwargs))
        packet, overload = target._schema.name.split("::")[1], target._overloadname
        build = builder_of(packet, overload) if target.namespace == "aten" else None
        writes = target._schema.is_mutable
        if writes:
            self._check_write(node)
        if build is None:
            if writes:
                raise Refusal(f"`{packet}` writes in place", "compute a new tensor")
            return self._decomposed(node, packet)
        kwargs = {name: value for name, value in kwargs.items() if name not in _IGNORED}
        self.packet = packet
        try:
            inspect.signature(build).bind(self, *args, **kwargs)
        except TypeError:
            raise Refusal(f"`{packet}` with these options") from None
        value = build(self, *args, **kwargs)
        if writes:
            self.values[node.args[0]] = value
        if self.is_detached and isinstance(value, Value):
            value = value.of(Apply("detach", (value.expr,)))
        return value

    def argument(self, given: Any) -> Any:
        """What an operator is given, with values in the place of nodes."""
        import torch

        if isinstance(given, torch.fx.Node):
            return self.values[given]
        if isinstance(given, dict):
            return {name: self.argument(one) for name, one in given.items()}
        if isinstance(given, list | tuple):
            return [self.argument(one) for one in given]
        return given

    def _constant(self, node: Any) -> Value:
        """A tensor that the program made of numbers: one number is one here, too."""
        tensor = getattr(self.trace.graph, node.target)
        if tensor.numel() != 1 or type(tensor).__name__ == "FakeTensor":
            message = f"a tensor of shape {list(tensor.shape)} that is no argument, parameter or buffer"
            raise Refusal(message, "make it an argument, or register it as a buffer of the module")
        return Value(self.number(tensor.item()), ((),) * tensor.ndim, tensor.dtype, tensor.dtype)

    def _named(self, node: torch.fx.Node, value: Any) -> Any:
        """A value under the name of the variable that holds it."""
        name = self._names.get(node.name, "")
        if not self._depth and name and isinstance(value, Value) and isinstance(bare(value.expr), Apply):
            return value.of(Line(name, value.expr))
        return value

    def _check_write(self, node: Any) -> None:
        """A tensor may be written over where nothing else reads its memory."""
        written = node.args[0]
        memory = _memory(written)
        later = False
        for other in node.graph.nodes:
            if other is node:
                later = True
            elif memory is not None and _memory(other) == memory and not _is_other_part(other, written):
                if other.op == "placeholder":
                    index = [one for one in node.graph.nodes if one.op == "placeholder"].index(other)
                    name = self.trace.arguments[index].name
                    raise Refusal(f"this writes to its input {name}", "compute a new tensor, and return it")
                if other is not written and not later and any(_is_after(user, node) for user in other.users):
                    raise Refusal("this writes to a part of a tensor", "write torch.where with positions")

    def _decomposed(self, node: Any, packet: str) -> Any:
        """The value of an operator that the table has no row for, of those that torch makes it of."""
        if node.target.namespace not in ("aten", "prims"):
            raise Refusal(f"`{node.target.namespace}::{packet}` is an operator of somebody's own", "write its math")
        graph, given = _made_of(node)
        if graph is None or self._depth >= _DEEP:
            raise Refusal(f"the language has no `{packet}`")
        inner = self._depth
        self._depth += 1
        before = len(self.problems)
        try:
            values = iter([self.values[one] for one in given])
            result: Any = None
            for one in graph.nodes:
                if one.op == "placeholder":
                    self.values[one] = next(values)
                elif one.op == "output":
                    result = self.argument(one.args[0])
                else:
                    self._translate(one, NOWHERE)
        finally:
            self._depth = inner
        if len(self.problems) > before:
            first = self.problems[before][0]
            del self.problems[before:]
            told = first.message if packet in first.message else f"`{packet}`: {first.message}"
            raise Refusal(told, first.hint)
        return result

    # What builders of operators are made of.

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the (first) result in the trace."""
        assert self.node is not None
        found = self.node.meta["val"]
        first = found[0] if isinstance(found, tuple | list) else found
        dtype: torch.dtype = first.dtype
        return dtype

    @property
    def sizes(self) -> list[int]:
        """The lengths of the (first) result in the trace."""
        assert self.node is not None
        found = self.node.meta["val"]
        first = found[0] if isinstance(found, tuple | list) else found
        return [hint(one) for one in first.shape]

    def number(self, given: Any) -> Expr:
        """A number of the program: a param where the source says so."""
        if isinstance(given, Symbolic):
            return spelled(given.formula, self._symbol)
        if isinstance(given, int | float) and not isinstance(given, bool):
            for place in self._places:
                found = number_at(place, given, self.scalars)
                if found is not None:
                    self._note_params(found)
                    return found
        return Number(given)

    def is_one(self, given: Any) -> bool:
        """Whether it is the number 1, and no param that is."""
        found = self.number(given)
        return isinstance(found, Number) and found.value == 1

    def is_number_first(self) -> bool:
        """Whether the source has a number before a tensor, as in `0.5 * x`, which torch turns round."""
        return bool(self._places) and number_first(self._places[0], self.scalars)

    def _note_params(self, expr: Expr) -> None:
        if isinstance(expr, Param):
            if expr.name in self.scalars:
                self.params[expr.name] = self.scalars[expr.name]
        elif isinstance(expr, Apply):
            for one in expr.args:
                if not isinstance(one, Over | Word):
                    self._note_params(one)

    def _symbol(self, symbol: str) -> Dim:
        name, place = self.trace.symbols[symbol]
        return self.inputs[name].dims[place]

    def operand(self, given: Any) -> Value:
        """A tensor or a number as a value."""
        import torch

        if isinstance(given, Value):
            return given
        if not isinstance(given, int | float | Symbolic):
            raise Refusal(f"an argument of type {type(given).__name__}")
        number = given.hint if isinstance(given, Symbolic) else given
        dtype = torch.bool if isinstance(number, bool) else torch.int64 if isinstance(number, int) else torch.float32
        return Value(self.number(given), (), dtype, dtype)

    def broadcast(self, *values: Value) -> Dims:
        """The dimensions of what is computed element by element, which are joined."""
        rank = max((one.rank for one in values), default=0)
        result: list[Dim] = [()] * rank
        for value in values:
            for place, dim in enumerate(value.dims, rank - value.rank):
                if not self.axes.atoms(dim):
                    continue
                if self.axes.atoms(result[place]):
                    self.axes.join(result[place], dim)
                else:
                    result[place] = dim
        return self.once(tuple(result))

    def once(self, dims: Dims) -> Dims:
        """Dimensions, of which no two are the same axis."""
        atoms = self.axes.all_atoms(dims)
        if len(set(atoms)) < len(atoms):
            raise Refusal(*_TWICE)
        return dims

    def apply(self, function: str, *given: Any, **options: Any) -> Value:
        """A function of the language of tensors and numbers, element by element."""
        values = [self.operand(one) for one in given]
        named = tuple((name, self.number(value)) for name, value in options.items())
        expr = Apply(function, tuple(one.expr for one in values), named)
        return Value(expr, self.broadcast(*values), self.dtype, self.natural(values, self.dtype))

    def compared(self, function: str, *given: Any) -> Value:
        """A comparison, or other function whose result is a condition."""
        import torch

        return replace(self.apply(function, *given), dtype=torch.bool, natural=torch.bool)

    def natural(self, values: Sequence[Value], dtype: torch.dtype) -> torch.dtype:
        """What the language promotes floats to, where the trace has a float."""
        import torch

        if not dtype.is_floating_point:
            return dtype
        floats = [one for one in values if one.natural.is_floating_point]
        wide = [one.natural for one in floats if one.rank] or [one.natural for one in floats if _is_tensor(one.expr)]
        found = wide[0] if wide else dtype
        for one in wide[1:]:
            found = torch.promote_types(found, one)
        return found

    def reduce(self, function: str, value: Value, dims: Any, keepdim: bool = False, **options: Any) -> Value:
        """A reduction over dimensions by their numbers, all of them where there are none."""
        places = [dims] if isinstance(dims, int) else list(dims) if dims else list(range(value.rank))
        places = [value.place(one) for one in places]
        over = [value.dims[place] for place in places]
        left = tuple(() if place in places else dim for place, dim in enumerate(value.dims))
        if not keepdim:
            left = tuple(dim for place, dim in enumerate(value.dims) if place not in places)
        return self.reduced(function, value, over, left, **options)

    def reduced(self, function: str, value: Value, over: Sequence[Dim], left: Dims, **options: Any) -> Value:
        """A reduction over some axes, with the dimensions that are left."""
        has = self.axes_of(value.expr)
        axes = [axis for dim in over for axis in self.axes.atoms(dim)]
        kept = tuple(axis for axis in axes if axis in has)
        expr = value.expr
        missing = tuple(axis for axis in axes if axis not in has)
        if missing and function == "sum":
            expr = Apply("mul", (expr, Apply("size", (Over(missing),))))
        elif missing and function not in ("mean", "max", "min", "any", "all"):
            raise Refusal(f"{function} along an axis that the value was only expanded to")
        for dim in over:
            self.axes.wish(dim, "N", 5)
        if kept:
            named = tuple((name, self.number(one)) for name, one in options.items())
            expr = Apply(function, (expr, Over(kept)), named)
        return Value(expr, left, self.dtype, self.natural([value], self.dtype))

    def along(self, function: str, value: Value, place: int) -> Value:
        """A function along a dimension, which keeps it."""
        dim = value.dims[place]
        self.axes.wish(dim, "N", 2)
        if not dim or not self.axes_of(value.expr) & set(self.axes.atoms(dim)):
            raise Refusal(f"{function} along a dimension of length 1, or to which the value was only expanded")
        expr = Apply(function, (value.expr, Over(dim)))
        return Value(expr, value.dims, self.dtype, self.natural([value], self.dtype))

    def line(self, name: str, value: Value, kept: bool = True) -> Value:
        """A value that is a line of this name."""
        return value.of(Line(name, value.expr, kept)) if isinstance(bare(value.expr), Apply) else value

    def multiplied(self, value: Value) -> Value:
        """An operand of a matmul, which multiplies in the dtype that operands have."""
        if value.dtype == value.natural or not value.dtype.is_floating_point:
            return value
        return replace(value, expr=Apply("cast", (value.expr, Word(dtype_name(value.dtype)))), natural=value.dtype)

    def index(self, dim: Dim) -> Expr:
        return Apply("index", (Over(dim),)) if dim else Number(0)

    def take(self, value: Value, place: int, index: Value | int, dims: Iterable[Dim]) -> Value:
        """A value at positions along a dimension, with the dimensions that come in its place."""
        dim = value.dims[place]
        expr = value.expr
        if dim and self.axes_of(expr) & set(self.axes.atoms(dim)):
            at = index.expr if isinstance(index, Value) else Number(index)
            expr = Apply("take", (expr, at, Over(dim)))
        return replace(value.with_dim(place, *dims), expr=expr)

    def fresh(self, length: Any, fixed: bool = True) -> Dim:
        """An axis of a length that the program states: a number of its own, or of lengths of inputs."""
        if isinstance(length, Symbolic):
            dim = self.axes.new(int(length.hint), formula=length.formula)
        else:
            dim = self.axes.new(int(length), fixed=fixed, formula=int(length))
        place = next((one for one in self._places if not is_library(one.path)), NOWHERE)
        self.made += [(axis, place) for axis in dim]
        return dim


def hint(length: Any) -> int:
    """A length in the trace."""
    node = getattr(length, "node", None)
    if node is not None and not node.has_hint():  # It is of values.
        return 2
    return int(node.hint if node is not None else length)


def _is_tensor(expr: Expr) -> bool:
    return not isinstance(bare(expr), Number | Param)


def _check_dtypes(node: Any) -> None:
    import torch

    found = node.meta.get("val")
    for one in found if isinstance(found, tuple | list) else [found]:
        if isinstance(one, torch.Tensor) and one.dtype.is_complex:
            raise Refusal("complex numbers", "the language has none: write real and imaginary parts")
        if isinstance(one, torch.Tensor) and one.is_sparse:
            raise Refusal("a sparse tensor")
        for length in one.shape if isinstance(one, torch.Tensor) else ():
            if isinstance(length, torch.SymInt) and not length.node.has_hint():
                raise Refusal(*_OF_VALUES)


def _memory(node: Any) -> object:
    import torch

    found = node.meta.get("val")
    return found.untyped_storage()._cdata if isinstance(found, torch.Tensor) else None


def _is_other_part(one: Any, other: Any) -> bool:
    """Whether both are parts that one split made, which have no element together."""
    parts = one.target is python.getitem and other.target is python.getitem
    return parts and one.args[0] is other.args[0] and one.args[1] != other.args[1]


def _is_after(node: Any, other: Any) -> bool:
    return bool(node > other)


def _made_of(node: Any) -> tuple[Any, list[Any]]:
    """The graph that torch decomposes an operator into, or None, and the nodes that are its placeholders."""
    import torch
    from torch._decomp import core_aten_decompositions
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    flat, shape = pytree.tree_flatten((list(node.args), dict(node.kwargs)))
    places = [place for place, one in enumerate(flat) if isinstance(one, torch.fx.Node)]
    nodes = [flat[place] for place in places]

    def called(*given: Any) -> Any:
        filled = list(flat)
        for place, one in zip(places, given, strict=True):
            filled[place] = one
        args, kwargs = pytree.tree_unflatten(filled, shape)
        return node.target(*args, **kwargs)

    given = [one.meta["val"] for one in nodes]
    mode = next((getattr(one, "fake_mode", None) for one in given if isinstance(one, torch.Tensor)), None)
    if mode is None:
        return None, []
    try:
        with mode:
            graph = make_fx(called, decomposition_table=_decompositions(core_aten_decompositions()))(*given).graph
    except Exception:
        return None, []
    graph.eliminate_dead_code()
    made = [one for one in graph.nodes if one.op == "call_function" and isinstance(one.target, torch._ops.OpOverload)]
    if any(one.target is node.target for one in made):
        return None, []
    return graph, nodes


def _decompositions(known: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Torch's, but for operators that have a row."""

    def has_row(one: Any) -> bool:
        return builder_of(one._schema.name.split("::")[1], one._overloadname) is not None

    return {one: made for one, made in known.items() if not has_row(one)}


def _bound(node: Any, place: Place) -> str:
    """The variable that a statement assigns a node to."""
    names = bound_names(place)
    if node.target is python.getitem and len(names) > 1:
        return names[node.args[1]] if node.args[1] < len(names) else ""
    return names[0] if len(names) == 1 else ""


def _variables(trace: Trace) -> dict[str, str]:
    """The variable that holds the result of each node, by the name of the node."""
    recording = trace.recording
    found = dict(recording.names)
    nodes = [one.name for one in trace.graph.graph.nodes if one.name in recording.places]
    places_of = {one.name: one for one in trace.graph.graph.nodes}
    for name, following in zip(nodes, [*nodes[1:], ""], strict=True):
        outer, after = (tuple(reversed(recording.places.get(one, ()))) for one in (name, following))
        for depth, place in enumerate(outer):
            same = depth < len(after) and (after[depth].path, after[depth].line) == (place.path, place.line)
            bound = _bound(places_of[name], place)
            if (
                (not same or places_of[name].target is python.getitem)
                and bound
                and (name not in found or found[name][0] > depth)
            ):
                found[name] = depth, bound
                break
    return {name: variable for name, (_, variable) in found.items()}


__all__ = ["Located", "Translation", "dtype_name", "hint"]
