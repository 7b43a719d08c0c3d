"""Ranges of blocks, as a kernel spells them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from ...lang.ir import Load, Node
from ...nest.ir import Accumulate, For, Let, Line, names_of, said
from ...nest.values import Expr, V, expr, product, runtime, tl, total
from ...passes.masks.expressions import Apply, Expression, Extreme, First, Last, Number, Sum, Value
from ...passes.masks.tiles import Range, Tiles
from .blocks import Blocks, extremes_of

ZERO = expr(0)
# How a kernel spells the functions of `Apply`.
APPLIED: Mapping[str, Callable[..., Expr]] = {
    "held": runtime.hold,
    "floor_divide": runtime.floor_divide_int,
    "mul": product,
    "minimum": lambda *args: reduce(tl.minimum, args),
    "maximum": lambda *args: reduce(tl.maximum, args),
    "where": tl.where,
    "ge": operator.ge,
    "gt": operator.gt,
    "and": lambda *args: reduce(operator.and_, args),
    "or": lambda *args: reduce(operator.or_, args),
    "not": operator.invert,
}


@dataclass(frozen=True, slots=True)
class Spelling:
    """Writes the lines of the ranges of `blocks`, with a kernel's expressions for values, the first row and functions.

    With pages, the last row is clamped to the last of the tensor instead of a full tile after the first.
    """

    blocks: Blocks
    value: Callable[[Node], Expr]
    first_row: Expr = V.first_row
    applied: Mapping[str, Callable[..., Expr]] | None = None

    def of(self, expression: Expression) -> Expr:
        """An expression in int64: a sum begins with positions of the tile, which are int64."""
        match expression:
            case Number(value=number):
                return expr(number)
            case First(axis=axis):
                return self.first_row if axis == self.blocks.rows else V.starts
            case Last(axis=axis):
                return total(*self.last(axis))
            case Extreme(kind=kind, node=Load(name=name)):
                return V[f"{name}_{kind}"]
            case Value(node=node):
                return self.value(node)
            case Sum():
                return self.sum(expression)
            case Apply(function=function, args=args):
                return (self.applied or APPLIED)[function](*map(self.of, args))
        raise AssertionError(f"nothing spells {expression}")

    def last(self, axis: str) -> tuple[Expr, ...]:
        """The terms of the last position of a tile."""
        if axis != self.blocks.rows:
            return V.starts, V.BLOCK_N - 1
        return (V.last_row,) if self.blocks.is_paged else (V.first_row, V.BLOCK_M - 1)

    def sum(self, expression: Sum) -> Expr:
        constant, terms = expression.constant, list[tuple[Expr, int]]()
        for term, factor in expression.terms:
            values = self.last(term.axis) if isinstance(term, Last) and factor == 1 else (self.of(term),)
            if constant > 0 and values == (V.first_row, V.BLOCK_M - 1):  # One beyond the last is a block on.
                values, constant = (V.first_row, V.BLOCK_M), constant - 1
            terms += [(value, factor) for value in values]
        (first, factor), *others = terms
        found = first if factor == 1 else -first if factor == -1 else factor * first
        for value, factor in [*others, *([(expr(1), constant)] if constant else [])]:
            times = expr(abs(factor)) if value == expr(1) else value if abs(factor) == 1 else abs(factor) * value
            found = found + times if factor > 0 else found - times
        return found

    def ends_of(self, found: Range) -> tuple[Expr, Expr]:
        return self.of(found.first), self.of(found.last)

    def limits(self, index: str) -> list[Line]:
        """The lines of the range of positions that each row of the tile needs."""
        assert self.blocks.limits is not None
        first, last = replace(self, first_row=V.rows.to("tl.int64")).ends_of(self.blocks.limits)
        lines = [Let("row_end", tl.maximum(last, 0).to(index))]
        if first != ZERO:
            lines.insert(0, Let("row_begin", tl.minimum(first, V.n_cols).to(index)))
        return said(f"Visible columns of a row: [{lines[0].name if lines[1:] else 0}, row_end).", lines)

    def bounds(self, integers: Callable[[Load, str], Expr]) -> list[Line]:
        """The lines of the bounds of the runs of blocks, and of the values that these depend on.

        `integers` spells compared integers of the tile, at `tile_met`, or of blocks, at `cols_met`.
        """
        if self.blocks.tiles is None:
            full = expr((0, V.n_cols // V.BLOCK_N * V.BLOCK_N, V.n_cols))
            return [Let("bounds", full, comment="Full blocks need no mask.")]
        ends, met = list[Line](), list[Line]()
        if self.blocks.is_paged:
            ends = self.ends(self.blocks.tiles)
        if self.blocks.compared:
            met = self.met(self.blocks.tiles, integers)
        return [*ends, *met, *self.runs(self.blocks.tiles)]

    def ends(self, tiles: Tiles) -> list[Line]:
        """The lines of the first and last position of the paged range that rows of the tile need."""
        some = zip(self.blocks.ends, self.ends_of(tiles.some), strict=True)
        lines = [Let(name.text, end) for name, end in some if name != ZERO]
        if "last_row" in names_of(lines):
            lines.insert(0, Let("last_row", tl.minimum(V.first_row + V.BLOCK_M, V.n_rows) - 1))
        return said("Pages without an unmasked position are not loaded.", lines)

    def runs(self, tiles: Tiles) -> list[Line]:
        """The lines that tell the bounds of the runs."""
        blocks = self.blocks
        first, last = blocks.ends if blocks.is_paged else self.ends_of(tiles.some)
        first_full, last_full = self.ends_of(tiles.every)
        if blocks.compared:
            first, last = tl.min(V.first_met, 0), tl.minimum(tl.max(V.last_met, 0), V.end)
            if blocks.finds_full:
                first_full = V.first_full if first_full == ZERO else tl.maximum(first_full, V.first_full)
            last_full = tl.minimum(last_full, V.last_full) if blocks.finds_full else last_full
        if len(blocks.runs) > 2:
            found = runtime.blocks_between(first, first_full, last_full, last, V.BLOCK_N)
        else:
            found = runtime.blocks_from_start(last_full, last, V.BLOCK_N)
        says = "Fully masked blocks are skipped; fully visible ones need no mask."
        lines: list[Line] = [Let("bounds", found, comment=says)]
        if blocks.gap is not None:
            lines.append(Let("bounds", runtime.blocks_around(V.bounds, *self.ends_of(blocks.gap), V.BLOCK_N)))
        return lines

    @property
    def meets(self) -> Expr:
        """Whether the tile needs a block from `first_col` on: where there are masks."""
        assert self.blocks.tiles is not None
        first, last = self.ends_of(self.blocks.tiles.some)
        before = V.first_col < last
        return before if first == ZERO else before & (V.first_col + V.BLOCK_N > first)

    def met(self, tiles: Tiles, integers: Callable[[Load, str], Expr]) -> list[Line]:
        """The lines that find the first and the last block that may have an unmasked element for the tile.

        They look at 32 at a time.
        """
        blocks = self.blocks
        first, last = blocks.ends if blocks.is_paged else self.ends_of(tiles.some)
        begin = first if first == ZERO else first // V.BLOCK_N * V.BLOCK_N
        lines = self.extremes(tiles, blocks.rows, integers)
        if lines:
            lines.insert(0, Let("tile_met", tl.minimum(V.tile, V.n_rows - 1)))
        if not blocks.is_paged:
            lines.append(Let("end", tl.full((), last, "tl.int64")))
        lines.append(Let("first_met", tl.full([32], V.end, "tl.int64")))
        lines.append(Let("last_met", tl.zeros([32], "tl.int64")))
        cols = tl.minimum(V.starts[:, None] + tl.arange(0, V.BLOCK_N)[None, :], V.n_cols - 1)
        inner = [
            Let("starts", V.start + tl.arange(0, 32) * V.BLOCK_N),
            Let("cols_met", cols.to("INDEX")),
            *self.extremes(tiles, blocks.streamed, integers),
            Let("empty", self.of(tiles.empty)),
            Let("first_met", tl.minimum(V.first_met, tl.where(V.empty, V.end, V.starts))),
            Let("last_met", tl.maximum(V.last_met, tl.where(V.empty, 0, V.starts + V.BLOCK_N))),
        ]
        if not blocks.finds_full:
            lines.append(_through(begin, inner))
        else:
            says = "Blocks between the first and the last full one need no mask if all of them are full."
            are_full = tl.sum(V.in_full, 0).equals(V.last_full - V.first_full)
            lines += [
                Let("first_full, last_full", expr((V.first_met, V.last_met))),
                Let("in_full", tl.zeros([32], "tl.int64")),
                _through(
                    begin,
                    [
                        *inner,
                        Let("full", self.of(tiles.full)),
                        Let("first_full", tl.minimum(V.first_full, tl.where(V.full, V.starts, V.end))),
                        Let("last_full", tl.maximum(V.last_full, tl.where(V.full, V.starts + V.BLOCK_N, 0))),
                        Accumulate("in_full", "+", tl.where(V.full, V.BLOCK_N, 0)),
                    ],
                ),
                Let("first_full, last_full", expr((tl.min(V.first_full, 0), tl.max(V.last_full, 0)))),
                Let("last_full", tl.where(are_full, V.last_full, 0), comment=says),
            ]
        return said("Blocks are needed from the first to the last with an unmasked element.", lines)

    def extremes(self, tiles: Tiles, axis: str, integers: Callable[[Load, str], Expr]) -> list[Line]:
        """The minimum and maximum of the integers along an axis: of the tile, or of each block."""
        over = 0 if axis == self.blocks.rows else 1
        named = {(extreme.node, extreme.kind) for extreme in extremes_of(tiles.empty, tiles.full)}
        lines: list[Line] = []
        for load in (load for load, along in self.blocks.compared if along == axis):
            met = f"{load.name}_met"
            kinds = [kind for kind in ("min", "max") if (load, kind) in named]
            lines.append(Let(met, integers(load, axis)))
            lines += [Let(f"{load.name}_{kind}", tl[kind](met, over).to("tl.int64")) for kind in kinds]
        return lines


def _through(first: Expr, body: list[Line]) -> For:
    """A loop through all blocks that may be needed."""
    return For(runtime.range(first, V.end, 32 * V.BLOCK_N), index="start", body=(*body,))
