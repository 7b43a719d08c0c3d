"""What stands around the math of kernels that stream an axis: where a program is, and its loops over blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...lowering.positions import ROW_MASK, TILE
from ...nest.ir import BLANK, Branch, For, Given, Let, Line, Nest, Positions, names_of
from ...nest.values import Expr, V, either, product, runtime, tl
from ...passes.masks.tiles import longest
from ..stream import Stream
from . import partial_sums
from .blocks import Blocks

BLOCKS = ("BLOCK_M", "BLOCK_N", "INDEX")
_PROGRAM = tl.program_id(0)
_HEAD = Let("head", (_PROGRAM // V.tiles).to("INDEX"))
_TILES = Let("tiles", tl.cdiv(V.n_rows, V.BLOCK_M))
_ROWS = Given("rows", V.tile[:, None])
_COLS = Given("cols", V.block[None, :])


@dataclass(slots=True)
class Sections:
    """What a kernel does before its loops, for each turn, ahead of the runs of blocks, for each block, and at the end;
    `partial` stores the sums of a part of the streamed axis.
    """

    setup: list[Any] = field(default_factory=list)
    bounds: list[Any] = field(default_factory=list)
    turn: list[Any] = field(default_factory=list)
    ahead: list[Any] = field(default_factory=list)
    loop: list[Any] = field(default_factory=list)
    end: list[Any] = field(default_factory=list)
    casts: Nest = ()
    partial: Nest = ()


@dataclass(frozen=True, slots=True)
class Frames:
    """The nests of the kernels, in which blocks come in the runs that `blocks` tells of."""

    stream: Stream
    blocks: Blocks

    def of_tiles(self, sections: Sections) -> Nest:
        """Programs have a tile of rows by columns each."""
        outer_loop = (
            (For(runtime.range(V.n_turns), index="turn", body=(*sections.turn,)),) if self.stream.outer_axes else ()
        )
        return _heads_where_read(
            *sections.casts,
            _TILES,
            _HEAD,
            Let("first_row", (_PROGRAM % V.tiles).to("tl.int64") * V.BLOCK_M),
            Positions(V.first_row, name="tile", block="BLOCK_M", wide=True),
            _ROWS,
            ROW_MASK,
            Let("first_col", runtime.second_id("tl.int64") * V.BLOCK_N),
            Positions(V.first_col, name="block", block="BLOCK_N", wide=True),
            _COLS,
            Given("col_mask", V.cols < V.n_cols),
            TILE,
            *sections.setup,
            *outer_loop,
            *sections.end,
        )

    def streaming(self, sections: Sections) -> Nest:
        """Programs have a tile of rows each, and go along the columns."""
        runs = (*sections.ahead, self.runs(sections.loop))
        if self.stream.outer_axes:
            n_turns = product(*(V[f"size_{axis.lower()}"] for axis in self.stream.outer_axes))
            runs = (For(runtime.range(n_turns), index="turn", body=(*sections.turn, *runs)),)
        split: Nest = ()
        end: Nest = (*sections.end,)
        if sections.partial:
            is_split = V.partial_ptr.is_given
            split = (Branch(is_split, (Let("bounds", runtime.split_blocks(V.bounds, V.BLOCK_N)),)),)
            end = (Branch(is_split, (*self.partial_rows, *sections.partial), end),)
        setup = (*sections.casts, *self.tile(sections.setup), _ROWS, ROW_MASK, *sections.setup)
        return _heads_where_read(*setup, *split, *runs, BLANK, *end)

    def tile(self, setup: list[Any]) -> Nest:
        """The rows of a program, and the first of them where the setup reads it."""
        which, order = _PROGRAM % V.tiles, ""
        if most := longest(self.blocks.tiles):
            order = f"The {most} {self.stream.rows} first: under the mask they have the most blocks."
            which = V.tiles - 1 - which if most == "last" else which
        if group := self.stream.group:
            name, size = f"i_{group.lower()}", f"size_{group.lower()}"
            rows = runtime.rows_of_group(which, V.n_rows, size, V.BLOCK_M, V.PACK_HEADS, V.INDEX)
            tiles = Let("tiles", runtime.tiles_of_group(V.n_rows, size, V.BLOCK_M, V.PACK_HEADS))
            first_row = "first_row" if "first_row" in names_of(setup) else "_"
            return (tiles, _HEAD, Let(f"{name}, {first_row}, tile", rows, comment=order))
        first = Let("first_row", which.to("tl.int64") * V.BLOCK_M, comment=order)
        tile = Positions(V.first_row, name="tile", block="BLOCK_M", wide=True)
        return (_TILES, _HEAD, first, tile)

    def runs(self, loop: list[Any]) -> For:
        """The runs of blocks, one after the other."""
        names = self.blocks.runs
        is_masked, in_bounds = V.run.differs(names.index("full")), V.cols < V.n_cols
        span = runtime.range(V.bounds[V.run], V.bounds[V.run + 1], V.BLOCK_N)
        body = (
            Positions(V.start, name="block", block="BLOCK_N", wide=True),
            _COLS,
            Given("col_mask", either(is_masked, in_bounds, True)),
            Given("tile_mask", either(is_masked, V.row_mask & in_bounds, V.row_mask)),
            *loop,
        )
        inside: Nest = (For(span, index="start", body=body),)
        if "skipped" in names:
            inside = (Branch(V.run.differs(names.index("skipped")), inside),)
        return For(tl.static_range(len(names)), index="run", body=inside)

    @property
    def partial_rows(self) -> Nest:
        said = "Partial sums [n_splits, heads, rows, ...]."
        head = Let("split_head", tl.program_id(1) * (tl.num_programs(0) // V.tiles) + V.head, comment=said)
        if group := self.stream.group:
            in_group = Let("split_head", V.split_head * f"size_{group.lower()}" + f"i_{group.lower()}")
        return (
            head,
            *([in_group] if group else []),
            Let("partial", V.partial_ptr + (V.split_head * V.n_rows + V.rows) * self.partial_length),
        )

    @property
    def partial_length(self) -> Expr:
        return partial_sums.length(self.stream, partial_sums.in_kernel)

    def reduction(self, sections: Sections) -> Nest:
        """Programs merge the partial sums of a row each."""
        group = self.stream.group
        in_group = (
            Let(f"i_{group.lower()}", V.head % f"size_{group.lower()}"),
            Let("head", V.head // f"size_{group.lower()}"),
        )
        at = V.splits * tl.num_programs(0) + _PROGRAM
        body = (
            Let("splits", V.first + tl.arange(0, V.BLOCK_SPLITS)[:, None]),
            Let("partial", V.partial_ptr + at * self.partial_length),
            Let("split_mask", V.splits < V.n_splits),
            *sections.loop,
        )
        return _heads_where_read(
            *sections.casts,
            Let("head", (_PROGRAM // V.n_rows).to("INDEX")),
            *(in_group if group else ()),
            Positions(_PROGRAM % V.n_rows, name="tile", block="1", wide=True),
            _ROWS,
            *sections.setup,
            For(runtime.range(0, V.n_splits, V.BLOCK_SPLITS), index="first", body=body),
            *sections.end,
        )


def _heads_where_read(*nest: Any) -> Nest:
    """A nest without the index of heads where nothing reads it: there is one head."""
    rest = tuple(one for one in nest if not (isinstance(one, Line) and "head" in one.targets))
    return nest if "head" in names_of(rest) else rest
