"""Powers of 2 below a maximum, and exponentials of a difference times a number, as plain exponentials below a maximum.

`exp2((s - max(s, N)) * log2(e))` is `exp(s - max(s, N))`, and `exp(c * (s - max(s, N)))` with a positive number c is
`exp(c * s - max(c * s, N))`: kernels that stream N take exponentials of differences, below the largest so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..lang.ir import Call, Constant, Dtype, Node, Op, Reduce, Ref, Scalar, Value, children
from ..lang.names import fresh
from ..lang.rewrite import rebuild
from .contractions import applied
from .exponentials import resolve
from .structure import reached, references, with_read_values

_LOG2 = math.log(2)
_FLOAT = Dtype("float")


@dataclass(frozen=True, slots=True)
class _Scale:
    """A positive number times params, as far as these are known to be positive."""

    number: float = 1.0
    params: tuple[Scalar, ...] = ()

    @property
    def is_one(self) -> bool:
        return not self.params and math.isclose(self.number, 1.0, rel_tol=1e-15)

    def times(self, other: _Scale) -> _Scale:
        return _Scale(self.number * other.number, (*self.params, *other.params))

    def of(self, node: Node) -> Node:
        """A node times the scale."""
        if self.is_one:
            return node
        match node:
            case Constant(value=int() | float() as value) if not self.params:
                return replace(node, value=value * self.number)
            case Constant(value=int() | float() as value) if value == 0 or math.isinf(value):
                return node
            case (
                Call(function="mul", args=(Constant(value=float() as value), other))
                | Call(function="mul", args=(other, Constant(value=float() as value)))
            ):
                return _Scale(self.number * value, self.params).of(other) if value > 0 else self.times_all(node)
        return self.times_all(node)

    def times_all(self, node: Node) -> Node:
        for param in self.params:
            node = applied("mul", node, param)
        return node if math.isclose(self.number, 1.0, rel_tol=1e-15) else applied("mul", node, _number(self.number))


@dataclass(frozen=True, slots=True)
class _Power:
    """The exponential of a scale times the difference of scores and a value for each row of them."""

    scale: _Scale
    score: Node
    less: Node


def with_natural_powers(op: Op) -> Op:
    """The operator, whose reductions have names, with such exponentials as plain ones."""
    powers = [power for value in op.values for node in value.node.nodes if (power := _power(op, node))]
    changed = [power for power in powers if not power.scale.is_one and _largest(op, power)]
    if not changed and all(_is_plain(op, node) for value in op.values for node in value.node.nodes):
        return op
    scales = {power.score: power.scale for power in changed}
    if any(power.scale != scales.get(power.score, power.scale) for power in powers):
        return op  # One largest each would be needed.
    return _Rewritten(op, scales).op


def _is_plain(op: Op, node: Node) -> bool:
    power = _power(op, node)
    return power is None or not power.scale.is_one or (isinstance(node, Call) and _is_difference(op, node))


def _is_difference(op: Op, node: Call) -> bool:
    argument = resolve(op, node.args[0])
    return node.function == "exp" and isinstance(argument, Call) and argument.function == "sub"


def _power(op: Op, node: Node) -> _Power | None:
    match node:
        case Call(function="exp" | "exp2" as function, args=(argument,)):
            scale = _Scale(_LOG2 if function == "exp2" else 1.0)
            return _difference(op, argument, scale)
    return None


def _difference(op: Op, node: Node, scale: _Scale) -> _Power | None:
    node = resolve(op, node)
    match node:
        case Call(function="sub", args=(score, less)) if {*less.axes} < {*score.axes}:
            (own, inner), (other, below) = _scaled_by(op, score), _scaled_by(op, less)
            if own == other and own != _Scale():
                return _Power(scale.times(own), inner, below)
            return _Power(scale, score, less)
    by, inner = _scaled_by(op, node)
    return _difference(op, inner, scale.times(by)) if by != _Scale() else None


def _scaled_by(op: Op, node: Node) -> tuple[_Scale, Node]:
    """The positive constants that a node multiplies another by, and that."""
    match resolve(op, node):
        case Call(function="mul", args=(left, right)):
            for one, other in ((left, right), (right, left)):
                if (scale := _positive(op, one)) is not None:
                    return scale, other
        case Call(function="div", args=(above, Constant(value=int() | float() as value))) if 0 < value < math.inf:
            return _Scale(1 / value), above
    return _Scale(), node


def _positive(op: Op, node: Node) -> _Scale | None:
    match node:
        case Constant(value=int() | float() as value) if 0 < value < math.inf:
            return _Scale(float(value))
        case Scalar(name=name):
            least = next((param.minimum for param in op.params if param.name == name), None)
            return _Scale(1.0, (node,)) if least is not None and least > 0 else None
    return None


def _largest(op: Op, power: _Power) -> Value | None:
    """The maximum of the scores, of which what is subtracted is made."""
    inside = reached(op.refs, references(power.less), ())
    for value in op.values:
        node = value.node
        if value.name in inside and isinstance(node, Reduce) and node.kind == "max" and node.arg == power.score:
            return value
    return None


class _Rewritten:
    """The operator, with scores times their scales, and maxima of these, in place of those that powers are of."""

    def __init__(self, op: Op, scales: dict[Node, _Scale]) -> None:
        self.given, self.scales = op, scales
        self.taken = op.names
        self.scores: dict[Node, Ref] = {}  # by what they are scaled from
        self.largest: dict[str, tuple[Ref, _Scale]] = {}  # by the name of the maximum of what they are scaled from
        self.values: list[Value] = []
        for value in op.values:
            self.add(value)
        self.op = with_read_values(replace(op, values=tuple(self.values)))

    def add(self, value: Value) -> None:
        node = value.node
        if isinstance(node, Reduce) and node.kind == "max" and (scale := self.scales.get(node.arg)):
            arg = self.score(node.arg, scale, value.name)
            own = self.named(f"{value.name}_scaled", replace(node, arg=arg))
            self.largest[value.name] = own, scale
            node = _Scale(1 / scale.number).of(own)
            for param in scale.params:
                node = applied("div", node, param)
            self.values.append(replace(value, node=node))
            return
        self.values.append(value.of(self.natural(node)))

    def named(self, name: str, node: Node) -> Ref:
        name = fresh(name, self.taken)
        self.values.append(Value(name, node, ""))
        return Ref(name, node.axes, node.dtype)

    def score(self, score: Node, scale: _Scale, name: str) -> Ref:
        """What scores are, times a scale, as a value."""
        if score not in self.scores:
            name = score.name if isinstance(score, Ref) else name
            inner = resolve(self.given, score)
            found = self.scaled(score if isinstance(inner, Reduce) else inner, scale)
            self.scores[score] = found if isinstance(found, Ref) else self.named(f"{name}_scaled", found)
        return self.scores[score]

    def natural(self, node: Node) -> Node:
        node = rebuild(node, tuple(map(self.natural, children(node))))
        power = _power(self.given, node)
        if power is None or not isinstance(node, Call):
            return node
        scale = self.scales.get(power.score)
        if scale is None:
            if not power.scale.is_one or _is_difference(self.given, node):
                return node
            score, less = power.score, power.less
        else:
            score, less = self.score(power.score, scale, "score"), self.scaled(power.less, scale)
        difference = applied("sub", score, less)
        return Call("exp", (difference,), node.axes, node.dtype)

    def scaled(self, node: Node, scale: _Scale) -> Node:
        """A node times a scale, which goes where it changes least."""
        match node:
            case Ref(name=name) if name in self.largest and self.largest[name][1] == scale:
                return self.largest[name][0]
            case Call(function="where", args=(test, then, other)):
                return rebuild(node, (test, self.scaled(then, scale), self.scaled(other, scale)))
        return scale.of(node)


def _number(value: float) -> Constant:
    return Constant(value, _FLOAT)
