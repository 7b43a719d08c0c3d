"""Tiles of scores, and sums of functions of them over other axes, as the gradient of a bias of [M, N].

A program holds one tile of rows by the axis that otherwise streams. It loops over the indices of the summed axes (once
without any), computes the scores of the tile, and adds a function of these to the accumulator.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ...emit.module import Around, Module
from ...emit.stream_configs import Streaming as Matmuls
from ...lang.ir import Op, Reduce, Value
from ...lowering.tile import needed
from ...lowering.views import Kernel
from ...nest.ir import Let, Line
from ...nest.values import V, expr, product, tl
from ...passes.merged_axes import MergedAxes
from ...passes.structure import references
from ..family import Step
from ..stream import NotStreamed, Stream, StreamSum
from .blocks import Blocks, blocks_of
from .family import Streaming
from .frames import BLOCKS, Frames
from .host import StreamingModule
from .kernels import Builder
from .program import StreamingProgram
from .spelling import Spelling
from .streams import Finder, merged_axes


class TileSums(Streaming):
    """One result with both axes of scores, which need not be stored for all of the other axes."""

    title = "tiles of scores"

    def take(self, op: Op) -> StreamingProgram | None:
        found = tile_sum_of(op)
        if found is None:
            return None
        stream, merged = found
        over = merged.parted_axes(stream.outer_axes)
        return StreamingProgram(op, over, stream, blocks_of(merged.joined(op), stream), merged=merged)

    def module(self, program: StreamingProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return _TileModule(program, around, autotune).module()


def tile_sum_of(op: Op) -> tuple[Stream, MergedAxes] | None:
    """The stream of an operator computed in tiles, and its merged axes. Its only sum has one factor, and reduces the
    `outer_axes`.
    """
    if len(op.results) != 1:
        return None
    for streamed in reversed(op.results[0].axes):
        merged = merged_axes(op, streamed)
        stream = _along(merged.of(streamed), merged.joined(op))
        if stream is not None:
            return stream, merged
    return None


def _along(streamed: str, op: Op) -> Stream | None:
    """The stream of the tiles, with `streamed`, an axis of the result, as their columns; None for other math."""
    (result,) = op.results
    values = needed(op.values, [result.output.name])
    finder = Finder(op, streamed)
    scores = {v.name: finder.scores_of(v.name, v.node) for v in values if isinstance(v.node, Reduce)}
    products = tuple(filter(None, scores.values()))
    others = [value for value in values if value.name in scores and scores[value.name] is None]
    rows = finder.rows_of(products, ()) if products else None
    total = _sum_of(others or values[-1:])
    if rows is None or rows not in result.axes or total is None or len(others) > 1:
        return None
    name, outer_axes = total[0].name, total[1]
    widths = tuple(dict.fromkeys(axis for one in products for axis in one.over))
    inner = {rows, streamed, *outer_axes, *widths}
    batch = tuple(axis for axis in op.axes if axis not in inner and axis in result.axes)
    stream = Stream(batch, rows, streamed, outer_axes, widths, products, (total[0],), "")
    fits = _fits(finder, stream, [value for value in values if value.name not in {*scores, name}])
    return stream if fits else None


def _sum_of(values: list[Value]) -> tuple[StreamSum, tuple[str, ...]] | None:
    """The sum that a tile accumulates and the axes that it reduces, () without a reduction; None for other math."""
    match values:
        case [Value(name=name, node=Reduce(kind="sum", arg=arg, over=over))]:
            return StreamSum(name, arg, None, False), over
        case [Value(name=name, node=node)] if not isinstance(node, Reduce):
            return StreamSum(name, node, None, False), ()
    return None


def _fits(finder: Finder, stream: Stream, values: list[Value]) -> bool:
    """Whether values have no axes but the tile's, and values after the sum no axes but the result's."""
    (total,), (result,) = stream.sums, finder.op.results
    inside = [value.name for value in needed(finder.op.values, references(total.factor))]
    results = {*result.axes}
    if any(not {*one.node.axes} <= (stream.tile if one.name in inside else results) for one in values):
        return False
    with suppress(NotStreamed):
        return {*total.factor.axes} >= stream.tile and bool(finder.check_scores(stream, inside))
    return False


class _TileBuilder(Builder):
    """Writes the kernel: values along outer axes are in the only loop, and all others before it."""

    masked = expr(True)

    def __init__(self, program: StreamingProgram) -> None:
        super().__init__(program)
        self.met, self.blocks = program.blocks, Blocks(self.stream.rows)  # Of a tile, all conditions are computed.
        self.past_the_end = {}  # What is beyond the tensors is not stored.

    def tile_kernel(self) -> Kernel:
        self.build()
        rows, streamed = self.stream.rows, self.stream.streamed
        doc = f"A tile of {rows} and {streamed}"
        doc += (
            f", to which each index of {', '.join(self.stream.outer_axes)} adds in turn."
            if self.stream.outer_axes
            else "."
        )
        frame = Frames(self.stream, self.blocks).of_tiles
        return self.assembled("kernel", doc, ("n_rows", "n_cols"), frame, BLOCKS)

    def lines_for(self, axes: Iterable[str]) -> list[Line]:
        return self.lines.turn if {*axes} & {*self.stream.outer_axes} else self.lines.setup

    def sum(self, total: StreamSum) -> None:
        self.elements([Value(total.name, total.factor, "")])
        lines = self.lines_for(total.factor.axes)
        self.lowering.begin(total.name)
        factor = self.lowering.expression(total.factor)
        factor = V[total.name] + factor if self.stream.outer_axes else factor
        lines += [*self.lowering.pending, Let(total.name, factor)]

    def bounds(self) -> None:
        """The number of iterations of the loop: 0 in a fully masked tile."""
        if not self.stream.outer_axes:
            return
        count = product(*(V[f"size_{axis.lower()}"] for axis in self.stream.outer_axes))
        if self.met.tiles is None:
            self.lines.bounds.append(Let("n_turns", count))
            return
        self.elements([Value("bounds", node, "") for node in self.met.values])
        self.lowering.begin("bounds", ())
        met = tl.where(Spelling(self.met, self.lowering.expression).meets, count, 0)
        iterations = Let("n_turns", met, comment="Fully masked tiles skip the loop.")
        self.lines.bounds += [*self.lowering.pending, iterations]

    def begin(self) -> None:
        if not self.stream.outer_axes:
            return
        (total,) = self.stream.sums
        self.lines.bounds.append(Let(total.name, tl.zeros([V.BLOCK_M, V.BLOCK_N], self.compute.text)))


class _TileModule(StreamingModule):
    """The module of one kernel with one tile per program."""

    def planned(self, program: StreamingProgram) -> Kernel:
        return _TileBuilder(program).tile_kernel()

    across = True

    def streaming(self) -> Matmuls:
        return Matmuls(len(self.stream.scores), 0)


TILE_SUMS = TileSums()
