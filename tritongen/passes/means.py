"""Means of products with two sides, rewritten as sums that are divided, which are contractions."""

from __future__ import annotations

from dataclasses import replace

from ..lang.ir import Call, Op, Reduce, Size, Value
from ..lang.rewrite import named
from .contractions import is_product


def means_as_sums(op: Op) -> Op:
    """The operator, whose reductions have names, with such means divided by the number of what is summed."""
    if not any(isinstance(value.node, Reduce) and value.node.kind == "mean" for value in op.values):
        return op
    values: list[Value] = []
    taken = op.names
    for value in op.values:
        node = value.node
        if isinstance(node, Reduce) and node.kind == "mean" and is_product(op, replace(node, kind="sum")):
            total = named(replace(node, kind="sum"), f"{value.name}_sum", taken, values)
            value = replace(value, node=Call("div", (total, Size(node.over)), node.axes, node.dtype))
        values.append(value)
    return op.of(values)
