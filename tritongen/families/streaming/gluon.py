"""The Gluon kernel beside a plain one: on Hopper one warp loads blocks by TMA, and two warp groups compute."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import Any

from ...emit.host_checks import tuple_text
from ...lang.ir import Call, Load, Node, Ref, Result, Value
from ...lang.names import in_string, shown
from ...lang.trees import parse
from ...lowering.assemble import param_arguments, param_casts
from ...lowering.lower import Compute, compute_of
from ...lowering.tile import Tile
from ...nest.ir import Line, lines_of, names_of, nested
from ...passes.masks.expressions import Number
from ...spec.types import Input
from ..stream import Scores, Stream
from . import partial_sums
from .below import Below
from .gluon_shared import (
    HALF,
    SHARED,
    bounds_of,
    gluon_text,
    head_of_scores,
    in_gluon,
    is_of_scores,
    lengths_of_widths,
    listed,
    scale_text,
    told,
)
from .kernels import Builder
from .places import Places
from .program import StreamingProgram
from .scales import scale_of
from .slopes import sloped
from .spelling import operand
from .streams import is_row_sum


def gluon_view(program: StreamingProgram) -> dict[str, Any] | None:
    """What the template prints of a mean with weights below a largest, of queries, keys and values, of numbers of
    heads, rows or columns and of one for each score; None for other math.
    """
    op, stream = program.in_kernels, program.stream
    names = {load.name for load in stream.matrices}
    matrices = [tensor for tensor in op.inputs if tensor.name in names]
    wide = [result for result in op.results if _is_wide(result, stream)]
    tiled = [tensor for tensor in op.inputs if is_of_scores(tensor, stream)]
    takes = (
        stream.largest
        and not stream.turns
        and len(stream.scores) == len(stream.summed) == len(wide) == 1
        and len(matrices) == 3
        and all(set(tensor.type.dtypes) & HALF and tensor.type.axes[-1] in stream.widths for tensor in matrices)
        and all(tensor in matrices or is_of_numbers(tensor, stream) or tensor in tiled for tensor in op.inputs)
        and len(tiled) <= 1
        and not _begins_late(program)
        and not wide[0].when
        and wide[0].axes[-1] in stream.widths
        and not any(param.kind in ("bool", "enum") for param in op.params)
        and not compute_of(op).in_float64
        and not any(is_row_sum(value, stream) for value in op.values)
        and all(one.falls for one in stream.sums)
    )
    return _GluonBuilder(program, wide[0]).view() if takes else None


def _begins_late(program: StreamingProgram) -> bool:
    """Whether a mask cuts blocks off at the front, as a window does: of few blocks, most of them masked, the plain
    kernel computes a fifth more in the same time.
    """
    tiles = program.blocks.tiles
    return tiles is not None and tiles.some.first != Number(0)


def is_of_numbers(tensor: Input, stream: Stream) -> bool:
    """Whether a tensor has one number for each head, row or column, or for several."""
    others = {*tensor.type.axes} - {*stream.batch, *stream.heads}
    return others in (set(), {stream.rows}, {stream.streamed}) and tensor.default is None


@dataclass(frozen=True, slots=True)
class Vectors(Places):
    """Reads numbers of rows and columns without the other axis, along which threads would hold each many times."""

    def mask(self, axes: tuple[str, ...]) -> str:
        masks = {self.stream.rows: "tile_rows < n_rows", self.stream.streamed: "block_mask"}
        return next((mask for axis, mask in masks.items() if axis in axes), "")

    def reads(self, tensor: Input) -> list[Line]:
        # The slots of a dataclass leave `super` without its arguments another class.
        lines = Places.reads(self, tensor)
        behind = "[:, None]" if self.stream.rows in tensor.type.axes else ""
        return [replace(line, text=f"{line.text}{behind}") for line in lines]

    def widen(self, tensor: Input) -> str:
        # Matrices are half precision, beside which flags are passed as they are.
        return Tile.widen(self, tensor)


@dataclass
class Scaled(Below):
    """Takes exponentials to base 2 of scores times a factor, which has their scale, and behind the loop spreads numbers
    of rows, where they meet a matrix, along its columns.
    """

    rows: str = ""
    widths: frozenset[str] = frozenset()
    spreads: bool = False

    def expression(self, node: Node) -> ast.expr:
        if self.spreads and self.is_of_rows(node):
            return parse(f"{self.of_rows(node)}[:, None]")
        return super().expression(node)

    def call(self, node: Call) -> ast.expr:
        match node:
            case Call(function="exp", args=(Call(function="sub", args=(x, Ref(name=y))),)) if (
                self.in_loop and y == self.largest
            ):
                factor = "factor[:, None]" if self.low else "factor"
                return parse(f"tl.exp2({ast.unparse(self.in_compute(x))} * {factor} - shift[:, None])")
            case Call(function="div", args=(x, y)) if self.spreads and self.is_of_rows(y):
                return parse(f"{operand(ast.unparse(self.in_compute(x)))} * (1 / {self.of_rows(y)})[:, None]")
        return super().call(node)

    def tanh(self, x: str, _: tuple[str, ...]) -> ast.expr:
        return parse(f"tanh_half({x})")

    def is_of_rows(self, node: Node) -> bool:
        return self.rows in node.axes and not self.widths & set(node.axes)

    def of_rows(self, node: Node) -> str:
        """What is one number for each row."""
        self.spreads = False
        text = ast.unparse(self.in_compute(node))
        self.spreads = True
        return operand(text)


class _GluonBuilder(Builder):
    """Makes the lines between the matmul of scores and that of the sums, and those behind the loop.

    Matrices are in shared memory, and the template multiplies them. Numbers of rows have no axis of columns in the
    loop: threads would hold each many times along it.
    """

    def __init__(self, program: StreamingProgram, wide: Result) -> None:
        super().__init__(program)
        self.wide = wide
        self.compute = Compute("tl.float32")
        self.places = replace(self.places, compute=self.compute)
        indices = {self.stream.rows: "tile_rows", self.stream.streamed: "block_cols"}
        cols = [replace(dim, index=indices.get(dim.axes[0], dim.index)) for dim in self.space.cols]
        space = replace(self.space, cols=tuple(cols))
        self.vectors = Vectors(self.op, space, self.compute, stream=self.stream)
        self.scaled = self.lowering = self.lowered_by(Scaled)
        self.scaled.rows, self.scaled.widths = self.stream.rows, frozenset(self.stream.widths)
        self.scale, self.unscaled = scale_of(self.op, self.score, self.stream)
        self.sloped = None if self.low else sloped(self.op, self.score, self.stream)
        self.unread = self.sloped.unread if self.sloped else frozenset[str]()
        self.weights = ""

    index = "tl.int32"
    masked = "MASKED"
    at_the_end = "LAST"  # the only block that has what is past the end

    def row_tile(self, load: Load) -> None:
        pass

    def product(self, score: Scores) -> None:
        pass

    def add_product(self, name: str, factor: str, matrix: Load, so_far: str) -> None:
        self.weights = factor if factor.isidentifier() else f"{name}_factor"
        if factor != self.weights:
            self.lines.loop.append(Line(f"{self.weights} = {factor}"))

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
        text = ast.unparse(self.lowering.in_compute(node))
        says = f"Within a block, {shown(self.score)} is without what its rows have at the first column."
        lines = [Line("first_col = start.to(tl.int32)", says), *self.lowering.pending, Line(f"lead = {text}")]
        self.lines.loop += lines

    def elements(self, values: list[Value], lines: list[Line] | None = None) -> None:
        """Numbers that are read before the loop or for each block are vectors."""
        whole = self.places
        self.places = self.vectors if lines is None else whole
        super().elements(values, lines)
        self.places = whole

    def online_max(self, name: str, factor: str) -> str:
        given = "" if self.low else ", factor"
        kind = "_led" if self.sloped else self.low
        led = ", lead" if self.sloped else ""
        return f"{name}, shift, {factor}rescale = online_row_max{kind}({name}, {self.score}{given}{led})"

    def add_row_total(self, name: str, factor: str, so_far: str) -> Line:
        return Line(f"{name} = add_columns({name}, rescale, {factor})")

    def final(self, value: Value) -> list[Line]:
        self.scaled.spreads = bool(set(value.node.axes) & self.scaled.widths)
        return super().final(value)

    def store(self, result: Result) -> list[Line]:
        return [] if result == self.wide else super().store(result)

    # The whole

    def view(self) -> dict[str, Any] | None:
        """What the template prints; None where lines call what Gluon has not, or what is computed before the loop is
        asked for where tiles are, or behind the loop, where rows lie otherwise.
        """
        self.build()
        stream, matrices = self.stream, {load.name for load in self.stream.matrices}
        single = {tensor.name: tensor.type.axes for tensor in self.op.inputs if tensor.name not in matrices}
        of_heads = [name for name, axes in single.items() if not {stream.rows, stream.streamed} & {*axes}]
        tiled = [tensor.name for tensor in self.op.inputs if is_of_scores(tensor, stream)]
        of_cols = [name for name, axes in single.items() if stream.streamed in axes and name not in tiled]
        setup, loop, end = (nested(lines) for lines in (self.lines.setup, self.lines.loop, self.lines.end))
        reads = [line for line in setup if line.assigned in single]
        block_reads = [line for line in loop if line.assigned in single]
        col_reads = [line for line in block_reads if line.assigned in of_cols]
        setup = tuple(line for line in setup if line not in reads)
        loop = (*setup, *(line for line in loop if line not in block_reads))
        bounds, found = bounds_of(self, reads)
        before = {name for line in setup for name in line.targets}
        math_of_rows = [*bounds, *loop, *(line for line in end if line.assigned not in of_heads)]
        tile_reads = [line for line in reads if told(bounds, [line.assigned])]
        reads = [line for line in reads if told([*loop, *end], [line.assigned])]
        is_shared = all(set(re.findall(r"\btl\.(\w+)", line.text)) <= SHARED for line in lines_of(math_of_rows))
        dims = self.space.rows
        others = {*before, *single} - {*of_heads}
        in_loop, at_end = names_of(loop), names_of(end)
        if not is_shared or told([*bounds, *end], others) or "tile_mask" in in_loop:
            return None
        if found and not found.is_of_inputs(others):
            return None
        (score,), (matrix,) = stream.scores, stream.summed
        group = self.places.dims(stream.heads)
        heads = [dim.index for dim in (*dims, *group)]
        head_of_rows = [dim.index for dim in self.places.described_dims(stream.heads)]
        used = {*head_of_rows, *told([*reads, *col_reads, *loop, *end], heads)}
        lengths = ["n_heads", "n_rows", "n_cols", *(dim.size for dim in (*dims[1:], *group))]
        of_group = [f"{dim.index} = head % {dim.size}" for dim in group] + [f"head //= {dim.size}" for dim in group]
        largest, *sums = state = [stream.largest, *(one.name for one in stream.sums if one.matrix is None)]
        tensors = [*(tensor.name for tensor in self.op.inputs), *(result.output.name for result in self.op.results)]
        described = [*(name for name in tensors if name in {*matrices, *tiled}), self.wide.output.name]
        pointers = [f"{name}_ptr" for name in tensors if name not in described] + ["bounds_ptr"] * bool(found)
        strides = self.strides(names_of([*reads, *tile_reads, *col_reads, *end]))
        steps = [*(one.name for one in strides), *(found.strides if found else [])]
        names = [*pointers, *steps]
        scale = scale_text(self.lowering, self.scale)
        mentioned = [*bounds, *loop, *end, *([Line(scale)] if scale else [])]
        known = names_of(mentioned)
        numbers = [one for one in param_arguments(self.op, self.compute) if one.name in known]
        params = [one.name for one in numbers]
        casts = [line for line in param_casts(self.op, self.compute, self.lowering) if line.assigned in params]
        widths = lengths_of_widths(self, [*mentioned, *reads, *tile_reads], lengths)
        if widths is None:
            return None
        uniform = [*(line.assigned for line in widths), *params]
        has_col_mask = "col_mask" in in_loop
        block = told(loop, ["n_rows"]) + (["n_cols"] if has_col_mask or "n_cols" in in_loop else [])
        given = [f"{name}_desc" if name in described else f"{name}_ptr" for name in tensors]
        signature = [*given, *(["bounds_ptr"] if found else []), *lengths, *steps, *(one.spelling for one in numbers)]
        integers = [param.name for param in self.op.params if param.kind == "int" and param.name in params]
        kinds = dict.fromkeys((score.right.name, matrix.name), "cols") | dict.fromkeys(tiled, "scores")
        return {
            "family": "streaming",
            "template": "gluon.jinja",
            "name": self.op.name,
            "rows": stream.rows,
            "streamed": stream.streamed,
            "q": score.left.name,
            "k": score.right.name,
            "v": matrix.name,
            "o": self.wide.output.name,
            "score": score.name,
            "dot": next(one.name for one in stream.sums if one.matrix is not None),
            "largest": largest,
            "least": partial_sums.LEAST if self.low else "LOWEST",
            "is_low": bool(self.low),
            "is_led": bool(self.sloped),
            "sums": sums,
            "state": ", ".join(state),
            "heads": ", ".join(heads),
            "heads_of_half": ", ".join(name if name in used else f"_{name}" for name in heads),
            "head": tuple_text([dim.index for dim in dims]),
            "head_of_rows": tuple_text(head_of_rows),
            "lengths": ", ".join(lengths),
            "decode": [*map(Line, of_group), *self.places.decode()],
            "bounds": in_gluon(bounds),
            "found": found and found.view(),
            "found_of": [tensors.index(name) for name in found.names] if found else [],
            "n_parts": len(self.blocks.parts),
            "cycle": self.blocks.cycle is not None,
            "count": self.blocks.count,
            "whole": self.blocks.parts.index("whole"),
            "is_uneven": self.blocks.tiles is not None,
            "tile_reads": in_gluon(tile_reads),
            "tile_params": listed(told([*tile_reads, *bounds], [*names, *uniform])),
            "reads": in_gluon(reads),
            "block_state": ", ".join(
                [*state, *told(loop, ["tile_rows"] if self.sloped else ["rows"]), *told(loop, single)]
            ),
            "block_params": listed([*block, *told(loop, uniform)]),
            "is_masked": self.masked in in_loop,
            "use_cols": has_col_mask or "cols" in in_loop,
            "use_col_mask": has_col_mask,
            "use_rows": "rows" in in_loop,
            "use_tile_rows": "tile_rows" in in_loop | names_of(reads),
            "col_reads": in_gluon(col_reads),
            "of_cols": ", ".join(of_cols),
            "spread_cols": ", ".join(f"across_columns({name})" for name in of_cols),
            "col_params": listed(told(col_reads, [*heads, *names])),
            "tiled": tiled[0] if tiled else "",
            "head_of_tiled": head_of_scores(tiled[0], self.places) if tiled else "",
            "loop": in_gluon(loop),
            "weights": self.weights,
            "scale": gluon_text(scale),
            "is_signed": scale in params,
            "use_end_rows": not at_end.isdisjoint(("rows", "row_mask")),
            "use_row_mask": "row_mask" in at_end,
            "end_state": told(end, state),
            "end": in_gluon(end),
            "given": ", ".join([*(f"{described[-1]}_{one}" for one in ("desc", "blocks")), *names, *uniform]),
            "signature": ", ".join(signature),
            "casts": in_gluon([*widths, *casts]),
            "fixed": repr([*map(in_string, ["n_heads", "n_rows", "n_cols", *integers])]),
            "kinds": [kinds.get(name, "rows" if name in described else "") for name in tensors],
        }


def _is_wide(result: Result, stream: Stream) -> bool:
    """Whether a result is a matrix, and not a number for each row."""
    return bool(set(result.axes) & set(stream.widths))
