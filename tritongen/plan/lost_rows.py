"""Gradients of lost rows (rows without an unmasked key), which are NaN if they are computed from means."""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from ..autodiff.gradient import Gradient
from ..lang.ir import BOOL, Call, Constant, Dtype, Load, Node, Op, Value
from ..lang.names import fresh
from ..lang.rewrite import renamed_value
from ..lang.unparse import spelled
from ..lowering.tile import needed
from ..passes.structure import reads, references

FLOAT = Dtype("float")
ZERO = Constant(0.0, FLOAT)


@dataclass(frozen=True, slots=True)
class LostRows:
    """The lost rows: there `indicator` equals `number`, and gradients that read `made` (means, lse) are NaN."""

    rows: tuple[str, ...]
    indicator: Load
    number: float
    made: AbstractSet[str]

    def zero_in(self, behind: Gradient, means: Container[str], between: Container[str]) -> Gradient:
        """The gradient with 0 for lost rows in gradients by `means` and `between` that read `made`, since they are NaN
        there. Those by `between` are replaced only where they are NaN, since other streams contribute to them.

        Other values read the unchanged gradient: over no keys means are 0, and gradients as for any row.
        """
        op = behind.op
        for name, result in behind.by.items():
            value = op.value(result.output.name)
            is_lost = {*self.rows} <= {*value.node.axes} and (name in means or name in between)
            if is_lost and any(self.made & reads(one.node) for one in needed(op.values, [value.name])):
                op = self.with_zero(op, value, name in between)
        return replace(behind, op=op)

    def with_zero(self, op: Op, value: Value, keeps_scalars: bool) -> Op:
        """The operator with a value that is 0 for lost rows; with `keeps_scalars`, only where it is NaN there."""
        is_read = any(value.name in references(one.node) for one in op.values)
        if not is_read and not keeps_scalars:
            return op.of(self.chosen(one, one.node, ZERO) if one is value else one for one in op.values)
        own = replace(value, name=fresh(f"{value.name}_or_nan", op.names))
        zero = self.chosen(value, own.ref, _where_nan(own.ref, ZERO) if keeps_scalars else ZERO)
        values: list[Value] = []
        for one in op.values:
            node = renamed_value(one, {value.name: own.name}).node
            other = one if node == one.node else replace(one, node=node, source=one.source and spelled(node))
            values += (own, zero) if one is value else (other,)
        return replace(op, values=tuple(values))

    def chosen(self, value: Value, node: Node, lost: Node) -> Value:
        """The value with `lost` for lost rows and `node` for others."""
        return replace(value, node=where_equal(self.indicator, Constant(self.number, FLOAT), lost, node), source="")


def _where_nan(x: Node, then: Node) -> Call:
    """`x`, and `then` where it is NaN."""
    return Call("where", (Call("isnan", (x,), x.axes, BOOL), then, x), x.axes, x.dtype)


def where_equal(x: Node, y: Node, then: Node, other: Node) -> Call:
    """`then` where `x` equals `y`, and `other` elsewhere."""
    test = Call("eq", (x, y), x.axes, BOOL)
    return Call("where", (test, then, other), other.axes, other.dtype)
