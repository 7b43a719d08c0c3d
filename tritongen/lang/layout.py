"""The dimensions of a result whose order [outputs] does not state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..spec.types import BATCH, AxisTerm, Output, default_shape
from .ir import Load, Node, Ref, ScatterSum, Take, walk

if TYPE_CHECKING:
    from .expressions import Expressions


def dimensions(typer: Expressions, output: Output, node: Node) -> tuple[AxisTerm, ...]:
    """The dimensions in order: `...`, the axes of the input that [outputs] names (otherwise of the input with the
    most axes), then the axes of the other inputs in their order, then computed axes.

    Axes that a `take` or a `scatter_sum` introduces stand in the place of the axis that they replace. The
    groups of a named input are dimensions of the result too.
    """
    named = typer.inputs.get(output.dtype)
    first = named or max(typer.spec.inputs, key=lambda tensor: len(tensor.type.axes))
    order = [BATCH] if BATCH in node.axes else []
    brought = _brought(typer, node)
    for tensor in (first, *typer.spec.inputs):
        for axis in tensor.type.axes:
            replacing = _replacing(axis, brought, {*node.axes})
            order += [one for one in replacing if one == axis or one not in tensor.type.axes]
    order += [axis for axis in typer.axes if axis in node.axes]  # Computed axes that replace no other.
    axes = tuple(dict.fromkeys(order))
    if named is not None:
        return _grouped(axes, named.type.shape)
    return default_shape(typer.spec.inputs, axes)


def _brought(typer: Expressions, node: Node) -> dict[str, list[str]]:
    """Maps each axis to the axes that replace it: the axes of a `take`'s index, or `into` of a `scatter_sum`."""
    brought: dict[str, list[str]] = {}
    pending, seen = [node], set[str]()
    while pending:
        for inner in walk(pending.pop()):
            if isinstance(inner, Ref) and inner.name not in seen:
                seen.add(inner.name)
                pending.append(typer.values[inner.name].node)
            moved = ((axis, index.axes) for axis, index in inner.at) if isinstance(inner, Load | Take) else ()
            for axis, axes in ((axis, inner.into) for axis in inner.over) if isinstance(inner, ScatterSum) else moved:
                own = brought.setdefault(axis, [])
                own += [one for one in axes if one not in own]
    return brought


def _replacing(axis: str, brought: dict[str, list[str]], remaining: set[str]) -> Iterator[str]:
    """The axes of a result in the place of `axis`: itself, or the axes that replace it, recursively."""
    pending, seen = [axis], set[str]()
    while pending:
        one = pending.pop(0)
        if one in remaining:
            yield one
        elif one not in seen:
            pending[:0] = brought.get(one, ())
        seen.add(one)


def _grouped(axes: tuple[str, ...], shape: tuple[AxisTerm, ...]) -> tuple[AxisTerm, ...]:
    """The dimensions for `axes`, with the groups of `shape` whose axes are all among them."""
    groups = {term.names[0]: term for term in shape if {*term.names} <= {*axes}}
    inner = {name for term in groups.values() for name in term.names[1:]}
    return tuple(groups.get(axis, AxisTerm((axis,), (None,))) for axis in axes if axis not in inner)
