"""Results that are views of inputs along renamed axes: `take(x, index(M2), M)` where M2 is as long as M."""

from __future__ import annotations

from ..lang.ir import Index, Load, Op, Ref


def renamed(op: Op) -> tuple[str, dict[str, str]] | None:
    """The input that is an operator's only result, and the new names of its axes; None if it computes more."""
    if len(op.results) != 1:
        return None
    node = op.results[0].node
    while isinstance(node, Ref):
        node = op.value(node.name).node
    if not isinstance(node, Load) or not node.at or op.input(node.name).default is not None:
        return None
    names = {axis: at.axis for axis, at in node.at if isinstance(at, Index) and op.is_as_long(axis, at.axis)}
    axes = [names.get(axis, axis) for axis in op.input(node.name).type.axes]
    is_plain = len(names) == len(node.at) and len({*axes}) == len(axes)
    return (node.name, names) if is_plain and {*axes} == {*op.results[0].axes} else None
