"""Distinguishes axes of positions, along which kernels stream, from axes of heads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..lang.ir import Call, Index, Load, Node, Op
from ..spec.types import BATCH
from .structure import below

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "sub")


def by_likelihood(op: Op, axes: Iterable[str]) -> list[str]:
    """`axes` sorted by how likely they are positions: those whose indices are compared first, then those alone in their
    dimension, then those without a fixed length, then the later ones.
    """
    axes = list(axes)
    compared = _compared(op) if len(axes) > 1 else set()

    def likely(axis: str) -> tuple[bool, bool, bool, int]:
        grouped = any(axis in term.names and len(term.names) > 1 for t in op.inputs for term in t.type.shape)
        return axis in compared, not grouped, axis not in dict(op.sizes), op.axes.index(axis)

    return sorted(axes, key=likely, reverse=True)


def _compared(op: Op) -> set[str]:
    """The axes whose positions, or integer inputs along them, are compared with those along another axis."""
    found: set[str] = set()
    for node in op.nodes:
        match node:
            case Call(function=function, args=(left, right)) if function in COMPARISONS:
                one, other = ({*_along(op, side)} for side in (left, right))
                pairs = ((mine, yours) for kind, mine in one for other_kind, yours in other if kind == other_kind)
                for pair in pairs:
                    if pair[0] not in right.axes and pair[1] not in left.axes:
                        found.update(pair)
    return found


def _along(op: Op, node: Node) -> Iterator[tuple[type[Node], str]]:
    """The axes of positions (`Index`) and of integer inputs (`Load`) that a node is computed from."""
    for inner in below(op, node):
        match inner:
            case Index(axis=axis):
                yield Index, axis
            case Load(axes=axes) if inner.dtype.kind == "int":
                yield from ((Load, axis) for axis in axes if axis != BATCH)
