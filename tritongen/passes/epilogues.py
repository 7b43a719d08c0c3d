"""Reductions in the epilogue of a contraction: full rows, groups of adjacent columns, or strips."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable

from ..diagnostics.report import Mistake, Mistakes
from ..lang.ir import Node, Op, Reduce, Ref, Value
from .structure import below, line_of

WIDEST = 256  # columns that one tile holds, so that it can reduce them
WIDEST_GROUP = 128  # columns of a group, over all sums of a tile: each half of a tile has full groups
# Sizes of strips: every tile is an integer number of strips. A warp holds 16 rows of a matmul's result.
STRIP_ROWS, STRIP_COLS = 16, 64


def groups_of(op: Op, names: tuple[str, ...], inside: Iterable[str], cols: tuple[str, ...]) -> tuple[str, ...]:
    """The last of `cols`, in their order, if all reductions of the products `names` are over exactly these columns.

    () if not, or if tiles do not have full groups: their length has to be a power of two that the spec fixes. Also ()
    if an input in `inside`, read by the operands, has only some of `cols`, or has them in another order.
    """
    nodes = [value.node for value in op.values if isinstance(value.node, Reduce) and value.name not in names]
    reduced = {axis for node in nodes for axis in node.over}
    last = cols[len(cols) - len(reduced) :]
    width = math.prod(dict(op.sizes).get(axis, 0) for axis in last)
    fits = 1 < width <= WIDEST_GROUP // len(names) and width & (width - 1) == 0 and len(last) < len(cols)
    if not fits or any(set(node.over) != set(last) or not _is_grouped(op, node, names) for node in nodes):
        return ()
    found = [tuple(axis for axis in op.input(name).type.axes if axis in cols) for name in inside]
    return last if all(axes in ((), cols) for axes in found) else ()


def _is_grouped(op: Op, node: Reduce, names: Container[str]) -> bool:
    """Whether `node` reduces each group of a result of the products to one value."""
    return follows(op, node, names) and not node.strips and node.kind not in ("argmax", "argmin")


def follows(op: Op, node: Node, names: Container[str]) -> bool:
    return any(isinstance(inner, Ref) and inner.name in names for inner in below(op, node))


def check_reductions(op: Op, names: tuple[str, ...], rows: frozenset[str], cols: frozenset[str]) -> None:
    """Refuse reductions other than the products, except over full rows that fit in a tile, and over strips."""
    for value in op.values:
        if isinstance(value.node, Reduce) and value.name not in names:
            if value.node.strips:
                _check_strips(op, value, rows, cols, follows(op, value.node, names))
            else:
                _check_row(op, value, cols, follows(op, value.node, names))


def _check_row(op: Op, value: Value, cols: frozenset[str], is_after: bool) -> None:
    """Refuse a reduction, unless it is of the product's result over full rows that fit in a tile, and no variance."""
    assert isinstance(value.node, Reduce)
    sizes = dict(op.sizes)
    width = math.prod(sizes.get(axis, WIDEST + 1) for axis in cols)
    over = ", ".join(value.node.over)
    if not is_after:
        hint = "reduce in a spec of its own, whose result is an input here"
        raise refused(op, value.name, f"reduces an input over {over} beside a contraction", hint)
    if set(value.node.over) != cols:
        columns = ", ".join(axis for axis in op.axes if axis in cols)
        hint = (
            f"reduce over {over} in a spec of its own: this one could reduce whole rows of the result, over {columns}"
        )
        raise refused(op, value.name, f"reduces a contraction over {over}", hint)
    if width > WIDEST:
        long = next(axis for axis in op.axes if axis in cols and axis not in sizes) if cols - sizes.keys() else ""
        hint = "reduce in a spec of its own"
        hint += f", or fix the length, as in {long}=64: rows are of up to {WIDEST} elements" if long else ""
        raise refused(op, value.name, f"reduces a contraction over {over}, more than may fit in a tile", hint)
    if value.node.kind == "var":
        raise refused(op, value.name, "takes the variance of a contraction", "write a spec for each")


def _check_strips(op: Op, value: Value, rows: frozenset[str], cols: frozenset[str], is_after: bool) -> None:
    """Refuse a reduction by strips, unless it is of the product's result over all rows or all columns of a tile."""
    assert isinstance(value.node, Reduce)
    over = value.node.over
    reduced = {STRIP_ROWS: rows, STRIP_COLS: cols}[op.strips_along(value.node.strips).width]
    fits = set(over) == reduced and rows | cols <= set(value.node.arg.axes)
    if not is_after or not fits:
        what = f"reduces strips of {', '.join(over)} beside a contraction"
        raise refused(op, value.name, what, "reduce in a spec of its own")


def refused(op: Op, name: str, found: str, hint: str) -> Mistakes:
    line = line_of(op, op.value(name))
    return Mistakes(
        Mistake("TG601", f"{line} {found}, which no kernel of a contraction does", ("compute", line), hint=hint)
    )
