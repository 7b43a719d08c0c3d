"""Bounds of values, whatever finite values inputs hold: they show which exponentials and quotients are finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..lang.integers import bounds_in, bounds_of_call
from ..lang.ir import Call, Cast, Choose, Constant, Node, Op, Reduce, Ref, Scalar, Size, Take
from ..passes.exponentials import resolve
from .algebra import Algebra
from .terms import Term, factors

Bounds = tuple[float, float]
IsSeen = Callable[[tuple[str, ...]], bool]  # Whether gradients have elements where one of the axes is empty.

EVERY: Bounds = (-math.inf, math.inf)
_LEAST = 2.0**-126  # of positive params
_LARGEST = 80.0  # of exponents whose exponential is finite in float32
_WITHIN: dict[str, Bounds] = {
    "sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "erf": (-1.0, 1.0),
    "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0),
    "relu": (0.0, math.inf),
    "softplus": (0.0, math.inf),
    "hypot": (0.0, math.inf),
}
_RISING: dict[str, Callable[[float], float]] = {
    "exp": lambda x: math.exp(x) if x < _LARGEST else math.inf,
    "exp2": lambda x: 2.0**x if x < _LARGEST else math.inf,
    "sqrt": lambda x: math.sqrt(max(x, 0.0)),
    "log": lambda x: math.log(x) if x > 0 else -math.inf,
}
_CHOOSING = frozenset("abs where clamp clamp_min clamp_max maximum minimum".split())
_OTHERS = frozenset("pow tan asin acos acosh atanh erfinv lgamma logit".split())


@dataclass(frozen=True, slots=True)
class Reals:
    """Bounds of the values of an operator; an empty sum, which is 0, counts where it `is_seen`."""

    op: Op
    algebra: Algebra
    is_seen: IsSeen
    known: dict[Node, Bounds] = field(default_factory=dict)

    def is_undefined(self, node: Node) -> bool:
        """Whether a node may be infinite or NaN where its operands are not; a mean is NaN over an empty axis."""
        if isinstance(node, Reduce):
            return node.kind not in ("sum", "prod") and self.is_seen(node.over)
        return isinstance(node, Call) and self.is_singular(node)

    def is_singular(self, node: Call) -> bool:
        """Whether a function may be infinite or NaN where its arguments are not."""
        last = node.args[-1]
        match node.function:
            case "exp" | "exp2" | "expm1":
                return self.bounds(last)[1] > _LARGEST
            case "sinh" | "cosh" | "ldexp":
                return not max(map(abs, self.bounds(last))) <= _LARGEST
            case "sqrt":
                return not self.bounds(last)[0] >= 0
            case "log" | "log2" | "log10" | "rsqrt" | "xlogy":
                return not self.bounds(last)[0] > 0
            case "log1p" | "xlog1py":
                return not self.bounds(last)[0] > -1
            case "div" | "reciprocal":
                return not self.is_divisor(last)
            case "addcdiv":
                return not self.is_divisor(node.args[2])
        return node.function in _OTHERS

    def is_divisor(self, node: Node) -> bool:
        """Whether a value is never 0."""
        low, high = self.bounds(node)
        return low > 0 or high < 0

    def bounds(self, node: Node) -> Bounds:
        if node not in self.known:
            self.known[node] = self.found(node)
        return self.known[node]

    def found(self, node: Node) -> Bounds:
        if node.dtype.kind == "int" and not isinstance(node, Size | Ref):
            return bounds_in(self.op).bounds(node) or EVERY
        match node:
            case Constant(value=int() | float() as value) if value == value:
                return float(value), float(value)
            case Size():
                return 1.0, math.inf
            case Scalar(name=name):
                return self.of_param(name)
            case Ref(name=name):
                return self.bounds(self.op.value(name).node)
            case Cast(arg=arg) | Take(arg=arg):
                return self.bounds(arg)
            case Choose(then=then, other=other) | Call(function="where", args=(_, then, other)):
                return self.called("where", (then, other))
            case Reduce():
                return self.reduced(node)
            case Call(function="mul" | "div" | "neg" | "square" | "reciprocal"):
                return self.product(factors(node))
            case Call(function="add" | "sub"):
                terms = self.algebra.linear(node)
                return -self.most({term: -times for term, times in terms.items()}), self.most(terms)
            case Call():
                return self.called(node.function, node.args)
        return EVERY

    def of_param(self, name: str) -> Bounds:
        """The bounds of a param; a param without bounds has the sign of its default, as `eps`, or is positive."""
        param = next(one for one in self.op.params if one.name == name)
        default = param.default if isinstance(param.default, int | float) else 1.0
        low = param.minimum if param.minimum is not None else _LEAST if default > 0 else -math.inf
        high = param.maximum if param.maximum is not None else -_LEAST if default < 0 else math.inf
        return float(low), float(high)

    def product(self, term: Term) -> Bounds:
        low = high = term.coefficient
        for factor, power in term.factors.items():
            ends = [_times(one, other) for one in (low, high) for other in self.power(factor, power)]
            low, high = min(ends), max(ends)
        return low, high

    def power(self, node: Node, power: int) -> Bounds:
        low, high = self.called("abs", (node,)) if power % 2 == 0 else self.bounds(node)
        if power < 0 and low <= 0 <= high:
            return (0.0, math.inf) if low >= 0 else EVERY
        ends = _to(low, power), _to(high, power)
        return min(ends), max(ends)

    def called(self, function: str, args: tuple[Node, ...]) -> Bounds:
        bounds = [self.bounds(arg) for arg in args]
        if function in _CHOOSING:
            return bounds_of_call(function, bounds) or EVERY
        (a, b), *_ = bounds
        if function in _RISING:
            return _RISING[function](a), _RISING[function](b)
        return _WITHIN.get(function, EVERY)

    def reduced(self, node: Reduce) -> Bounds:
        low, high = self.bounds(node.arg)
        match node.kind:
            case "mean" | "max" | "min":
                return low, high
            case "var":
                return 0.0, math.inf
            case "prod" if low >= 0:
                return 0.0, math.inf
            case "sum":
                is_empty = self.is_seen(node.over)
                if not is_empty and self.is_of_largest(node):
                    return 1.0, math.inf
                return (
                    -math.inf if low < 0 else 0.0 if is_empty else low,
                    math.inf if high > 0 else 0.0 if is_empty else high,
                )
        return EVERY

    def is_of_largest(self, node: Reduce) -> bool:
        """Whether a node is a sum of exp(x - max(x)), which is at least 1."""
        power = resolve(self.op, node.arg)
        if not isinstance(power, Call) or power.function not in ("exp", "exp2"):
            return False
        largest = (self.extremum(term, "max") for term in self.algebra.linear(power.args[0]))
        along = any(one is not None and {*one.over} <= {*node.over} for one in largest)
        return along and self.bounds(power.args[0])[1] == 0

    def most(self, terms: Mapping[Node, float]) -> float:
        """An upper bound of a sum; a max that is subtracted is at least its operand, an added min at most that."""
        below: dict[Node, float] = {}
        for term, times in terms.items():
            found = self.extremum(term, "max" if times < 0 else "min")
            for one, count in ({term: 1.0} if found is None else self.algebra.linear(found.arg)).items():
                below[one] = below.get(one, 0.0) + times * count
        return min(self.greatest(terms), self.greatest(below))

    def greatest(self, terms: Mapping[Node, float]) -> float:
        ends = (max(times * end for end in self.bounds(term)) for term, times in terms.items() if times)
        return sum(ends, 0.0)

    def extremum(self, node: Node, kind: str) -> Reduce | None:
        """The max or min reduction that a value is, if need be behind a `where` that replaces infinite values."""
        match resolve(self.op, node):
            case Reduce(kind=own) as found if own == kind:
                return found
            case Call(function="where", args=(_, then, other)):
                return self.extremum(then, kind) or self.extremum(other, kind)
        return None


def _times(one: float, other: float) -> float:
    return 0.0 if 0 in (one, other) else one * other


def _to(number: float, power: int) -> float:
    try:
        return float(number**power)
    except OverflowError:
        return math.inf if number > 0 or power % 2 == 0 else -math.inf
