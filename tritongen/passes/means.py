"""Rewrites means of products with two sides as divided sums, which are contractions."""

from __future__ import annotations

from dataclasses import replace

from ..lang.ir import Call, Op, Reduce, Size, Value
from ..lang.rewrite import named
from .contractions import is_product


def means_as_sums(op: Op) -> Op:
    """The operator with such means as sums divided by the number of terms; its reductions must have names."""
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
