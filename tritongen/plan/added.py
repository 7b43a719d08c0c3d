"""Gradients to which others of the same inputs are added, that other steps have computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..autodiff.gradient import Gradient
from ..lang.ir import Node, Value
from ..lang.names import fresh
from ..lang.rewrite import renamed_values
from ..lang.unparse import spelled
from ..passes.contractions import applied
from ..passes.structure import references
from ..spec.types import Input
from .means_of_rows import load


def added(gradient: Gradient, others: Mapping[str, Input]) -> Gradient:
    """The gradient, with others of the same inputs added to it."""
    op = gradient.op
    own = {r.output.name: others[name] for name, r in zip(gradient.wrt, op.results, strict=True) if name in others}
    taken = op.names
    read = {name for value in op.values for name in references(value.node)}
    op = renamed_values(op, {name: fresh(f"{name}_alone", taken) for name in own if name in read})
    values: list[Value] = []
    for value, name in zip(op.values, (value.name for value in gradient.op.values), strict=True):
        if name not in own:
            values.append(value)
            continue
        alone: Node = value.node
        if value.name != name:
            values.append(value)
            alone = value.ref
        node = applied("add", alone, load(own[name].name, own[name].type.axes))
        values.append(Value(name, node, spelled(node)))
    nodes = {value.name: value.node for value in values if value.name in own}
    results = tuple(
        replace(
            one,
            node=replace(one.node, axes=nodes[one.output.name].axes),
            vanishes=one.vanishes and own[one.output.name].vanishes,
        )
        if one.output.name in nodes
        else one
        for one in op.results
    )
    inputs = tuple({tensor.name: tensor for tensor in (*own.values(), *op.inputs)}.values())
    return replace(gradient, op=replace(op, inputs=inputs, values=tuple(values), results=results))
