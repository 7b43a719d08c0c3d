"""What stands around the math of a contraction's kernels: where a program is, and its loops over tiles and blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...lang.ir import Reduce, Value
from ...lowering.positions import TILE
from ...lowering.tile import loads
from ...nest.ir import BLANK, Accumulate, Branch, Do, For, Given, Let, Line, Nest, Positions, needed_by, nested, under
from ...nest.values import Expr, Term, V, either, expr, runtime, tl
from ...passes.structure import references
from .addressing import ALIGN
from .sums import Lines, Sums

BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP", "INDEX")
REDUCED = ("BLOCK_M", "BLOCK_N", "GROUP", "REDUCE_M", "INDEX")
_PROGRAM = tl.program_id(0)
_SPLITS = V.n_long, V.long_splits, V.n_short, V.short_splits
SLICERS = {2: "halves", 4: "quarters"}
_SLICING = {2: "Half by half", 4: "Quarter by quarter"}


class Frames(Sums):
    """The nests of the kernels."""

    @property
    def halved(self) -> bool:
        """Whether a tile is summed in halves: of float8, a block's sum takes as many registers as the sum of all."""
        plain = len(self.contraction.products) == 1 and not self.contraction.groups and not self.full_rows
        decided = any(map(self.choices.of, self.products))
        return self.operands.float8 and plain and self.slices == 2 and not decided

    @property
    def slices(self) -> int:
        """In how many slices the epilogue runs: matrices that it reads take shared memory."""
        if self.places.group or any(map(self.contraction.strips_axis, self.strips)):
            return 2  # Those of columns are no wider than a slice.
        outputs = [result.output.name for result in self.op.results]
        names = {load.name for load in loads(value.node for value in self.needed_after(outputs))}
        beside = names - self.operands.names
        return 4 if any({"rows", "cols"} <= set(self.places.roles(name)) for name in beside) else 2

    @property
    def strips(self) -> tuple[Reduce, ...]:
        return tuple(v.node for v in self.op.values if isinstance(v.node, Reduce) and v.node.strips)

    @property
    def groups(self) -> tuple[Reduce, ...]:
        return self.others if self.places.group else ()

    @property
    def others(self) -> tuple[Reduce, ...]:
        """What is reduced beside products, but for strips."""
        nodes = (v.node for v in self.op.values if v.name not in self.products)
        return tuple(node for node in nodes if isinstance(node, Reduce) and not node.strips)

    @property
    def full_rows(self) -> bool:
        """Whether results are reduced over their columns."""
        return bool(self.others) and not self.places.group

    @property
    def specialises(self) -> bool:
        """Whether the TMA kernel is warp-specialised: several matmuls of plain matrices."""
        several = len(self.contraction.sums) > 1 and not self.operands.joined
        return several and self.contraction.is_plain

    def needed_after(self, roots: Iterable[str]) -> list[Value]:
        """The values that the results need, up to the sums."""
        wanted, found = set(roots), []
        for value in reversed(self.op.values):
            if value.name in wanted:
                found.append(value)
                if value.name not in self.contraction.sums:
                    wanted |= references(value.node)
        return found[::-1]

    def stored_partials(self) -> Nest:
        stores = {
            name: Do(runtime.store_partial(f"{name}_partial_ptr", V.partial, name)) for name in self.contraction.sums
        }
        return nested(line for name, store in stores.items() for line in under(self.choices.of(name), [store]))

    @property
    def extent(self) -> str:
        """How far a tile sums."""
        return "n_summed" if self.triangle else "n_steps" if self.operands.group_size else "n_inner"

    def strided(self, casts: Nest, lines: Lines) -> Nest:
        reached = runtime.padded if self.pads else runtime.aligned
        n_rows, n_cols = (reached(n, ALIGN[n[2:]]) for n in ("n_rows", "n_cols"))
        before = [*lines.setup, *lines.loop, *([] if self.places.group else lines.end)]
        step, size = ("step", "1") if self.operands.group_size else ("start", "BLOCK_K")
        end = V.n_inner if self.operands.group_size else runtime.aligned(V.n_inner, ALIGN["inner"])
        return (
            *casts,
            Let("tile", _PROGRAM),
            *self.located(lines),
            *needed_by(before, _tile("BLOCK_M", n_rows=n_rows, n_cols=n_cols)),
            BLANK,
            *lines.setup,
            Let("first, end", runtime.split_k(self.extent, V.steps, size, V.INDEX)),
            For(
                runtime.range(V.first, V.end, *(() if size == "1" else (size,))),
                index=step,
                body=(*self.start_of_group, *self.inner(end, wide=True), *lines.loop),
            ),
            BLANK,
            Branch(
                V[f"{self.contraction.sums[0]}_partial_ptr"].is_given,
                body=(Let("partial", tl.program_id(1) * tl.num_programs(0) + V.tile), *self.stored_partials()),
                other=(*(self.of_groups(lines.end) if self.places.group else ()), *lines.end),
            ),
        )

    def stream_k(self, casts: Nest, lines: Lines) -> Nest:
        steps = tl.cdiv(V.n_inner, V.BLOCK_K)
        steps = len(self.contraction.products) * steps if self.alternates else steps
        split = runtime.stream_k(V.partial, V.first_tile, *_SPLITS, V.tile_steps)
        start = () if self.operands.group_size or self.alternates else (Let("start", V.step * V.BLOCK_K),)
        return (
            *casts,
            Let("partial", _PROGRAM),
            Let("tile_steps", V.n_steps if self.operands.group_size else steps),
            Let("tile, first, end", split),
            *self.located(lines),
            *needed_by([*lines.setup, *lines.loop], _tile("BLOCK_M")),
            *lines.setup,
            For(
                runtime.range(V.first, V.end),
                index="step",
                body=(*self.start_of_group, *start, *self.reading(lines.loop)),
            ),
            BLANK,
            *self.joined,
            *self.stored_partials(),
        )

    def tma(self, casts: Nest, lines: Lines) -> Nest:
        flatten = "flatten: the loads of the next tile overlap with the epilogue of this one."
        options: dict[str, Term] = {"flatten": True}
        if self.specialises:
            flatten = (
                "Warp-specialised: some warps load while others compute. Flattened: the next tile loads during this"
            )
            flatten += " epilogue."
            options = {"flatten": V.WARP_SPECIALIZE.negated, "warp_specialize": V.WARP_SPECIALIZE}
        every = tl.range(_PROGRAM, V.n_tiles, tl.num_programs(0), **options)
        step, steps, comment = "start", runtime.range(0, self.extent, V.BLOCK_K), ""
        if self.operands.group_size:
            step, steps = "step", runtime.range(self.extent)
        elif self.alternates:
            comment = (
                "The products one after the other, so that the loads of the next overlap with the dot of this one."
            )
            step, steps = "step", runtime.range(len(self.contraction.products) * V.n_steps)
        before = needed_by([*lines.setup, *lines.loop], _tile("BLOCK_M"))
        inside = (
            *self.located(lines),
            *before,
            *lines.setup,
            For(steps, comment=comment, index=step, body=(*self.start_of_group, *self.reading(lines.loop))),
            BLANK,
            *self.joined,
            *self.finished(lines.end, {name for one in before for name in one.targets}),
        )
        return (*casts, For(every, comment=flatten, index="tile", body=inside))

    def finished(self, end: Sequence[Line], known: set[str]) -> Nest:
        """The epilogue of a full tile, or slice by slice, whose rows may be known."""
        if self.full_rows:
            return (*_unknown(needed_by(end, _tile("BLOCK_M")), known), *end)
        said = f"{_SLICING[self.slices]}: the store of one slice overlaps with the math of the next."
        width = V.BLOCK_N // self.slices
        if self.places.group:
            positions = self.of_groups(end, col="slice_col", cols=width)
        else:
            positions = _unknown(needed_by(end, _tile("BLOCK_M", "slice_col", width)), known)
        slices = (
            expr((f"{name}_first", f"{name}_second"))
            if self.halved
            else runtime[SLICERS[self.slices]](name, V.BLOCK_M, V.BLOCK_N)
            for name in self.contraction.sums
        )
        lines = [Let(f"{name}_slices", value) for name, value in zip(self.contraction.sums, slices, strict=True)]
        body = (
            Let("slice_col", V.first_col + V.piece * width),
            *positions,
            *(Let(name, V[f"{name}_slices"][V.piece]) for name in self.contraction.sums),
            *end,
        )
        first = replace(lines[0], comment=said)
        return (first, *lines[1:], For(tl.static_range(self.slices), index="piece", body=body))

    def reduction(self, casts: Nest, lines: Lines) -> Nest:
        of_groups = (
            self.of_groups(lines.end, rows="REDUCE_M") if self.places.group else needed_by([*lines], _tile("REDUCE_M"))
        )
        return (
            *casts,
            Let("first", _PROGRAM * V.REDUCE_M, comment="Each program takes REDUCE_M rows of a tile."),
            Let("shared, within", expr((V.first // V.BLOCK_M, V.first % V.BLOCK_M))),
            *self.located(lines, V.first_tile + V.shared),
            Accumulate("first_row", "+", V.within),
            *of_groups,
            *lines.setup,
            Let("partials", runtime.partials_of(V.shared, *_SPLITS)),
            *lines.loop,
            *lines.end,
        )

    # Where a program is

    def located(self, lines: Lines, tile: Expr = V.tile) -> Nest:
        """The tile of a program, and the matrix that it is of."""
        tiles = V.n_rows, V.n_cols, V.BLOCK_M, V.BLOCK_N, V.GROUP
        if not self.contraction.batch:
            return (Let("first_row, first_col", runtime.locate(tile, *tiles)),)
        batch = needed_by([*lines], (Given("batch", V.matrix.to("INDEX")),))
        return (Let("matrix, first_row, first_col", runtime.locate_in_batch(tile, *tiles)), *batch)

    def of_groups(
        self, end: Sequence[Line], rows: str = "BLOCK_M", col: str = "first_col", cols: Expr = V.BLOCK_N
    ) -> Nest:
        """The positions that an epilogue needs of a tile whose columns are in groups: [rows, groups, inside of one]."""
        first = V[col].to("INDEX") // self.places.group
        positions = (
            Positions(V.first_row.to("INDEX"), name="rows", block=rows, lanes="[:, None, None]"),
            Positions(first, name="groups", block=cols // self.places.group, lanes="[None, :, None]"),
            Positions(expr(0), name="inside", block=str(self.places.group), lanes="[None, None, :]", wide=True),
            Given("cols", V.groups * self.places.group + V.inside),
            Given("row_mask", V.rows < V.n_rows),
            Given("col_mask", V.groups < V.n_cols // self.places.group),
            TILE,
        )
        return needed_by(end, positions)

    @property
    def start_of_group(self) -> Nest:
        """Which group of the inner axes a step is of, and where it starts."""
        if not (size := self.operands.group_size):
            return ()
        start = V.group * size + V.step % V.group_blocks * V.BLOCK_K
        return (Let("group", V.step // V.group_blocks), Let("start", start))

    def inner(self, end: Expr, wide: bool = False) -> Nest:
        """The positions of a block along the inner axes."""
        if size := self.operands.group_size:
            end = (V.group + 1) * size
        inner = Positions(V.start, name="inner", block="BLOCK_K", wide=wide)
        return (inner, Given("inner_mask", V.inner < end))

    def reading(self, loop: Sequence[Line]) -> Nest:
        return (*needed_by(loop, self.inner(V.n_inner)), *loop)

    @property
    def joined(self) -> Nest:
        """The lines that split the accumulator of two matrices that are copied as one."""
        if (joined := self.operands.joined) is None:
            return ()
        both = f"{joined.sum}_halves"
        said = "The two halves of the joined accumulator."
        halves = Let(both, runtime.halves(joined.sum, V.BLOCK_M, 2 * V.BLOCK_N), comment=said)
        places = (either(joined.flag, 0, 1), either(joined.flag, 1, 0))
        each = zip(joined.sums, places, strict=True)
        return (halves, *(Let(name, V[both][place]) for name, place in each))


def _tile(
    rows: str, col: str = "first_col", cols: Expr = V.BLOCK_N, *, n_rows: Expr = V.n_rows, n_cols: Expr = V.n_cols
) -> Nest:
    return (
        Positions(V.first_row.to("INDEX"), name="rows", block=rows, lanes="[:, None]"),
        Positions(V[col].to("INDEX"), name="cols", block=cols, lanes="[None, :]"),
        Given("row_mask", V.rows < n_rows),
        Given("col_mask", V.cols < n_cols),
        TILE,
    )


def _unknown(positions: Nest, known: set[str]) -> Nest:
    """Some positions without those of rows that are known."""
    return tuple(one for one in positions if not {*one.targets} & known & {"rows", "row_mask"})
