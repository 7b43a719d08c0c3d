"""The integer arithmetic of an operator that a kernel must widen to int64.

In the math, indices, lengths and integer params are int64, as in torch and Python. A kernel holds
them in int32 where they fit, which suffices to compare them and to iterate over tensors. This
module finds the arithmetic with them that may exceed int32.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..spec.types import RANGES, Input, Param
from .facts import fact
from .functions import FUNCTIONS
from .ir import (
    Call,
    Cast,
    Choose,
    Constant,
    Dtype,
    Index,
    Load,
    Node,
    Op,
    Reduce,
    Ref,
    Scalar,
    Size,
    Value,
    children,
    walk,
)

Bounds = tuple[int, int]
N = TypeVar("N", int, float)

INT32, INT64 = RANGES["int32"], RANGES["int64"]
# Values in these bounds that wrap around are negative in int32, so they remain out of range as an index.
POSITION = (-(2**31), 2**32 - 1)
LONGEST = 2**31 - 2**20  # the longest axis whose indices are int32
_RING = frozenset("add sub mul neg square".split())  # Results are correct modulo 2**32, wrapped or not.
_CHOOSING = frozenset("where clamp clamp_min clamp_max maximum minimum remainder".split())  # These wrap in no dtype.


@dataclass
class IntegerBounds:
    """Bounds of integer values that hold for any tensor contents, lengths and params."""

    sizes: Mapping[str, int]
    params: Mapping[str, Param]
    inputs: Mapping[str, Input] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    longest: int = LONGEST
    known: dict[str, Bounds | None] = field(default_factory=dict)  # by value

    def may_be_outside(self, node: Node, *axes: str) -> tuple[bool, bool]:
        """Whether a flattened index into `axes` may be negative, and whether it may be past the end."""
        low, high = self.bounds(node) or INT64
        return low < 0, high >= math.prod(self.sizes.get(axis, 0) for axis in axes)

    def past(self, node: Node, axis: str) -> Bounds | None:
        """Bounds of `node - index(axis)` if `node` is `index(axis)` plus or minus other terms; None otherwise."""
        match node:
            case Index(axis=own):
                return (0, 0) if own == axis else None
            case Ref(name=name):
                return self.past(self.values[name].node, axis)
            case Call(function="add" | "sub" as function, args=(left, right)):
                for first, other in ((left, right), (right, left)):
                    terms = self.past(first, axis), self.bounds(other)
                    if None not in terms and (function == "add" or first is left):
                        return bounds_of_call(function, terms)
        return None

    def bounds(self, node: Node) -> Bounds | None:
        """The inclusive bounds of an integer value; None if they are unknown."""
        match node:
            case Constant(value=int() as value):
                return int(value), int(value)
            case Index(axis=axis):
                return 0, self.length(axis) - 1
            case Size(over=(axis,)):
                return self.sizes.get(axis, 0), self.length(axis)
            case Scalar(name=name) if name in self.params:
                low, high = self.params[name].minimum, self.params[name].maximum
                return INT64[0] if low is None else int(low), INT64[1] if high is None else int(high)
            case Ref(name=name) if name in self.values:
                if name not in self.known:
                    self.known[name] = self.bounds(self.values[name].node)
                return self.known[name]
            case Load(name=name) if name in self.inputs and self.inputs[name].default is None:
                return bounds_of_dtypes(self.inputs[name].type.dtypes)
            case Cast(arg=arg, dtype=Dtype(of=(dtype,))) if dtype in RANGES:
                found = self.bounds(arg)
                return found if inside(found, RANGES[dtype]) else RANGES[dtype]
            case Reduce(kind="argmax" | "argmin"):
                return 0, LONGEST
            case Choose(then=then, other=other):
                return bounds_of_call("where", [self.bounds(then), self.bounds(other)])
            case Call(function=function) if is_int64(node.dtype) or function in _CHOOSING:
                return bounds_of_call(function, [self.bounds(term) for term in operands(node)])
        return None

    def length(self, axis: str) -> int:
        return self.sizes.get(axis, self.longest)


def bounds_in(op: Op, longest: int = LONGEST) -> IntegerBounds:
    """The bounds of an operator's values."""
    params, inputs = {one.name: one for one in op.params}, {one.name: one for one in op.inputs}
    return IntegerBounds(dict(op.sizes), params, inputs, op.by_name, longest)


@dataclass
class Integers:
    """`widened` maps calls to the argument to widen; `wide` are the params that a kernel takes as int64."""

    op: Op
    widened: dict[Call, int] = field(default_factory=dict)
    wide: set[str] = field(default_factory=set)
    narrow_of: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = bounds_in(self.op)
        for value in self.op.values:
            self.visit(value.node, INT32)
            self.narrow_of[value.name] = self.narrow(value.node)

    def visit(self, node: Node, room: Bounds) -> None:
        if isinstance(node, Load):
            room = POSITION
        elif not (isinstance(node, Call) and node.function in _RING):
            room = INT32
        for child in children(node):
            self.visit(child, room)
        if isinstance(node, Call) and self.overflows(node, room):
            self.widen(node)

    def overflows(self, node: Call, room: Bounds) -> bool:
        """Whether a kernel would use less than int64 although a constant needs it or the result may exceed `room`."""
        terms = operands(node)
        if not all(map(self.narrow, terms)):
            return False
        constants = [term.value for term in terms if isinstance(term, Constant) and isinstance(term.value, int)]
        if any(not inside((number, number), INT32) for number in constants):  # Triton refuses what does not fit.
            return node.dtype.kind == "bool" or is_int64(node.dtype)
        return is_int64(node.dtype) and not inside(self.known.bounds(node), room)

    def fits_int32(self, node: Node) -> bool:
        return self.narrow(node) and inside(self.known.bounds(node), INT32)

    def all_narrow(self, node: Node) -> bool:
        """Whether a kernel holds all integers that a condition compares in less than int64."""
        return all(
            all(map(self.narrow, operands(inner)))
            for inner in walk(node)
            if isinstance(inner, Call) and inner.dtype.kind == "bool"
        )

    def widen(self, node: Call) -> None:
        params = {term.name for term in operands(node) if isinstance(term, Scalar) and term.dtype.kind == "int"}
        if params:
            self.wide |= params
            return
        of_int64 = [term for term in operands(node) if is_int64(term.dtype) and not isinstance(term, Constant)]
        if of_int64:
            self.widened[node] = node.args.index(of_int64[0])

    def narrow(self, node: Node) -> bool:
        """Whether a kernel may hold an integer in less than int64."""
        match node:
            case Scalar(name=name):
                return name not in self.wide
            case Ref(name=name):
                return self.narrow_of[name]
            case Load(name=name):
                return self.op.input(name).type.dtypes != ("int64",)
            case Cast(dtype=dtype):
                return dtype.of != ("int64",)
            case Reduce(kind=kind):
                return kind in ("argmax", "argmin")
            case Choose(then=then, other=other):
                return self.narrow(then) and self.narrow(other)
            case Call():
                return node not in self.widened and all(map(self.narrow, operands(node)))
            case Size(over=over):
                return len(over) == 1
            case _:
                return True


def operands(node: Call) -> tuple[Node, ...]:
    """The arguments whose dtypes a call promotes."""
    return node.args[1:] if FUNCTIONS[node.function].accepts == "where" else node.args


@fact
def integers_of(op: Op) -> Integers:
    return Integers(op)


def is_int64(dtype: Dtype) -> bool:
    return dtype.kind in ("int", "any") and (dtype.weak or "int64" in dtype.of)


def inside(bounds: Bounds | None, room: Bounds) -> bool:
    return bounds is not None and room[0] <= bounds[0] and bounds[1] <= room[1]


def bounds_of_dtypes(dtypes: tuple[str, ...]) -> Bounds | None:
    if not set(dtypes) <= RANGES.keys():
        return None
    lows, highs = zip(*(RANGES[dtype] for dtype in dtypes), strict=True)
    return min(lows), max(highs)


def bounds_of_call(function: str, terms: Sequence[tuple[N, N] | None]) -> tuple[N, N] | None:
    """The bounds of a function's result, given the bounds of its arguments; None if unknown."""
    known = [term for term in terms if term is not None]
    if len(known) < len(terms):
        return None
    (a, b), (c, d) = known[0], known[-1]
    lows, highs = zip(*known, strict=True)
    corners = _AT_CORNERS.get(function)
    if corners is not None and (function != "floor_divide" or c > 0):
        found = [corners(one, other) for one in (a, b) for other in (c, d)]
        return min(found), max(found)
    match function:
        case "abs":
            return max(a, -b, 0), max(-a, b)
        case "positive" | "bitwise_not" | "bitwise_right_shift" | "floor_divide":
            most = max(abs(a), abs(b)) + 1
            return (a, b) if function == "positive" or (a >= 0 and c >= 0) else (-most, most)
        case "remainder" if c > 0:
            return 0, d - 1
        case "maximum" | "clamp_min":  # Masks have these functions with any number of terms.
            return max(lows), max(highs)
        case "minimum" | "clamp_max":
            return min(lows), min(highs)
        case "clamp":
            return bounds_of_call("minimum", [bounds_of_call("maximum", known[:2]), known[2]])
        case "where":
            return min(lows), max(highs)
    return None


# Functions whose least and greatest results are at the bounds of their arguments.
_AT_CORNERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "square": operator.mul,
    "neg": lambda one, _: -one,
    "floor_divide": operator.floordiv,
}
