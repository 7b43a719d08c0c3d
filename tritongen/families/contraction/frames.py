"""What stands around the math of a contraction's kernels: where a program is, and its loops over tiles and blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...nest.ir import BLANK, Branch, For, Given, Line, Nest, Positions, needed_by
from ...passes.contractions import Contraction
from .addressing import ALIGN
from .operands import Operands

BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP", "INDEX")
REDUCED = ("BLOCK_M", "BLOCK_N", "GROUP", "REDUCE_M", "INDEX")
SLICERS = {2: "halves", 4: "quarters"}
_SLICING = {2: "Half by half", 4: "Quarter by quarter"}


@dataclass
class Lines:
    """The lines of a kernel as they come, each with the path that it stands on."""

    setup: list[Line] = field(default_factory=list)
    loop: list[Line] = field(default_factory=list)
    end: list[Line] = field(default_factory=list)

    def __iter__(self) -> Iterator[Line]:
        return iter((*self.setup, *self.loop, *self.end))


@dataclass(frozen=True, slots=True)
class Frames:
    """The nests of the kernels. `summed` is how far a tile sums, and `n_alternating` how many matmuls alternate, if
    they do.
    """

    contraction: Contraction
    operands: Operands
    partials: Nest  # the stores of partial sums
    group: int
    summed: str
    n_alternating: int
    pads: bool  # whether what lies past the end may be loaded
    slices: int
    full_rows: bool
    halved: bool
    specialises: bool

    def strided(self, casts: Nest, lines: Lines) -> Nest:
        n_rows, n_cols = (f"{'padded' if self.pads else 'aligned'}({n}, {ALIGN[n[2:]]})" for n in ("n_rows", "n_cols"))
        before = [*lines.setup, *lines.loop, *([] if self.group else lines.end)]
        step, size = ("step", "1") if self.operands.group_size else ("start", "BLOCK_K")
        end = "n_inner" if self.operands.group_size else f"aligned(n_inner, {ALIGN['inner']})"
        return (
            *casts,
            Line("tile = tl.program_id(0)"),
            *self.located(lines),
            *needed_by(before, _tile("BLOCK_M", n_rows=n_rows, n_cols=n_cols)),
            BLANK,
            *lines.setup,
            Line(f"first, end = split_k({self.summed}, steps, {size}, INDEX)"),
            For(
                f"range(first, end{'' if size == '1' else f', {size}'})",
                index=step,
                body=(*self.start_of_group, *self.inner(end, wide=True), *lines.loop),
            ),
            BLANK,
            Branch(
                f"{self.contraction.sums[0]}_partial_ptr is not None",
                body=(Line("partial = tl.program_id(1) * tl.num_programs(0) + tile"), *self.partials),
                other=(*(self.of_groups(lines.end) if self.group else ()), *lines.end),
            ),
        )

    def stream_k(self, casts: Nest, lines: Lines) -> Nest:
        steps = f"{f'{self.n_alternating} * ' if self.n_alternating else ''}tl.cdiv(n_inner, BLOCK_K)"
        split = "stream_k(partial, first_tile, n_long, long_splits, n_short, short_splits, tile_steps)"
        start = () if self.operands.group_size or self.n_alternating else (Line("start = step * BLOCK_K"),)
        return (
            *casts,
            Line("partial = tl.program_id(0)"),
            Line(f"tile_steps = {'n_steps' if self.operands.group_size else steps}"),
            Line(f"tile, first, end = {split}"),
            *self.located(lines),
            *needed_by([*lines.setup, *lines.loop], _tile("BLOCK_M")),
            *lines.setup,
            For("range(first, end)", index="step", body=(*self.start_of_group, *start, *self.block(lines.loop))),
            BLANK,
            *self.joined,
            *self.partials,
        )

    def tma(self, casts: Nest, lines: Lines) -> Nest:
        tiles = "tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten={})"
        flatten = "flatten: the loads of the next tile overlap with the epilogue of this one."
        every = tiles.format("True")
        if self.specialises:
            flatten = (
                "Warp-specialised: some warps load while others compute. Flattened: the next tile loads during this"
            )
            flatten += " epilogue."
            every = tiles.format("not WARP_SPECIALIZE, warp_specialize=WARP_SPECIALIZE")
        step, steps, comment = "start", f"range(0, {self.summed}, BLOCK_K)", ""
        if self.operands.group_size:
            step, steps = "step", f"range({self.summed})"
        elif self.n_alternating:
            comment = (
                "The products one after the other, so that the loads of the next overlap with the dot of this one."
            )
            step, steps = "step", f"range({self.n_alternating} * n_steps)"
        before = needed_by([*lines.setup, *lines.loop], _tile("BLOCK_M"))
        inside = (
            *self.located(lines),
            *before,
            *lines.setup,
            For(steps, comment, index=step, body=(*self.start_of_group, *self.block(lines.loop))),
            BLANK,
            *self.joined,
            *self.finished(lines.end, {name for one in before for name in one.targets}),
        )
        return (*casts, For(every, flatten, index="tile", body=inside))

    def finished(self, end: Sequence[Line], known: set[str]) -> Nest:
        """The epilogue of a full tile, or slice by slice, whose rows may be known."""
        if self.full_rows:
            return (*_unknown(needed_by(end, _tile("BLOCK_M")), known), *end)
        said = f"{_SLICING[self.slices]}: the store of one slice overlaps with the math of the next."
        width = f"BLOCK_N // {self.slices}"
        if self.group:
            positions = self.of_groups(end, col="slice_col", cols=width)
        else:
            positions = _unknown(needed_by(end, _tile("BLOCK_M", "slice_col", width)), known)
        slices = (
            f"{name}_first, {name}_second" if self.halved else f"{SLICERS[self.slices]}({name}, BLOCK_M, BLOCK_N)"
            for name in self.contraction.sums
        )
        lines = [Line(f"{name}_slices = {text}") for name, text in zip(self.contraction.sums, slices, strict=True)]
        body = (
            Line(f"slice_col = first_col + piece * ({width})"),
            *positions,
            *(Line(f"{name} = {name}_slices[piece]") for name in self.contraction.sums),
            *end,
        )
        first = Line(lines[0].text, said)
        return (first, *lines[1:], For(f"tl.static_range({self.slices})", index="piece", body=body))

    def reduction(self, casts: Nest, lines: Lines) -> Nest:
        of_groups = self.of_groups(lines.end, rows="REDUCE_M") if self.group else needed_by([*lines], _tile("REDUCE_M"))
        return (
            *casts,
            Line("first = tl.program_id(0) * REDUCE_M", "Each program takes REDUCE_M rows of a tile."),
            Line("shared, within = first // BLOCK_M, first % BLOCK_M"),
            *self.located(lines, "first_tile + shared"),
            Line("first_row += within"),
            *of_groups,
            *lines.setup,
            Line("partials = partials_of(shared, n_long, long_splits, n_short, short_splits)"),
            *lines.loop,
            *lines.end,
        )

    # Where a program is

    def located(self, lines: Lines, tile: str = "tile") -> Nest:
        """The tile of a program, and the matrix that it is of."""
        if not self.contraction.batch:
            return (Line(f"first_row, first_col = locate({tile}, n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP)"),)
        found = f"locate_in_batch({tile}, n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP)"
        batch = needed_by([*lines], (Given("batch = matrix.to(INDEX)"),))
        return (Line(f"matrix, first_row, first_col = {found}"), *batch)

    def of_groups(
        self, end: Sequence[Line], rows: str = "BLOCK_M", col: str = "first_col", cols: str = "BLOCK_N"
    ) -> Nest:
        """The positions that an epilogue needs of a tile whose columns are in groups: [rows, groups, inside of one]."""
        first = f"{col}.to(INDEX) // {self.group}"
        positions = (
            Positions("first_row.to(INDEX)", name="rows", block=rows, lanes="[:, None, None]"),
            Positions(first, name="groups", block=f"{cols} // {self.group}", lanes="[None, :, None]"),
            Positions("0", name="inside", block=str(self.group), lanes="[None, None, :]", wide=True),
            Given(f"cols = groups * {self.group} + inside"),
            Given("row_mask = rows < n_rows"),
            Given(f"col_mask = groups < n_cols // {self.group}"),
            Given("tile_mask = row_mask & col_mask"),
        )
        return needed_by(end, positions)

    @property
    def start_of_group(self) -> Nest:
        """Which group of the inner axes a step is of, and where it starts."""
        if not (size := self.operands.group_size):
            return ()
        start = f"start = group * {size} + step % group_blocks * BLOCK_K"
        return (Line("group = step // group_blocks"), Line(start))

    def inner(self, end: str, wide: bool = False) -> Nest:
        """The positions of a block along the inner axes."""
        if size := self.operands.group_size:
            end = f"(group + 1) * {size}"
        inner = Positions("start", name="inner", block="BLOCK_K", wide=wide)
        return (inner, Given(f"inner_mask = inner < {end}"))

    def block(self, loop: Sequence[Line]) -> Nest:
        return (*needed_by(loop, self.inner("n_inner")), *loop)

    @property
    def joined(self) -> Nest:
        """The lines that split the accumulator of two matrices that are copied as one."""
        if (joined := self.operands.joined) is None:
            return ()
        total, both = joined.sum, f"{joined.sum}_halves"
        halves = Line(f"{both} = halves({total}, BLOCK_M, 2 * BLOCK_N)", "The two halves of the joined accumulator.")
        places = ("0 if {} else 1", "1 if {} else 0")
        each = zip(joined.sums, places, strict=True)
        return (halves, *(Line(f"{name} = {both}[{place.format(joined.flag)}]") for name, place in each))


def _tile(
    rows: str, col: str = "first_col", cols: str = "BLOCK_N", *, n_rows: str = "n_rows", n_cols: str = "n_cols"
) -> Nest:
    """The rows and columns of a tile."""
    return (
        Positions("first_row.to(INDEX)", name="rows", block=rows, lanes="[:, None]"),
        Positions(f"{col}.to(INDEX)", name="cols", block=cols, lanes="[None, :]"),
        Given(f"row_mask = rows < {n_rows}"),
        Given(f"col_mask = cols < {n_cols}"),
        Given("tile_mask = row_mask & col_mask"),
    )


def _unknown(positions: Nest, known: set[str]) -> Nest:
    """Some positions without those of rows that are known."""
    return tuple(one for one in positions if not {*one.targets} & known & {"rows", "row_mask"})
