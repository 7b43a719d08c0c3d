"""Exponentials of scores, which a streaming kernel takes below the largest so far (online softmax)."""

from __future__ import annotations

import itertools
from dataclasses import replace

from ...lang.ir import Call, Node, Op, Reduce, Ref, Value, children
from ...lang.names import fresh
from ...lang.rewrite import rebuild, replaced
from ...passes.contractions import applied
from ...passes.divided_powers import divisor_of, power_below
from ...passes.exponentials import maximum_of, resolve
from .factors import Factors


class Exponents(Factors):
    """Rewrites the exponentials of an operator that streams an axis, and finds what they are below."""

    def __init__(self, op: Op, streamed: str, taken: set[str]) -> None:
        self.op, self.streamed, self.taken = op, streamed, taken
        self.largest = ""

    def below_largest(self) -> tuple[Op, str]:
        """The operator whose exponentials are below the largest of what they are of and scaled after the sums, and that
        largest, "" where there is none, "several" where there are more.

        exp(x - y), where y is made of sums along the streamed axis, is exp(x - largest) * exp(largest - y).
        """
        values: list[Value] = []

        def below(node: Node) -> Node:
            if "exp" not in node.functions:
                return node
            node = rebuild(node, tuple(map(below, children(node))))
            if not isinstance(node, Call) or node.function != "exp":
                return node
            match self.less_at_once(resolve(self.op, node.args[0])):
                case Call(function="sub", args=(x, y)) if self.streams(x) and not self.streams(y) and self.is_summed(y):
                    largest = self.largest_of(x, y, values)
                    shift = largest.ref
                    power = power_below(x, shift)  # Of the dtype of x, whatever else there is in y.
                    if maximum_of(self.op, x, y) == largest:
                        return power
                    divisor = divisor_of(self.op, x, y)
                    if isinstance(divisor, Ref):  # With a sink, exp(largest - y) takes its place in the epilogue.
                        return applied("div", power, divisor)
                    rest = Call("exp", (Call("sub", (shift, y), y.axes, y.dtype),), y.axes, y.dtype)
                    return Call("mul", (power, rest), node.axes, node.dtype)
            return node

        for value in self.op.values:
            values.append(value.of(below(value.node)))
        return self.score_named(replace(self.op, values=tuple(values))), self.largest

    def less_at_once(self, difference: Node) -> Node:
        """(x - largest) - y, as log_softmax is, as x - (largest + y); others as they are."""
        match difference:
            case Call(function="sub", args=(less, y)):
                match resolve(self.op, less):
                    case Call(function="sub", args=(x, shift)) if maximum_of(self.op, x, shift):
                        return applied("sub", x, applied("add", shift, y))
        return difference

    def score_named(self, op: Op) -> Op:
        """The operator with a name for what the largest is of."""
        if self.largest in ("", "several"):
            return op
        node = op.value(self.largest).node
        if not isinstance(node, Reduce) or isinstance(node.arg, Ref):
            return op
        name, score = fresh("score", self.taken), node.arg
        ref = Ref(name, score.axes, score.dtype)
        values: list[Value] = []
        for value in op.values:
            node = replaced(value.node, lambda part: ref if part == score else part)
            if node != value.node and all(one.name != name for one in values):
                values.append(Value(name, score, ""))
            values.append(replace(value, node=node))
        return replace(op, values=tuple(values))

    def largest_of(self, x: Node, y: Node, values: list[Value]) -> Value:
        """The maximum that `x` is taken below: one that there is, be it that of more axes in an lse, or a new one."""
        node = Reduce("max", x, (self.streamed,), _without(x, self.streamed), x.dtype)
        inside, over = (self.op.value(name) for name in self.needed([y])), self.streamed
        wide = (v for v in inside if isinstance(v.node, Reduce) and over in v.node.over and _alike(v.node, node))
        same = (value for value in self.op.values if value.node == node)
        found = maximum_of(self.op, x, y) or next(itertools.chain(wide, same), None)
        if found is None:
            name = fresh("largest", self.taken)
            found = Value(name, node, "")
            values.append(found)
            self.op = replace(self.op, values=(*self.op.values, found))
        self.largest = found.name if self.largest in ("", found.name) else "several"
        return found


def _alike(one: Reduce, other: Reduce) -> bool:
    """Whether both reduce the same, along whatever axes."""
    return (one.kind, one.arg) == (other.kind, other.arg)


def _without(node: Node, axis: str) -> tuple[str, ...]:
    return tuple(other for other in node.axes if other != axis)
