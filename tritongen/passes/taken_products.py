"""Products with rows that are taken by position, as what is taken of the product with all rows.

With r an expression of positions along M and N, `sum(q * take(w, r, R), D)` is `take(sum(q * w, D), r, R)`: a matmul
and a look-up for each score, where a row of w for each score would be stored otherwise. Relative positions of keys are
written so (Shaw et al., 2018; Transformer-XL).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from functools import reduce
from itertools import chain, filterfalse

from ..lang.ir import Load, Node, Op, Reduce, Ref, ScatterSum, Take, Value
from ..lang.names import fresh
from .contractions import is_product, times
from .epilogues import below
from .factors import factors_of


def products_before_takes(op: Op) -> Op:
    """The operator, whose reductions have names, with such products by values of their own."""
    values: list[Value] = []
    taken = op.names
    for value in op.values:
        node = value.node
        if op.fuse and isinstance(node, Reduce) and node.kind == "sum" and node.dtype.kind == "float":
            values += _product_first(op, value, node, taken)
        else:
            values.append(value)
    return replace(op, values=tuple(values))


def _product_first(op: Op, value: Value, node: Reduce, taken: set[str]) -> list[Value]:
    """The product with all rows, and what is taken of it; the value as it is where no rows are taken by position."""
    factors = factors_of(op, node.arg, node.over, False)
    others = [factor for factor in factors if not _is_by_position(op, factor)]
    rows = [factor for factor in factors if factor not in others]
    if len(rows) != 1 or not others:
        return [value]
    table, at = _operands(op, rows[0])
    inside = [factor for factor in others if {*factor.axes} & {*node.over}]
    by = {*chain.from_iterable(factor.axes for factor in inside)}
    positions = {*chain.from_iterable(index.axes for _, index in at)}
    if not _lies_separate(positions, dict(at).keys(), by, {*node.over}) or not {*node.over} <= {*table.axes} & by:
        return [value]
    arg = reduce(times, [*inside, table])
    product = replace(node, arg=arg, axes=tuple(axis for axis in arg.axes if axis not in node.over))
    if not is_product(op, product):
        return [value]
    name = fresh(f"{value.name}_all", taken)
    axes = tuple(axis for axis in op.axes if axis in positions | {*product.axes} - dict(at).keys())
    found = Take(Ref(name, product.axes, product.dtype), at, axes, product.dtype)
    outside = filterfalse(inside.__contains__, others)
    return [Value(name, product, ""), replace(value, node=reduce(times, [found, *outside]))]


def _lies_separate(positions: Set[str], taken_along: Set[str], by: Set[str], over: Set[str]) -> bool:
    """Whether rows are taken by positions along axes of the other factors, and of their own besides.

    Positions along a summed axis differ by term, and other factors go along the axes that rows are taken of.
    """
    return bool(positions - by and positions & by) and not positions & over and not taken_along & by


def _operands(op: Op, row: Node) -> tuple[Node, tuple[tuple[str, Node], ...]]:
    """The tensor that rows are gathered from, and where."""
    if isinstance(row, Take):
        return row.arg, row.at
    assert isinstance(row, Load)
    return replace(row, axes=op.input(row.name).type.axes, at=()), row.at


def _is_by_position(op: Op, node: Node) -> bool:
    """Whether rows are taken where nothing but positions along several axes tells."""
    at = node.at if isinstance(node, Load | Take) else ()
    if not at or len({axis for _, index in at for axis in index.axes}) < 2:
        return False
    inside = (part for _, index in at for part in below(op, index))
    return not any(isinstance(part, Load | Take | Reduce | ScatterSum) for part in inside)
