"""The Gluon kernel beside a plain one: on Hopper one warp loads blocks by TMA, and two warp groups compute."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...lang.ir import Call, Load, Node, Op, Ref, Value
from ...lang.names import shown
from ...lowering.tile import Tile
from ...nest.ir import Let, Line, names_of, nested
from ...nest.values import Expr, V, expr, runtime, tl
from ...passes.masks.expressions import Number
from ...spec.types import Input
from ..gluon import SHARED, calls_only, gluon_value, in_gluon, listed, names_in
from ..stream import Scores, Stream
from . import partial_sums
from .gluon_shared import (
    GluonBuilder,
    GluonLines,
    OfRows,
    Signature,
    bounds_of,
    is_for_gluon,
    is_of_scores,
    matrices_in,
    scale_value,
    spread,
)
from .kernels import Builder
from .places import Places
from .program import StreamingProgram
from .scores import scale_of, sloped
from .streams import is_row_sum


def gluon_view(program: StreamingProgram) -> dict[str, Any] | None:
    """What the template prints of a mean with weights below a largest, of queries, keys and values, of numbers of
    heads, rows or columns and of one for each score; None for other math.
    """
    op, stream = program.in_kernels, program.stream
    takes = (
        _is_mean(op, stream)
        and is_for_gluon(op, stream)
        and _reads_scalars(op, stream)
        and not _begins_late(program)
        and not any(is_row_sum(value, stream) for value in op.values)
    )
    return _GluonBuilder(program).view() if takes else None


def _is_mean(op: Op, stream: Stream) -> bool:
    """Whether there is one matrix of results, made of three, with weights that fall as the largest grows."""
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


def _reads_scalars(op: Op, stream: Stream) -> bool:
    """Whether tensors that are no matrices have one value for each head, row or column, or for each score."""
    matrices = {load.name for load in stream.matrices}
    others = [tensor for tensor in op.inputs if tensor.name not in matrices]
    return all(has_scalars(tensor, stream) or is_of_scores(tensor, stream) for tensor in others)


def _begins_late(program: StreamingProgram) -> bool:
    """Whether a mask cuts blocks off at the front, as a window does: of few blocks, most of them masked, the plain
    kernel computes a fifth more in the same time.
    """
    tiles = program.blocks.tiles
    return tiles is not None and tiles.some.first != Number(0)


def has_scalars(tensor: Input, stream: Stream) -> bool:
    """Whether a tensor has one value for each head, row or column, or for several."""
    others = {*tensor.type.axes} - {*stream.batch, *stream.heads}
    return others in (set(), {stream.rows}, {stream.streamed}) and tensor.default is None


@dataclass(frozen=True, slots=True)
class Vectors(Places):
    """Reads per-row and per-column values without the other axis, along which threads would hold each many times."""

    def mask(self, axes: tuple[str, ...]) -> Expr | None:
        masks = {self.stream.rows: V.tile_rows < V.n_rows, self.stream.streamed: V.block_mask}
        return next((mask for axis, mask in masks.items() if axis in axes), None)

    def reads(self, tensor: Input) -> list[Line]:
        # The slots of a dataclass leave `super` without its arguments another class.
        lines = Places.reads(self, tensor)
        return [line.mapped(spread) for line in lines] if self.stream.rows in tensor.type.axes else lines

    def widen(self, tensor: Input) -> tuple[str, ...]:
        # Matrices are half precision, beside which flags are passed as they are.
        return Tile.widen(self, tensor)


class Scaled(OfRows):
    """Takes exponentials to base 2 of scores times a factor, which has their scale."""

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
    """Makes the lines between the matmul of scores and that of the sums, and those behind the loop.

    Matrices are in shared memory, and the template multiplies them. Per-row values have no axis of columns in the
    loop: threads would hold each many times along it.
    """

    def __init__(self, program: StreamingProgram) -> None:
        super().__init__(program)
        self.scale, self.unscaled = scale_of(self.op, self.score, self.stream)
        self.sloped = None if self.low else sloped(self.op, self.score, self.stream)
        self.unread = self.sloped.unread if self.sloped else frozenset[str]()
        self.weights = ""

    vectors, of_rows, row_index = Vectors, Scaled, "tile_rows"
    masked = V.MASKED
    at_the_end = V.LAST  # the only block that has what is past the end

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
        """A value of the tile; scores without the scale that exponents take, or without their rows' part of a slope."""
        if value.name == self.score and self.scale:
            value = replace(value, node=self.unscaled)
        elif value.name == self.score and self.sloped:
            self.lead(self.sloped.lead)
            value = replace(value, node=self.sloped.score)
        if value.name not in self.unread:
            super().inner(value)

    def lead(self, node: Node) -> None:
        """What a slope adds to each row at the first column of a block."""
        self.lowering.begin("lead")
        lead = Let("lead", self.lowering.in_compute(node))
        says = f"Within a block, {shown(self.score)} is without what its rows have at the first column."
        first = Let("first_col", V.start.to("tl.int32"), comment=says)
        self.lines.loop += [first, *self.lowering.pending, lead]

    def elements(self, values: list[Value], lines: list[Line] | None = None) -> None:
        """Values that are read before the loop or for each block are vectors."""
        if lines is None:
            super().elements(values)
        else:
            Builder.elements(self, values, lines)

    def online_max(self, name: str) -> Expr:
        given = ([] if self.low else [V.factor]) + ([V.lead] if self.sloped else [])
        return runtime[f"online_row_max{'_led' if self.sloped else self.low}"](name, self.score, *given)

    def add_row_total(self, name: str, factor: Expr, so_far: Expr) -> Line:
        return Let(name, runtime.add_columns(name, V.rescale, factor))

    # Assembly

    def view(self) -> dict[str, Any] | None:
        """What the template prints; None where lines call what Gluon has not, or what is computed before the loop is
        asked for where tiles are, or behind the loop, where rows lie otherwise.
        """
        self.build()
        lines = self.arranged()
        if lines is None:
            return None
        scale, wide = scale_value(self.lowering, self.scale), self.wide[0].output.name
        described = {*(load.name for load in self.stream.matrices), *self.tiled, wide}
        signature = Signature(self, lines, described, scale)
        if signature.widths is None:
            return None
        tensors = self.matrix_names()
        kinds = dict.fromkeys((tensors["k"], tensors["v"]), "cols") | dict.fromkeys(self.tiled, "scores")
        return {
            "template": "gluon.jinja",
            **signature.view(),
            **tensors,
            **self.state_view(lines.end),
            **self.block_view(lines, signature),
            **self.columns_view(lines.columns, signature),
            "is_uneven": self.blocks.tiles is not None,
            "reads": in_gluon(lines.setup),
            "scale": scale and gluon_value(scale),
            "is_signed": scale in [V[one.name] for one in signature.params],
            "given": ", ".join([f"{wide}_desc", f"{wide}_blocks", *signature.passed]),
            "kinds": [kinds.get(name, "rows" if name in described else "") for name in signature.tensors],
        }

    def arranged(self) -> GluonLines | None:
        setup, loop, end = (nested(lines) for lines in (self.lines.setup, self.lines.loop, self.lines.end))
        reads, computed = _parted(setup, self.scalars)
        columns = [line for line in loop if line.assigned in self.of_cols]
        inner = (*computed, *_parted(loop, self.scalars)[1])
        bounds, found = bounds_of(self, reads)
        others = {*(name for line in computed for name in line.targets), *self.scalars} - {*self.of_heads}
        math_of_rows = [*bounds, *inner, *_parted(end, self.of_heads)[1]]
        takes = (
            calls_only(math_of_rows, SHARED)
            and not names_in([*bounds, *end], others)
            and "tile_mask" not in names_of(inner)
            and (found is None or found.is_of_inputs(others))
        )
        tile_reads = [line for line in reads if names_in(bounds, [line.assigned])]
        reads = [line for line in reads if names_in([*inner, *end], [line.assigned])]
        return GluonLines(bounds, found, tile_reads, reads, columns, inner, end) if takes else None

    def matrix_names(self) -> dict[str, str]:
        (score,), (matrix,) = self.stream.scores, self.stream.summed
        return {"q": score.left.name, "k": score.right.name, "v": matrix.name, "o": self.wide[0].output.name}

    @property
    def state(self) -> list[str]:
        """The largest and the sums of rows, which the math of a block updates."""
        return [self.stream.largest, *(one.name for one in self.stream.sums if one.matrix is None)]

    def state_view(self, end: Sequence[Line]) -> dict[str, Any]:
        """The scores and what blocks add up, and what of that is asked for behind the loop."""
        stream, at_end = self.stream, names_of(end)
        return {
            "score": self.stream.scores[0].name,
            "dot": next(one.name for one in stream.sums if one.matrix is not None),
            "largest": stream.largest,
            "least": partial_sums.LEAST if self.low else "LOWEST",
            "sums": self.state[1:],
            "state": ", ".join(self.state),
            "end_state": names_in(end, self.state),
            "use_end_rows": not at_end.isdisjoint(("rows", "row_mask")),
            "use_row_mask": "row_mask" in at_end,
        }

    def block_view(self, lines: GluonLines, signature: Signature) -> dict[str, Any]:
        """The function of the math of a block."""
        loop, in_loop = lines.loop, names_of(lines.loop)
        has_col_mask = "col_mask" in in_loop
        rows = names_in(loop, ["tile_rows" if self.sloped else "rows"])
        lengths = names_in(loop, ["n_rows"]) + ["n_cols"] * (has_col_mask or "n_cols" in in_loop)
        of_half = ["n_heads", "n_rows", *lengths, *(["n_cols"] if self.of_cols else [])]
        return {
            "is_low": bool(self.low),
            "is_led": bool(self.sloped),
            "block_state": ", ".join([*self.state, *rows, *names_in(loop, self.scalars)]),
            "lengths_of_half": signature.unpacked(of_half, [*lines.setup, *lines.end]),
            "block_params": listed([*lengths, *names_in(loop, signature.uniform)]),
            "is_masked": self.masked.text in in_loop,
            "use_cols": has_col_mask or "cols" in in_loop,
            "use_col_mask": has_col_mask,
            "use_rows": "rows" in in_loop,
            "use_tile_rows": "tile_rows" in in_loop | names_of(lines.setup),
            "weights": self.weights,
        }

    def columns_view(self, columns: Sequence[Line], signature: Signature) -> dict[str, Any]:
        """The function that reads per-column values."""
        passed = [*signature.heads, *signature.pointers, *signature.steps]
        return {
            "col_reads": in_gluon(columns),
            "of_cols": ", ".join(self.of_cols),
            "spread_cols": ", ".join(f"across_columns({name})" for name in self.of_cols),
            "col_params": listed(names_in(columns, passed)),
        }


def _parted(lines: Iterable[Line], names: Container[str]) -> tuple[list[Line], list[Line]]:
    """Lines that assign some names, and others."""
    lines = [*lines]
    return [one for one in lines if one.assigned in names], [one for one in lines if one.assigned not in names]
