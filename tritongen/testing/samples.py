"""The inputs of emitted tests and benchmarks: shapes, dtypes, ranges and params."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeGuard

from ..emit.configs import SORTED
from ..lang.formulas import inputs_in_order, lengths_by
from ..lang.integers import bounds_in
from ..lang.ir import Call, Load, Node, Op, Ref, Scalar, Take, is_order, walk
from ..lang.syntax import Text
from ..passes.structure import Program
from ..spec.types import BATCH, INTS, Input, Param, ParamValue, Range, Spec
from .fitting import Fitting

# Functions and operators that are not defined for all integers.
_PARTIAL = frozenset("floor_divide remainder fmod bitwise_left_shift bitwise_right_shift pow".split())
_PARTIAL_OPERATORS = (ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift, ast.Pow)
# Comparisons by order.
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
RAGGED = 37  # elements along the axis that a kernel works along
ALIGNED = 40  # about as many, for which loads are wide: divisible by 8, not by 16
# Reductions that have no value over no elements.
_VALUELESS = frozenset("max min amax amin argmax argmin".split())


@dataclass(frozen=True)
class Shapes:
    """Shapes to test with: the lengths of all axes that are neither fixed nor computed, in one tuple."""

    spec: Spec
    program: Program

    @property
    def axes(self) -> tuple[str, ...]:
        known = {*dict(self.program.op.sizes), *self.program.op.computed}
        return tuple(axis for axis in self.program.op.axes if axis not in known)

    @property
    def batch(self) -> bool:
        return BATCH in self.axes

    @property
    def leading(self) -> tuple[int, ...]:
        """One leading axis more than kernels loop over: three, with all named axes but the last."""
        inputs = (tensor.type for tensor in self.program.op.inputs if BATCH in tensor.type.axes)
        named = max(len(type_.shape) - 1 for type_ in inputs)
        return (2, 3, 2, 2)[: max(2, 5 - named)]

    @property
    def spread(self) -> tuple[int, ...]:
        """The leading axes if the first is spread out: as many as kernels loop over."""
        return self.leading[1:]

    @property
    def named(self) -> int:
        return len(self.axes) - self.batch

    @property
    def long(self) -> str:
        """The axis along which a kernel works: the last that is reduced, else the last."""
        reduced = [axis for axis in self.axes if axis in self.program.over]
        wide = [axis for axis in reduced if axis not in self.fit.shortening]
        return (wide or reduced or ["", *self.axes])[-1]

    @cached_property
    def fit(self) -> Fitting:
        bounds = {bound for found in self._ranges for bound in (found.low, found.high) if isinstance(bound, str)}
        op = self.program.op
        return Fitting(op, usual_params(op), frozenset(bounds), changed_params(op))

    def of(self, batch: tuple[int, ...], middle: int, long: int, others: int = 3) -> tuple[int, ...]:
        """Leading axes if there may be any, `long` for the kernel's axis, `middle` for another, else `others`."""
        batch, lengths = self.unfitted(batch, middle, long, others)
        return (*batch, *self.fitting(lengths).values())

    def unfitted(
        self, batch: tuple[int, ...], middle: int, long: int, others: int
    ) -> tuple[tuple[int, ...], dict[str, int]]:
        """The leading axes and lengths of `of`, before `fitting`."""
        lengths = dict.fromkeys((axis for axis in self.axes if axis != BATCH), others)
        lengths |= dict.fromkeys([axis for axis in lengths if axis != self.long][-1:], middle)
        if self.long in lengths:
            lengths[self.long] = long
        elif self.batch:
            batch = (*batch, long)
        lengths = {axis: self.with_fixed(axis, length) for axis, length in lengths.items()}
        return batch if self.batch else (), lengths

    def with_fixed(self, axis: str, length: int) -> int:
        """The length of an axis that shares a dimension with axes of fixed sizes."""
        return length

    def fitting(self, lengths: dict[str, int]) -> dict[str, int]:
        """The lengths, with axes at least as long as [test] says, and as positions gathered along them need.

        An axis that bounds values is long enough that the range is not empty.
        """
        smallest = dict(self.spec.smallest)
        lengths = {axis: max(length, smallest.get(axis, 0)) for axis, length in lengths.items()}
        for found in self._ranges:
            if found.high in lengths:
                known = dict(self.program.op.sizes) | lengths
                low = known[found.low] if isinstance(found.low, str) else math.floor(found.low)
                lengths[found.high] = max(lengths[found.high], low + 1)
        for axis, position in self._positions:
            op = replace(self.program.op, sizes=tuple((dict(self.program.op.sizes) | lengths).items()))
            reaches = bounds_in(op).bounds(position)
            if axis in lengths and reaches:
                lengths[axis] = max(lengths[axis], reaches[1] + 1)
        return self.fit.lengthened(lengths)

    @cached_property
    def _ranges(self) -> list[Range]:
        """The ranges in which values of inputs must lie."""
        return [found for tensor in self.program.op.inputs if (found := range_of(tensor, self.spec))]

    @cached_property
    def _positions(self) -> list[tuple[str, Node]]:
        """The axes and positions of each `take` whose positions depend on no tensor, param or line."""
        taken = [at for node in self.program.op.nodes if isinstance(node, Load | Take) for at in node.at]
        found = [at for at in taken if not any(isinstance(node, Load | Scalar | Ref) for node in walk(at[1]))]
        computed = self.program.op.computed  # Positions along these are outside of others.
        return [at for at in found if computed.isdisjoint(at[1].axes)]

    @property
    def ragged(self) -> tuple[int, ...]:
        """The shape that most others resemble: on a GPU, kernels are compiled anew for an argument of 1, for one that
        16 divides, and for blocks of another length, and compiling takes most of the time of tests there.
        """
        return self.of((3,), 5, RAGGED)

    @property
    def ragged_batch(self) -> tuple[int, ...]:
        return self.ragged[: len(self.ragged) - self.named]

    @property
    def lengths(self) -> dict[str, int]:
        """The length of each named axis in the ragged shape."""
        return self.with_computed(self.ragged)

    def with_computed(self, shape: tuple[int, ...]) -> dict[str, int]:
        """The length of each named axis in a shape; computed ones are for default params."""
        named = [axis for axis in self.axes if axis != BATCH]
        own = dict(zip(named, shape[len(shape) - len(named) :], strict=True))
        return lengths_by(self.program.op, own, self.fit.params)

    def summed(self, tensor: Input) -> str:
        """The axis along which scores sum products with an input; "" if it is no factor of such."""
        return ""

    def small(self) -> list[tuple[int, ...]]:
        alone = self.batch and not self.named  # A single element has no axes, too.
        cases = [
            self.ragged,
            self.of((2, 3), 4, 64),
            *([] if alone else [self.of((1,), 1, 1)]),
            self.of((4,), 6, 1),
            *([] if self.batch else [self.of((1,), 1, RAGGED)]),
            self.of((), 7, 130),
        ]
        if self.batch:
            cases.append(self.of((2, 1, 3, 2), 2, RAGGED))
            cases += [(), (999,)] if alone else []
        return list(dict.fromkeys(cases))

    def large(self) -> list[tuple[int, ...]]:
        """For a GPU: every kernel of the module by its own rule, full tiles and ragged ones."""
        if len(self.axes) == 1 and not self.program.over:
            return [(1 << 22,), (4_194_301,), *([(1023, 4097)] if self.batch else [])]
        shapes = [self.of((1024,), 2, 1024), self.of((5,), 2, 100_003), self.of((4097,), 1, 257)]
        if self.too_long():
            return [self.of((1024,), 2, 1024), self.of((4097,), 1, 257), self.of((2,), 2, SORTED)]
        return list(dict.fromkeys([*shapes, self.of((2,), 1, 1 << 20)] if self.program.over else shapes))

    def too_long(self) -> tuple[int, ...]:
        """A shape with rows that do not fit in registers, if rows are sorted there."""
        sorts = any(is_order(node) for node in self.program.op.nodes)
        return self.of((1,), 1, SORTED + 1) if sorts else ()

    def empty(self) -> list[tuple[int, ...]]:
        """Shapes with an empty result. A reference may accept some that torch's own reductions refuse."""
        valueless = set(self.valueless())
        fits = {axis for axis in self.axes if self.spec.reference or not self.is_valueless(axis)}
        found = [shape for axis, shape in self._empty() if axis in fits and shape not in valueless]
        return [shape for shape in found if self.fit.fits(self.with_computed(shape))]

    def valueless(self) -> list[tuple[int, ...]]:
        """Shapes that an operator refuses since reductions are empty, unless the results are empty, too."""
        results = self.program.op.results
        refused = {axis for axis in self.axes if any(axis not in result.axes for result in results)}
        return [shape for axis, shape in self._empty() if axis in refused and self.is_valueless(axis)]

    def _empty(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Axes, each with a shape in which it is empty; an axis that bounds values or splits a group cannot be."""
        inputs = self.program.op.inputs
        needed = {bound for found in self._ranges for bound in (found.low, found.high)}
        terms = (set(term.names) & set(self.axes) for tensor in inputs for term in tensor.type.shape)
        needed |= {axis for names in terms if len(names) > 1 for axis in names}
        needed |= {axis for axis, _ in self._positions} | {axis for axis, _ in self.spec.smallest}
        for position, axis in enumerate(self.axes):
            if axis not in needed:
                shape = list(self.ragged)
                shape[0 if axis == BATCH else position - len(self.axes)] = 0
                yield axis, tuple(shape)
        if self.batch:
            yield BATCH, (0, *self.deep()[1:])

    def is_valueless(self, axis: str) -> bool:
        """Whether a reduction would have no value if this axis were empty."""
        trees = (Text(statement.expression).parse() for statement in self.spec.compute)
        calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
        return axis in self.program.over and any(map(_has_no_identity, calls))

    def deep(self) -> tuple[int, ...]:
        """One dimension more than kernels have, where there may be any number."""
        return self.of(self.leading, 2, ALIGNED) if self.batch else self.ragged

    def wide(self) -> tuple[int, ...]:
        """Enough for several steps of a loop and several programs, with a tail, and three chunks in blocks of 32.

        Rows are few, for the interpreter is slow, and odd, for a tail of tiles of two; they are short where only axes
        of fixed size are reduced. 8 divides them and 16 does not, for which loads are wide all the same. There is no
        tail where a block of columns may have one element of an input.
        """
        over = self.program.over
        if over and self.long not in over:
            return self.of((2,), 2, 2, others=1)
        inputs = (tensor.type.axes for tensor in self.program.op.inputs)
        is_uniform = any({*axes} & {*over} and self.long not in axes for axes in inputs)
        return self.of((3,), 3, 96 if is_uniform else 88, others=2)

    def dense(self) -> tuple[int, ...]:
        """Full tiles of contiguous elements, if nothing is reduced."""
        return () if self.program.over else self.of((64,), 4, 256)

    def tiled(self) -> list[tuple[int, ...]]:
        """Several small tiles of a matmul along rows and columns, with tails."""
        return []

    def shared(self) -> tuple[int, ...]:
        """Small tiles of a matmul, several of which split-K and stream-K divide."""
        return ()

    def special(self) -> tuple[int, ...]:
        """A shape with fewer rows, if axes of fixed sizes make each row long."""
        is_long = math.prod(size for _, size in self.program.op.sizes) > 32
        return self.of((4,), 3, 3) if is_long else self.of((24,), 3, RAGGED)


def _has_no_identity(call: ast.Call) -> bool:
    """Whether a call is of a reduction that has no value over no elements."""
    p = next((ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "p"), "")
    name = ast.unparse(call.func)
    return name in _VALUELESS or (name == "norm" and p in ("inf", "-inf"))


# Values


def range_of(tensor: Input, spec: Spec) -> Range | None:
    """The range in which values of an input must lie: as [test] says, or else as the math determines."""
    said = dict(spec.ranges).get(tensor.name)
    return said or _range_by_math(tensor, spec)


def _range_by_math(tensor: Input, spec: Spec) -> Range | None:
    """Positions that `take` reads at lie along its axis, and integer divisors are positive. So are integers that
    positions are compared with: a mask by lengths of 0 or less would leave rows without elements. Some of these are
    larger than the ragged length of an axis.
    """
    trees = [(statement.name, Text(statement.expression).parse()) for statement in spec.compute]
    nodes = [node for _, tree in trees for node in ast.walk(tree)]
    for node in nodes:
        if _is_call(node, "take") and tensor.name in _names(node.args[1]):
            return Range(0, ast.unparse(node.args[2]))
    if not set(tensor.type.dtypes) & set(INTS):
        return None
    for node in nodes:
        divides = isinstance(node, ast.BinOp) and isinstance(node.op, _PARTIAL_OPERATORS)
        if divides or _is_call(node, *_PARTIAL):
            return Range(1, 5)
    if not set(tensor.type.dtypes) <= set(INTS):
        return None
    behind: dict[str, set[str]] = {}  # the names that each line depends on, also through earlier lines
    for name, tree in trees:
        for node in ast.walk(tree):
            ordered = isinstance(node, ast.Compare) and isinstance(node.ops[0], _ORDERS)
            if ordered and {"index", tensor.name} <= _names_behind(node, behind):
                return Range(1, 40)
        behind[name] = _names_behind(tree, behind)
    return None


def _is_call(node: ast.AST, *functions: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in functions


def _names_behind(tree: ast.AST, behind: Mapping[str, set[str]]) -> set[str]:
    found = _names(tree)
    return found.union(*(behind.get(name, ()) for name in found))


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


# Dtypes


def dtype_columns(op: Op) -> dict[str, tuple[str, ...]]:
    """The dtypes among which a caller chooses, by shared type or input."""
    columns: dict[str, tuple[str, ...]] = {}
    for tensor in op.inputs:
        if len(tensor.type.dtypes) > 1:
            columns.setdefault(tensor.type.variable or tensor.name, tensor.type.dtypes)
    return columns


# Params


def required_values(op: Op) -> dict[str, ParamValue]:
    """A value for each param without a default: increasing integers, large enough that no length computed from them is
    as small as 1.
    """
    needed = [param for param in op.params if param.default is None]
    lengths = {name for formula in op.formulas for name in formula.params}
    return {param.name: _value(param, n + (3 if param.name in lengths else 1)) for n, param in enumerate(needed)}


def usual_params(op: Op) -> dict[str, ParamValue]:
    """The integer params of tests that try no other values: required ones, and defaults."""
    given = required_values(op)
    ints = [param for param in op.params if param.kind == "int"]
    return {one.name: given[one.name] if one.default is None else one.default for one in ints}


def _value(param: Param, position: int) -> ParamValue:
    if param.kind == "enum":
        return param.choices[0]
    return False if param.kind == "bool" else next(_admitted(param, (position, 0)))


def other_values(op: Op, shapes: Shapes) -> list[dict[str, ParamValue]]:
    """Keyword arguments to try: every choice and flag, and numbers other than the default, unless a length becomes
    negative or an input's changes.
    """
    tried = [shapes.with_computed(shape) for shape in (shapes.ragged, shapes.wide(), shapes.special())]
    return [given for given in changed_params(op) if all(shapes.fit.fits(lengths, given) for lengths in tried)]


def changed_params(op: Op) -> list[dict[str, ParamValue]]:
    found = [(param, value) for param in op.params for value in dict.fromkeys(_candidates(param, op))]
    return [{param.name: value} for param, value in found if value != param.default]


def _candidates(param: Param, op: Op) -> list[ParamValue]:
    if param.kind == "enum":
        return list(param.choices)
    if param.kind == "bool":
        return [False, True]
    calls = [node for node in op.nodes if isinstance(node, Call)]
    partial = any(
        node.name == param.name
        for call in calls
        if call.function in _PARTIAL
        for node in walk(call)
        if isinstance(node, Scalar)
    )
    # 0 is the first of integers that are drawn between bounds, so that one is equal to the param. 1 is trivial: it is a
    # window of one key, or a step from one to the next.
    wanted = (0.25,) if param.kind == "float" else (1, 2) if partial else (2, -1, 0)
    return list(_admitted(param, wanted))[: len(wanted)]


def _admitted(param: Param, wanted: tuple[float, ...]) -> Iterator[ParamValue]:
    """The values in `wanted` that a param admits, then the middle of its range and its bounds."""
    low, high = param.minimum, param.maximum
    if low is not None and high is not None:
        wanted = (*wanted, (low + high) / 2)
    for value in (*wanted, *(bound for bound in (low, high) if bound is not None)):
        if (low is None or value >= low) and (high is None or value <= high):
            yield float(value) if param.kind == "float" else int(value)


def refused_values(op: Op) -> Iterator[tuple[str, ParamValue]]:
    for param in op.params:
        if param.kind == "enum":
            words = ("no such choice" + "!" * count for count in itertools.count())
            yield param.name, next(word for word in words if word not in param.choices)
        elif param.minimum is not None:
            yield param.name, param.minimum - 1
        elif param.maximum is not None:
            yield param.name, param.maximum + 1


# Shapes that an operator refuses


def refused_shapes(op: Op, shapes: Shapes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Inputs, each with a shape that does not fit the ragged shape of the others."""
    seen: set[str] = set()
    for tensor in inputs_in_order(op):
        terms = [term for term in tensor.type.shape if term.names != (BATCH,)]
        named = [math.prod(shapes.lengths[name] for name in term.names) for term in terms]
        batched = BATCH in tensor.type.axes
        batch = shapes.ragged_batch if batched else ()
        if not batched:
            yield tensor.name, (2, *named)
        elif terms:
            yield tensor.name, tuple(named[1:])
        if batched and BATCH in seen:
            yield tensor.name, (*(size + 1 for size in batch), *named)
        for position, term in enumerate(terms):
            if set(term.names) & seen or any(term.sizes):
                wrong = [size + (n == position) for n, size in enumerate(named)]
                yield tensor.name, (*batch, *wrong)
        seen |= set(tensor.type.axes)
