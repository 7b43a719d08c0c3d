"""What stands around the math of kernels that stream an axis: where a program is, and its loops over blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...nest.ir import BLANK, Branch, For, Line, Nest, Positions, given, names_of, parsed
from ...nest.values import expr
from ...passes.masks.tiles import longest
from ..stream import Stream
from . import partial_sums
from .blocks import Blocks
from .spelling import operand

BLOCKS = ("BLOCK_M", "BLOCK_N", "INDEX")
_HEAD = parsed("head = (tl.program_id(0) // tiles).to(INDEX)")
_ROWS = given("rows = tile[:, None]")
_COLS = given("cols = block[None, :]")


@dataclass(frozen=True, slots=True)
class Sections:
    """What a kernel does before its loops, for each turn, ahead of the runs of blocks, for each block, and at the end;
    `partial` stores the sums of a part of the streamed axis.
    """

    casts: Nest
    setup: Nest
    turn: Nest
    ahead: Nest
    loop: Nest
    end: Nest
    partial: Nest = ()


@dataclass(frozen=True, slots=True)
class Frames:
    """The nests of the kernels, in which blocks come in the runs that `blocks` tells of."""

    stream: Stream
    blocks: Blocks

    def of_tiles(self, sections: Sections) -> Nest:
        """Programs have a tile of rows by columns each."""
        outer_loop = (For(expr("range(n_turns)"), index="turn", body=sections.turn),) if self.stream.outer_axes else ()
        return _heads_where_read(
            *sections.casts,
            parsed("tiles = tl.cdiv(n_rows, BLOCK_M)"),
            _HEAD,
            parsed("first_row = (tl.program_id(0) % tiles).to(tl.int64) * BLOCK_M"),
            Positions(expr("first_row"), name="tile", block="BLOCK_M", wide=True),
            _ROWS,
            given("row_mask = rows < n_rows"),
            parsed("first_col = second_id(tl.int64) * BLOCK_N"),
            Positions(expr("first_col"), name="block", block="BLOCK_N", wide=True),
            _COLS,
            given("col_mask = cols < n_cols"),
            given("tile_mask = row_mask & col_mask"),
            *sections.setup,
            *outer_loop,
            *sections.end,
        )

    def streaming(self, sections: Sections) -> Nest:
        """Programs have a tile of rows each, and go along the columns."""
        runs = (*sections.ahead, self.runs(sections.loop))
        if self.stream.outer_axes:
            n_turns = " * ".join(f"size_{axis.lower()}" for axis in self.stream.outer_axes)
            runs = (For(expr(f"range({n_turns})"), index="turn", body=(*sections.turn, *runs)),)
        is_split, end = "partial_ptr is not None", sections.end
        split = (
            (Branch(expr(is_split), body=(parsed("bounds = split_blocks(bounds, BLOCK_N)"),)),)
            if sections.partial
            else ()
        )
        if sections.partial:
            end = (Branch(expr(is_split), body=(*self.partial_rows, *sections.partial), other=end),)
        mask = given("row_mask = rows < n_rows")
        setup = (*sections.casts, *self.tile(sections.setup), _ROWS, mask, *sections.setup)
        return _heads_where_read(*setup, *split, *runs, BLANK, *end)

    def tile(self, setup: Nest) -> Nest:
        """The rows of a program, and the first of them where the setup reads it."""
        which, order = "tl.program_id(0) % tiles", ""
        if most := longest(self.blocks.tiles):
            order = f"The {most} {self.stream.rows} first: under the mask they have the most blocks."
            which = f"tiles - 1 - {which}" if most == "last" else which
        if group := self.stream.group:
            name, size = f"i_{group.lower()}", f"size_{group.lower()}"
            rows = f"rows_of_group({which}, n_rows, {size}, BLOCK_M, PACK_HEADS, INDEX)"
            tiles = parsed(f"tiles = tiles_of_group(n_rows, {size}, BLOCK_M, PACK_HEADS)")
            first_row = "first_row" if "first_row" in names_of(setup) else "_"
            return (tiles, _HEAD, parsed(f"{name}, {first_row}, tile = {rows}", order))
        first = parsed(f"first_row = ({which}).to(tl.int64) * BLOCK_M", order)
        tile = Positions(expr("first_row"), name="tile", block="BLOCK_M", wide=True)
        return (parsed("tiles = tl.cdiv(n_rows, BLOCK_M)"), _HEAD, first, tile)

    def runs(self, loop: Nest) -> For:
        """The runs of blocks, one after the other."""
        names = self.blocks.runs
        is_masked = f"run != {names.index('full')}"
        span = "range(bounds[run], bounds[run + 1], BLOCK_N)"
        counted = (parsed("start = counted_block(count, cycle, BLOCK_N)"),) if self.blocks.cycle else ()
        body = (
            *counted,
            Positions(expr("start"), name="block", block="BLOCK_N", wide=True),
            _COLS,
            given(f"col_mask = cols < n_cols if {is_masked} else True"),
            given(f"tile_mask = row_mask & (cols < n_cols) if {is_masked} else row_mask"),
            *loop,
        )
        inside: Nest = (For(expr(span), index="count" if counted else "start", body=body),)
        if "skipped" in names:
            inside = (Branch(expr(f"run != {names.index('skipped')}"), body=inside),)
        return For(expr(f"tl.static_range({len(names)})"), index="run", body=inside)

    @property
    def partial_rows(self) -> Nest:
        """Where the partial sums of rows are."""
        said = "Partial sums [n_splits, heads, rows, ...]."
        head = parsed("split_head = tl.program_id(1) * (tl.num_programs(0) // tiles) + head", said)
        if group := self.stream.group:
            in_group = parsed(f"split_head = split_head * size_{group.lower()} + i_{group.lower()}")
        return (
            head,
            *([in_group] if group else []),
            parsed(f"partial = partial_ptr + (split_head * n_rows + rows) * {self.partial_length}"),
        )

    @property
    def partial_length(self) -> str:
        return operand(partial_sums.length(self.stream, partial_sums.in_kernel))

    def reduction(self, sections: Sections) -> Nest:
        """Programs merge the partial sums of a row each."""
        group = self.stream.group
        in_group = (
            parsed(f"i_{group.lower()} = head % size_{group.lower()}"),
            parsed(f"head = head // size_{group.lower()}"),
        )
        at = "(splits * tl.num_programs(0) + tl.program_id(0))"
        body = (
            parsed("splits = first + tl.arange(0, BLOCK_SPLITS)[:, None]"),
            parsed(f"partial = partial_ptr + {at} * {self.partial_length}"),
            parsed("split_mask = splits < n_splits"),
            *sections.loop,
        )
        return _heads_where_read(
            *sections.casts,
            parsed("head = (tl.program_id(0) // n_rows).to(INDEX)"),
            *(in_group if group else ()),
            Positions(expr("tl.program_id(0) % n_rows"), name="tile", block="1", wide=True),
            _ROWS,
            *sections.setup,
            For(expr("range(0, n_splits, BLOCK_SPLITS)"), index="first", body=body),
            *sections.end,
        )


def _heads_where_read(*nest: Any) -> Nest:
    """A nest without the index of heads where nothing reads it: there is one head."""
    rest = tuple(one for one in nest if not (isinstance(one, Line) and "head" in one.targets))
    return nest if "head" in names_of(rest) else rest
