"""The Gluon kernel of a gradient, such as dq, or dk and dv, in addition to the plain one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ...lang.ir import Call, Load, Node, Op, Ref, Value
from ...lowering.lower import Lowering
from ...nest.ir import Do, Let, Line, lines_of, needed_by, nested
from ...nest.values import Expr, V, expr, runtime, tl
from ...passes.masks.expressions import Number
from ...passes.masks.tiles import longest
from ...spec.types import Input
from ..gluon import SHARED, calls_only
from ..stream import Scores, Stream, StreamSum
from .gluon_shared import (
    GluonBuilder,
    GluonKernels,
    OfRows,
    is_for_gluon,
    is_spread,
    kind_of_scores,
    matrices_in,
    reads_matrices_behind,
    spread,
    tiled_of,
)
from .partial_sums import LEAST
from .places import Places
from .program import StreamingProgram
from .scores import to_base2


def gradient_kernels(program: StreamingProgram) -> GluonKernels | None:
    """The kernels of one or two sums, each a matmul of a function of two scores by a streamed matrix of one of these;
    None for other math.
    """
    op, stream = program.in_kernels, program.stream
    takes = (
        not program.pages
        and _is_gradient(op, stream)
        and is_for_gluon(op, stream)
        and _reads_plainly(op, stream)
        and not reads_matrices_behind(op, stream)
        and (len(stream.sums) == 1 or not _spills(op))
    )
    return _GradientBuilder(program).kernels() if takes else None


def _is_gradient(op: Op, stream: Stream) -> bool:
    """Whether there are two scores without a running maximum, and each result is a sum of a streamed matrix of one."""
    streamed = {score.right.name for score in stream.scores}
    summed = {load.name for load in stream.summed} & streamed
    wide = matrices_in(op.results, stream)
    return (
        not (stream.largest or stream.outer_axes)
        and len(stream.scores) == len(streamed) == 2
        and len(stream.sums) == len(summed) == len(wide)
        and not any(result.when for result in op.results if result not in wide)
    )


def _reads_plainly(op: Op, stream: Stream) -> bool:
    """Whether no tensor is optional or gathered, and all tensors along both axes are tensors of per-score values."""
    pair, tiled = {stream.rows, stream.streamed}, tiled_of(op, stream)
    return (
        all(tensor.default is None for tensor in op.inputs)
        and all(tensor in tiled or not pair <= set(tensor.type.axes) for tensor in op.inputs)
        and not any(isinstance(node, Load) and node.at for node in op.nodes)
    )


def _spills(op: Op) -> bool:
    """Whether two sums leave too few registers for tanh of scores: the plain kernel is faster by 8 % then."""
    return any(isinstance(node, Call) and node.function == "tanh" for node in op.nodes)


@dataclass(frozen=True, slots=True)
class _Vectors(Places):
    """Reads per-column values as vectors, one element per thread, and per-score values from a ring."""

    def reads(self, tensor: Input) -> list[Line]:
        if tensor not in tiled_of(self.op, self.stream):
            # The slots of a dataclass leave `super` without its arguments another class.
            return Places.reads(self, tensor)
        across = (True,) if kind_of_scores(tensor, self.stream) == "across" else ()
        read = runtime.read_scores(f"{tensor.name}_ring", 2 * V.step + V.half, *across)
        return [Let(tensor.name, read.to(self.compute.text))]

    def mask(self, axes: tuple[str, ...]) -> Expr | None:
        mask = Places.mask(self, axes)
        return V.block_mask if mask == V.col_mask else mask


@dataclass
class _Weights(OfRows):
    """Takes exponentials of `score`, which is converted to base 2, by exp2."""

    score: str = ""

    def call(self, node: Call) -> Expr:
        match node:
            case Call(function="exp", args=(Call(function="sub", args=(Ref(name=x), y)),)) if x == self.score:
                of_rows = self.rows in y.axes
                below = spread(runtime.to_base2(self.of_rows(y))) if of_rows else self.below_of_columns(y)
                return tl.exp2(V[x] - below)
            case Call(function="exp", args=(Call(function="sub", args=(x, Load() as y)),)) if self.is_of_columns(y):
                return runtime.exp2_shifted(self.in_compute(x), self.below_of_columns(y))
        return super().call(node)

    def is_of_columns(self, node: Node) -> bool:
        return self.rows not in node.axes and bool(self.others & set(node.axes))

    def below_of_columns(self, node: Node) -> Expr:
        """Per-column values in base 2; each thread converts its own loaded element before the broadcast."""
        if isinstance(node, Load):
            return runtime.across_columns(runtime.to_base2(node.name))
        return runtime.to_base2(self.in_compute(node))


class _GradientBuilder(GluonBuilder):
    """Makes the lines before, in and after the loop.

    Matrices are in rings of blocks in shared memory, and matmuls are in flight until a line needs their results.
    """

    vectors, of_rows = _Vectors, _Weights
    lowering: _Weights

    def __init__(self, program: StreamingProgram) -> None:
        super().__init__(program)
        self.scale, self.to_base2 = to_base2(self.op, self.stream)
        self.lowering.score = self.to_base2.name if self.to_base2 else ""
        self.of_tile: list[str] = []  # the matrices that are read for each tile
        self.in_flight: list[str] = []

    # The loop

    def row_tile(self, load: Load) -> None:
        if load.name not in self.read:
            self.read.add(load.name)
            self.of_tile.append(load.name)
            self.lines.setup.append(Let(load.name, runtime.take(f"{load.name}_ring", V.half)))

    def product(self, score: Scores) -> None:
        """The scores of a block; the first one issues all matmuls of scores at the start of the block."""
        if not self.in_flight:
            begins: list[Line] = []
            for one in self.stream.scores:
                self.row_tile(one.left)
                self.read.add(one.right.name)
                begins.append(Let(one.right.name, runtime.take(f"{one.right.name}_ring", V.step)))
                begins.append(Let(one.name, runtime.begin_scores(one.left.name, one.right.name)))
                self.in_flight.append(one.name)
            self.lines.loop[:0] = begins
        self.wait(score.name)
        if score.right not in self.stream.summed:
            self.give_back(score.right)

    def give_back(self, matrix: Load) -> None:
        self.lines.loop.append(Do(runtime.give_back(f"{matrix.name}_ring", V.step)))

    def wait(self, name: str, *others: str) -> None:
        """Waits for a matmul; matmuls complete in the order in which they are issued."""
        del self.in_flight[: self.in_flight.index(name) + 1]
        names = (name, *others)
        wait = runtime.warpgroup_mma_wait(len(self.in_flight), deps=names)
        self.lines.loop.append(Let(", ".join(names), wait))

    def add_product(self, name: str, factor: Expr, matrix: Load, so_far: Expr) -> None:
        self.lines.loop.append(Let(f"{name}, {name}_left", runtime.add_product(name, factor, matrix.name)))
        self.in_flight.append(name)

    def inner(self, value: Value) -> None:
        if self.to_base2 and value.name == self.to_base2.name:
            value = self.to_base2
        with self.lowering.spreading(self.streams(value.node.axes)):
            super().inner(value)

    def chosen(self, name: str, test: Node, other: Node) -> list[Line]:
        """Masks positions past the end with scores of minus infinity instead of weights of 0: per-column values are 0
        there, so these weights vanish.
        """
        if self.lowering.expression(other) == LEAST:
            for factor in [one for one in self.past_the_end if self.is_weight(self.op.value(one).node, name)]:
                del self.past_the_end[factor]
                self.past_the_end[name] = LEAST
        return super().chosen(name, test, other)

    def is_weight(self, node: Node, score: str) -> bool:
        """Whether a node is the exponential of a score below a loaded per-column value."""
        match node:
            case Call(function="exp", args=(Call(function="sub", args=(Ref(name=name), Load() as y)),)):
                return name == score and self.streams(y.axes)
        return False

    def limits(self, test: Node) -> Expr | None:
        """Per-row limits are vectors, too."""
        with self.lowering.spreading(False):
            limits = super().limits(test)
        return limits and limits.with_names({name: spread(V[name]) for name in self.blocks.limits_by_row})

    def sum(self, total: StreamSum) -> None:
        with self.lowering.spreading(True):
            super().sum(total)

    def loaded(self, node: Load, lowering: Lowering) -> Expr:
        if self.in_row_sum:
            return runtime.in_float32(node.name)
        is_of_cols = self.streams(node.axes) and self.stream.rows not in node.axes
        return runtime.across_columns(node.name) if is_of_cols else super().loaded(node, lowering)

    def total_of_rows(self, summed: Expr) -> Expr:
        return runtime.sum_of_rows(summed, V.by_row)

    def begin(self) -> None:
        """Sums begin in the template; a block ends with their matmuls."""
        for name in [*self.in_flight]:
            self.wait(name, f"{name}_left")
            matrix = self.sums[name].matrix
            assert matrix is not None
            self.give_back(matrix)

    @cached_property
    def memory(self) -> dict[str, str]:
        """For each result, a matrix of the tile of the same width whose shared memory its store reuses."""
        found: dict[str, str] = {}
        for result in self.wide:
            free = (one.left.name for one in self.stream.scores if one.over == result.axes[-1:])
            if name := next((name for name in free if name not in found.values()), ""):
                found[result.output.name] = name
        return found

    def read_early(self, loop: Iterable[Line], scalars: list[str]) -> list[Line]:
        """The lines of a block, with the reads of per-column and per-score values right after the matmuls at its
        start.
        """
        lines = [line for line in loop if line.assigned not in scalars]
        first = 2 * len(self.stream.scores)
        return [*lines[:first], *(line for line in loop if line.assigned in scalars), *lines[first:]]

    # The pipeline

    def kernels(self) -> GluonKernels | None:
        """The kernels; None if lines call functions that Gluon lacks, if bounds depend on more than params and per-head
        values, or if the epilogue combines per-row values, in the layout of scores, with a matrix.
        """
        self.build()
        self.lines.loop = self.read_early(self.lines.loop, [*self.of_cols, *self.tiled])
        setup, loop, end = (nested(lines) for lines in (self.lines.setup, self.lines.loop, self.lines.end))
        reads = [line for line in setup if line.assigned in self.of_heads]
        bounds = self.bounds_of(reads)
        inputs = {tensor.name for tensor in self.op.inputs}
        others = inputs.union(*(line.targets for line in setup)) - {*self.of_heads}
        takes = (
            calls_only([*bounds, *setup, *loop, *end], SHARED | {"load"})
            and not any(map(is_spread, lines_of(end)))
            and self.has_bounds(bounds, others)
            and len(self.memory) == len(self.wide)
        )
        if not takes:
            return None
        streamed = tuple(score.right.name for score in self.stream.scores)
        self.kinds |= dict.fromkeys((*self.of_tile, *self.memory), "rows") | dict.fromkeys(streamed, "cols")
        order, place = self.order
        rings = dict.fromkeys(self.of_tile, (2, 1)) | dict.fromkeys(streamed, ("STAGES", 2))
        sums = {one.name: one.matrix.name for one in self.stream.sums if one.matrix}
        return self.piped(
            "gradient",
            # What is copied is given back soon.
            rings | dict.fromkeys(self.tiled, (2 * (V.STAGES - 1), 1)),
            PROGRAMS=f"One tile of {self.stream.rows} per program",
            ORDER=(order,),
            PLACE=place,
            BOUNDS=(*needed_by(bounds, reads), *bounds),
            GIVEN=(*(f"{name}_desc" for name in self.memory), *self.passed),
            OF_TILE=(*self.of_tile,),
            STREAMED=streamed,
            SCORES=tuple(name for name in self.tiled if self.kinds[name] == "scores"),
            ACROSS=tuple(name for name in self.tiled if self.kinds[name] == "across"),
            COPIED=(),
            SCALE=self.lowering.expression(self.scale) if self.scale else expr(1.0),
            SETUP=setup,
            SUMS=(*sums,),
            SUMMED=(*sums.values(),),
            MATH=loop,
            END=end,
            WIDE=(*self.memory,),
            MEMORY=(*self.memory.values(),),
        )

    @property
    def order(self) -> tuple[Line, Expr]:
        """The line that says which tile a program has, and where it begins."""
        tiles, place = self.blocks.tiles, V.place
        if tiles is None or tiles.some.first == Number(0):
            place = V.tiles - 1 - V.place
        says = "Eight heads at a time, so that the blocks of these stay in L2."
        if (most := longest(tiles)) == ("first" if place == V.place else "last"):
            says += f" The {most} {self.stream.rows} first: under the mask they have the most blocks."
        return Let("head, place", runtime.swizzle(tl.program_id(0), "n_heads", "tiles", 8), comment=says), place
