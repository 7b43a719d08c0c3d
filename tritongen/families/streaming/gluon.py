"""The Gluon kernel next to the plain one: on Hopper one warp loads blocks by TMA, and two warp groups compute."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

from ...lang.ir import Call, Load, Node, Op, Ref, Value
from ...lang.names import shown
from ...lowering.assemble import param_arguments
from ...lowering.tile import Tile
from ...nest.ir import Branch, Do, Given, Let, Line, names_of, needed_by, nested
from ...nest.values import Expr, V, expr, runtime, tl
from ...passes.masks.expressions import Number
from ...spec.types import Input
from ..gluon import SHARED, calls_only, names_in
from ..stream import Scores, Stream
from . import partial_sums
from .gluon_shared import GluonBuilder, GluonKernels, OfRows, is_for_gluon, kind_of_scores, matrices_in, spread
from .places import Places
from .program import StreamingProgram
from .scores import scale_of, sloped
from .streams import is_row_sum


def gluon_kernels(program: StreamingProgram) -> GluonKernels | None:
    """The kernels of a softmax-weighted mean of queries, keys and values, with values per head, row, column or score;
    None for other math.
    """
    op, stream = program.in_kernels, program.stream
    tiles = program.blocks.tiles
    takes = (
        _is_mean(op, stream)
        and is_for_gluon(op, stream)
        and all(_is_scalar(tensor, stream) or kind_of_scores(tensor, stream) == "scores" for tensor in op.inputs)
        # With few blocks, mostly masked, as for a window, the plain kernel has a fifth more throughput.
        and (tiles is None or tiles.some.first == Number(0))
        and not any(is_row_sum(value, stream) for value in op.values)
    )
    return _GluonBuilder(program).kernels() if takes else None


def _is_mean(op: Op, stream: Stream) -> bool:
    """Whether one result matrix is computed from three matrices, and all sums are rescaled by the running maximum."""
    wide = matrices_in(op.results, stream)
    counts = (len(stream.scores), len(stream.summed), len({load.name for load in stream.matrices}), len(wide))
    return (
        bool(stream.largest)
        and not stream.outer_axes
        and counts == (1, 1, 3, 1)
        and not wide[0].when
        and wide[0].axes[-1] in stream.widths
        and all(one.is_rescaled for one in stream.sums)
    )


def _is_scalar(tensor: Input, stream: Stream) -> bool:
    """Whether a tensor is a matrix, or has per-head, per-row or per-column values and no default."""
    others = {*tensor.type.axes} - {*stream.batch, *stream.heads}
    is_scalar = others in (set(), {stream.rows}, {stream.streamed}) and tensor.default is None
    return is_scalar or any(load.name == tensor.name for load in stream.matrices)


@dataclass(frozen=True, slots=True)
class Vectors(Places):
    """Reads per-row and per-column values as vectors, since threads would hold copies of them along another axis."""

    def mask(self, axes: tuple[str, ...]) -> Expr | None:
        masks = {self.stream.rows: V.tile_rows < V.n_rows, self.stream.streamed: V.block_mask}
        return next((mask for axis, mask in masks.items() if axis in axes), None)

    def reads(self, tensor: Input) -> list[Line]:
        # The slots of a dataclass leave `super` without its arguments another class.
        lines = Places.reads(self, tensor)
        return [line.mapped(spread) for line in lines] if self.stream.rows in tensor.type.axes else lines

    def widen(self, tensor: Input) -> tuple[str, ...]:
        # Matrices are half precision, so flags are passed unconverted.
        return Tile.widen(self, tensor)


class Scaled(OfRows):
    """Takes exponentials to base 2 of scores times `factor`, which includes their scale."""

    def call(self, node: Call) -> Expr:
        match node:
            case Call(function="exp", args=(Call(function="sub", args=(x, Ref(name=y))),)) if (
                self.in_loop and y == self.largest
            ):
                factor = spread(V.factor) if self.low else V.factor
                return tl.exp2(self.in_compute(x) * factor - spread(V.shift))
            case Call(function="div", args=(x, y)) if self.spreads and self.is_of_rows(y):
                return self.in_compute(x) * spread(expr(1) / self.of_rows(y))
        return super().call(node)


class _GluonBuilder(GluonBuilder):
    """Makes the lines between the matmuls of scores and sums, and the epilogue.

    Matrices are in shared memory, and the template has their matmuls. Per-row values are vectors in the loop, since
    threads would hold copies of them along an axis of columns.
    """

    def __init__(self, program: StreamingProgram) -> None:
        super().__init__(program)
        self.scale, self.unscaled = scale_of(self.op, self.score, self.stream)
        self.sloped = None if self.low else sloped(self.op, self.score, self.stream)
        self.unread = self.sloped.unread if self.sloped else frozenset[str]()
        self.weights = ""
        (score,), (matrix,) = self.stream.scores, self.stream.summed
        self.q, self.k, self.v, self.o = score.left.name, score.right.name, matrix.name, self.wide[0].output.name
        self.kinds |= {self.q: "rows", self.o: "rows", self.k: "cols", self.v: "cols"}

    vectors, of_rows, row_index = Vectors, Scaled, "tile_rows"
    masked = V.MASKED
    at_the_end = V.LAST  # the only block that may reach past the end

    def row_tile(self, load: Load) -> None:
        pass

    def product(self, score: Scores) -> None:
        pass

    def add_product(self, name: str, factor: Expr, matrix: Load, so_far: Expr) -> None:
        self.weights = factor.text if factor.is_name else f"{name}_factor"
        if not factor.is_name:
            self.lines.loop.append(Let(self.weights, factor))

    def begin(self) -> None:
        pass

    def inner(self, value: Value) -> None:
        """A value of the tile; scores lack the scale that exponents apply, or the per-row term of a slope."""
        if value.name == self.score and self.scale:
            value = replace(value, node=self.unscaled)
        elif value.name == self.score and self.sloped:
            self.lead(self.sloped.lead)
            value = replace(value, node=self.sloped.score)
        if value.name not in self.unread:
            super().inner(value)

    def lead(self, node: Node) -> None:
        """Adds the lines of the bias that a slope gives each row at the first column of a block."""
        self.lowering.begin("lead")
        lead = Let("lead", self.lowering.in_compute(node))
        says = f"Within a block, {shown(self.score)} is without what its rows have at the first column."
        first = Let("first_col", V.start.to("tl.int32"), comment=says)
        self.lines.loop += [first, *self.lowering.pending, lead]

    def online_max(self, name: str) -> Expr:
        given = ([] if self.low else [V.factor]) + ([V.lead] if self.sloped else [])
        return runtime[f"online_row_max{'_led' if self.sloped else self.low}"](name, self.score, *given)

    def add_row_total(self, name: str, factor: Expr, so_far: Expr) -> Line:
        return Let(name, runtime.add_columns(name, V.rescale, factor))

    # The pipeline

    def kernels(self) -> GluonKernels | None:
        """The kernels; None if lines call functions that Gluon lacks or use `tile_mask` in the loop, or if bounds or
        the epilogue read values computed before the loop, since rows have another layout there.
        """
        self.build()
        setup, loop, end = (nested(lines) for lines in (self.lines.setup, self.lines.loop, self.lines.end))
        reads, computed = _parted(setup, self.scalars)
        columns, inner = [line for line in loop if line.assigned in self.of_cols], _parted(loop, self.scalars)[1]
        inner = [*computed, *inner]
        bounds = self.bounds_of(reads)
        others = {*(name for line in computed for name in line.targets), *self.scalars} - {*self.of_heads}
        takes = (
            calls_only([*bounds, *inner, *_parted(end, self.of_heads)[1]], SHARED)
            and not names_in(end, others)
            and "tile_mask" not in names_of(inner)
            and self.has_bounds(bounds, others)
        )
        if not takes:
            return None
        scale = self.lowering.expression(self.scale) if self.scale else expr(1.0)
        is_signed = scale in [V[one.name] for one in param_arguments(self.op, self.compute)]
        says = "exp2 takes |scale|, so that the row max stays a max; its sign goes into the rows."
        magnitude = tl.maximum(tl.abs(scale), 1e-30) if is_signed else tl.to_tensor(scale)
        uneven = "Unequal tiles (causal: the last are longest): long ones first, each followed by the shortest left."
        mirrored = Let("tile", runtime.mirrored("tile", V.n_heads * V.tiles, 8 * V.tiles), comment=uneven)
        (dot,), sums = ([one.name for one in self.stream.sums if (one.matrix is None) == n] for n in (False, True))
        of_scores = 2 * (V.STAGES - 1), 1
        return self.piped(
            "forward",
            {self.q: (2, 1), self.k: ("STAGES", 2), self.v: ("STAGES", 2), **dict.fromkeys(self.tiled, of_scores)},
            PROGRAMS=f"Persistent over tiles of {self.stream.rows}",
            Q=self.q,
            K=self.k,
            V=self.v,
            O=self.o,
            COPIED=(self.o,),
            GIVEN=(f"{self.o}_desc", f"{self.o}_blocks", *self.passed),
            SCALARS=(*self.scalars,),
            OF_COLS=(*self.of_cols,),
            MIRRORED=(mirrored,) if self.blocks.tiles else (),
            BOUNDS=(*needed_by(bounds, reads), *bounds),
            LAST_RUN=len(self.blocks.runs) - 1,
            SCORE=self.stream.scores[0].name,
            DOT=dot,
            LARGEST=self.stream.largest,
            LEAST=partial_sums.LEAST if self.low else V.LOWEST,
            SUMS=(*sums,),
            LARGEST_READ=(*names_in(end, [self.stream.largest]),),
            SUMS_READ=(*names_in(end, sums),),
            STATE=(self.stream.largest, *sums),
            WEIGHTS=self.weights,
            FACTOR=(Given("factor", runtime.to_base2(magnitude), comment=says if is_signed else ""),),
            SIGN=(Branch(scale < 0, (Do(runtime.negate(self.q)),)),) if is_signed else (),
            COLUMNS=(*columns,),
            READS=needed_by([*inner, *end], reads),
            MATH=(*inner,),
            END=end,
        )


def _parted(lines: Iterable[Line], names: Container[str]) -> tuple[list[Line], list[Line]]:
    """Lines that assign some names, and others."""
    lines = [*lines]
    return [one for one in lines if one.assigned in names], [one for one in lines if one.assigned not in names]
