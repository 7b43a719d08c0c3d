"""What sums of a streaming kernel multiply, and exponentials below the largest score so far (online softmax)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...lang.ir import Call, Constant, Load, Node, Op, Reduce, Ref, Value, children, walk
from ...lang.names import fresh
from ...lang.rewrite import rebuild, replaced
from ...lowering.tile import needed
from ...passes.contractions import applied
from ...passes.divided_powers import divisor_of, power_below
from ...passes.exponentials import maximum_of, resolve
from ...passes.masks.scores import Mask, mask_of
from ...passes.masks.tiles import conjuncts
from ...passes.structure import references
from ..stream import unless_zero


class Factors:
    """Factors products of an operator whose exponentials are below the `largest`, if there is one."""

    op: Op
    streamed: str
    largest: str

    def streams(self, node: Node) -> bool:
        return self.streamed in node.axes

    def needed(self, nodes: Iterable[Node]) -> list[str]:
        """The values that some nodes are made of, in order."""
        return [value.name for value in needed(self.op.values, set().union(*map(references, nodes)))]

    def is_summed(self, node: Node) -> bool:
        """Whether a node is made of something that is reduced along the streamed axis."""
        below = (part for name in self.needed([node]) for part in walk(self.op.value(name).node))
        return any(isinstance(part, Reduce) and self.streamed in part.over for part in below)

    def factors(self, node: Node) -> Iterator[tuple[Node, bool]]:
        """What a node multiplies and divides by. A line whose factors all stream, and are no matrices, stays a line."""
        match node:
            case Call(function="mul", args=args):
                for arg in args:
                    yield from self.factors(arg)
            case Call(function="div", args=(above, below)) if not self.streams(below):
                yield from self.factors(above)
                yield below, True
            case Call(function="div", args=(above, below)) if not isinstance(above, Constant):
                yield from self.factors(above)
                yield applied("div", Constant(1.0, above.dtype), below), False
            case Call(function="where") if (chosen := self.chosen_of_means(node)) is not None:
                yield from self.chosen_factors(chosen, node)
            case Ref(name=name):
                found = list(self.factors(self.op.value(name).node))
                separate = any(not self.streams(factor) or isinstance(factor, Load) for factor, _ in found)
                yield from found if separate and len(found) > 1 else [(node, False)]
            case _:
                yield node, False

    def chosen_factors(self, chosen: Mask, node: Node) -> Iterator[tuple[Node, bool]]:
        """What a choice of a product or 0 multiplies and divides by."""
        conditions, mask = self.conditions(chosen.condition), self.mask()
        is_masked = mask is not None and mask <= conditions
        of_rows = [] if is_masked else sorted((c for c in conditions if not self.streams(c)), key=repr)
        for factor, is_divisor in self.factors(chosen.score):
            is_sum = is_divisor and self.is_summed(factor)
            is_zero = is_sum and (is_masked or of_rows)
            yield unless_zero(factor, of_rows) if is_zero else factor, is_divisor
        if conditions != mask:
            constants = (Constant(number, node.dtype) for number in (1.0, 0.0))
            yield Call("where", (chosen.condition, *constants), chosen.condition.axes, node.dtype), False

    def chosen_of_means(self, node: Node) -> Mask | None:
        """What is chosen, or else 0, and has a sum along the streamed axis as a factor, as what dropout leaves has.

        Fully masked rows, whose sums are 0, are 0 and not NaN where what is masked is not chosen.
        """
        found = mask_of(self.op, node, 0.0) if self.largest else None
        if found is None or not self.streams(found.condition):
            return None
        factors = list(self.factors(found.score))
        sums = [is_divisor for factor, is_divisor in factors if not self.streams(factor) and self.is_summed(factor)]
        mask = self.mask()
        is_guarded = all(sums) or mask is None or not mask <= self.conditions(found.condition)
        return found if sums and is_guarded and len(sums) < len(factors) else None

    def mask(self) -> set[Node] | None:
        """The conditions outside of which scores are masked."""
        largest = self.op.value(self.largest).node
        assert isinstance(largest, Reduce)
        mask = mask_of(self.op, largest.arg, float("-inf"))
        return None if mask is None else self.conditions(mask.condition)

    def conditions(self, condition: Node) -> set[Node]:
        return {resolve(self.op, part) for part in conjuncts(self.op, condition)}


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
