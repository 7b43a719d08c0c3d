"""Gradients of rows without keys, for which what is made of means is NaN."""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from ..autodiff.gradient import Gradient
from ..lang.ir import BOOL, Call, Constant, Load, Node, Ref, Value
from ..lang.names import fresh
from ..lowering.tile import needed
from ..passes.structure import reads
from .means_of_rows import FLOAT, where_equal

ZERO = Constant(0.0, FLOAT)


@dataclass(frozen=True, slots=True)
class LostRows:
    """The `rows` without keys, where `told` is a `number`; of means, `made` is NaN there."""

    rows: tuple[str, ...]
    told: Load
    number: float
    made: AbstractSet[str]

    def zero_in(self, behind: Gradient, means: Container[str], between: Container[str]) -> Gradient:
        """The gradient, of which those by means, and by what other streams give, are 0 for such rows where they are
        made of means: they are NaN there; if they are not, such rows go on with what other streams give.
        """
        op = behind.op
        for name, result in zip(behind.wrt, op.results, strict=True):
            value = op.value(result.output.name)
            is_lost = {*self.rows} <= {*value.node.axes} and (name in means or name in between)
            if is_lost and any(self.made & reads(one.node) for one in needed(op.values, [value.name])):
                own = self.number_or_zero(value, op.names) if name in between else self.zero(value)
                place = op.values.index(value)
                op = replace(op, values=(*op.values[:place], *own, *op.values[place + 1 :]))
        return replace(behind, op=op)

    def zero(self, value: Value) -> tuple[Value]:
        """The value, 0 for such rows."""
        return (self.chosen(value, value.node, ZERO),)

    def number_or_zero(self, value: Value, taken: set[str]) -> tuple[Value, Value]:
        """The value, 0 instead of NaN for such rows, behind one that has both."""
        own = replace(value, name=fresh(f"{value.name}_or_nan", taken))
        ref = Ref(own.name, own.node.axes, own.node.dtype)
        return own, self.chosen(value, ref, _where_nan(ref, ZERO))

    def chosen(self, value: Value, node: Node, lost: Node) -> Value:
        """The value, which is a node, and another for such rows."""
        return replace(value, node=where_equal(self.told, Constant(self.number, FLOAT), lost, node), source="")


def _where_nan(x: Node, then: Node) -> Call:
    """A node, and another where it is NaN."""
    return Call("where", (Call("isnan", (x,), x.axes, BOOL), then, x), x.axes, x.dtype)
