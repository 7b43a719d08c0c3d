"""Means of products with two sides, rewritten as sums that are divided, which are contractions."""

from __future__ import annotations

from dataclasses import replace

from ..lang.ir import Call, Op, Reduce, Ref, Size, Value
from ..lang.names import fresh
from .contractions import is_product


def means_as_sums(op: Op) -> Op:
    """The operator, whose reductions have names, with such means divided by the number of what is summed."""
    values: list[Value] = []
    taken = op.names
    for value in op.values:
        node = value.node
        if isinstance(node, Reduce) and node.kind == "mean" and is_product(op, replace(node, kind="sum")):
            name = fresh(f"{value.name}_sum", taken)
            values.append(Value(name, replace(node, kind="sum"), ""))
            total = Ref(name, node.axes, node.dtype)
            value = replace(value, node=Call("div", (total, Size(node.over)), node.axes, node.dtype))
        values.append(value)
    return op.of(values)
