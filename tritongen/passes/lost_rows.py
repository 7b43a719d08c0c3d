"""Makes sums of exp(s - max(s)) NaN in fully masked rows.

Kernels that stream scores subtract 0 instead of an infinite maximum, as logsumexp does, and sum up to 0 in such a row.
A quotient of two such sums, as in softmax, is NaN by itself. Other sums are set to NaN where the maximum is infinite,
as the math of exp(s - max(s)) says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..lang.ir import BOOL, Call, Cast, Constant, Node, Op, Reduce, Ref, Value, children
from ..lang.names import fresh
from ..lang.rewrite import named, replaced
from .contractions import is_product
from .exponentials import maximum_of, resolve
from .masks.scores import mask_of
from .structure import name_reductions, reached, references


def with_lost_rows(op: Op) -> Op:
    """The operator with sums of exponentials of masked scores NaN where their math says so."""
    if not any(isinstance(node, Call) and node.function == "exp" for node in op.nodes):
        return op
    named = found = name_reductions(op)
    for value in named.values:
        if isinstance(value.node, Reduce) and value.node.kind == "max" and _is_masked(found, value.node):
            found = _Lost.of(found, found.value(value.name)).written()
    return op if found is named else found


def _is_masked(op: Op, largest: Reduce) -> bool:
    """Whether a maximum is over scores from a matmul that a mask sets to -inf."""
    if mask_of(op, largest.arg, -math.inf) is None:
        return False
    return any(is_product(op, op.value(name).node) for name in reached(op.refs, references(largest), ()))


class _Seen(Exception):
    """An exponential is used other than as a factor of a sum."""


@dataclass(frozen=True, slots=True)
class _Lost:
    """The `sums` that are NaN in lost rows, and the `lines` of exponentials that they sum."""

    op: Op
    largest: Value
    sums: set[str]
    lines: set[str]

    @classmethod
    def of(cls, op: Op, largest: Value) -> _Lost:
        assert isinstance(largest.node, Reduce)
        found = cls(op, largest, set(), set())
        for value in op.values:
            node, over = value.node, largest.node.over
            if isinstance(node, Reduce) and node.kind in ("sum", "mean") and node.over == over:
                found.sums.update([value.name] if found.is_lost(node.arg) else [])
            elif found.is_lost(node):
                found.lines.add(value.name)
        return found

    def is_lost(self, node: Node) -> bool:
        """Whether a node has an exponential as a factor and is not divided by a sum of exponentials."""
        leaves = list(_product(node))
        above = any(self.is_power(leaf) for leaf, is_divisor in leaves if not is_divisor)
        return above and not any(self.is_sum(leaf) for leaf, is_divisor in leaves if is_divisor)

    def is_power(self, node: Node) -> bool:
        match node:
            case Ref(name=name):
                return name in self.lines
            case Call(function="exp", args=(Call(function="sub", args=(x, y)),)):
                return maximum_of(self.op, x, y) == self.largest and isinstance(resolve(self.op, y), Reduce)
        return False

    def is_sum(self, node: Node) -> bool:
        return isinstance(node, Ref) and node.name in self.sums

    def read(self, node: Node, is_line: bool) -> Iterator[str]:
        """The sums that a node reads, if it is not NaN anyway. Raises `_Seen`."""
        leaves = list(_product(node))
        lost = {is_divisor for leaf, is_divisor in leaves if self.is_sum(leaf) or self.is_power(leaf)}
        for leaf, _ in leaves:
            if self.is_power(leaf):
                if not is_line and len(lost) < 2:
                    raise _Seen
            elif isinstance(leaf, Ref):
                yield from (leaf.name,) if self.is_sum(leaf) and len(lost) < 2 else ()
            else:
                for child in children(leaf):
                    yield from self.read(child, False)

    def read_of(self, value: Value) -> set[str]:
        if isinstance(value.node, Reduce) and value.name in self.sums:
            return {*self.read(value.node.arg, True)}
        return {*self.read(value.node, value.name in self.lines)}

    def written(self) -> Op:
        """The operator with NaN in lost rows; unchanged if only quotients read sums, or results read exponentials."""
        results = {result.node.name for result in self.op.results if isinstance(result.node, Ref)}
        try:
            read = {value.name: self.read_of(value) for value in self.op.values}
        except _Seen:
            return self.op
        lost = (self.sums & results).union(*read.values())
        lost -= {name for name in lost if self.has_lost_divisor(name, read)}
        return self.op if not lost or self.lines & results else self.rewritten(lost)

    def has_lost_divisor(self, name: str, read: dict[str, set[str]]) -> bool:
        """Whether the terms of a sum are NaN because they read another sum that is."""
        below = references(self.op.value(name).node) & self.lines
        return bool(read[name] or any(self.has_lost_divisor(line, read) for line in below))

    def rewritten(self, lost: set[str]) -> Op:
        largest, taken = self.largest, self.op.names
        ref = largest.ref
        isinf = Call("isinf", (ref,), ref.axes, BOOL)
        node: Node = Call("where", (isinf, Constant(0.0, ref.dtype), ref), ref.axes, ref.dtype)
        shift = Value(fresh(f"{largest.name}_shift", taken), node, "")

        def below(part: Node) -> Node:
            match part:
                case Call(function="exp", args=(Call(args=(x, _)) as power,)) if self.is_power(part):
                    return replace(part, args=(replace(power, args=(x, shift.ref)),))
            return part

        values: list[Value] = []
        for value in self.op.values:
            node = replaced(value.node, below)
            if value.name in lost:
                sum = named(node, f"{value.name}_of_keys", taken, values)
                node = Call("where", (isinf, Constant(math.nan, node.dtype), sum), node.axes, node.dtype)
            values += [value.of(node), shift] if value == largest else [value.of(node)]
        return replace(self.op, values=tuple(values))


def _product(node: Node, is_divisor: bool = False) -> Iterator[tuple[Node, bool]]:
    """The factors and divisors of a node, each with whether it is a divisor."""
    match node:
        case Call(function="mul", args=args):
            for arg in args:
                yield from _product(arg, is_divisor)
        case Call(function="div", args=(above, below)):
            yield from _product(above, is_divisor)
            yield from _product(below, not is_divisor)
        case Cast(arg=arg):
            yield from _product(arg, is_divisor)
        case _:
            yield node, is_divisor
