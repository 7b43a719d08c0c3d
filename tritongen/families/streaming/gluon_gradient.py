"""The Gluon kernel of a gradient, as dq or dk and dv, beside a plain one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...emit.host_checks import tuple_text
from ...lang.ir import Call, Load, Node, Op, Ref, Result, Value, walk
from ...lang.names import in_string
from ...lang.trees import parse
from ...lowering.assemble import param_arguments, param_casts
from ...lowering.lower import Compute, Lowering, compute_of
from ...nest.ir import Line, lines_of, names_of, nested
from ...passes.masks.expressions import Number
from ...passes.masks.tiles import longest
from ...spec.types import Input
from ..stream import Scores, Stream, StreamSum
from .below import Below
from .gluon_shared import (
    HALF,
    SHARED,
    bounds_of,
    gluon_text,
    head_of_scores,
    in_gluon,
    is_across,
    is_of_scores,
    lengths_of_widths,
    listed,
    reads_matrices_behind,
    scale_text,
    told,
)
from .kernels import Builder
from .partial_sums import LEAST
from .places import Places
from .program import StreamingProgram
from .scales import to_base2
from .spelling import operand


def gradient_view(program: StreamingProgram) -> dict[str, Any] | None:
    """What the template prints of one sum or two, each the matmul of what two scores give with a matrix that one of
    these is of; None for other math.
    """
    op, stream = program.in_kernels, program.stream
    matrices = {load.name for load in stream.matrices}
    streamed = [score.right.name for score in stream.scores]
    wide = [result for result in op.results if set(result.axes) & set(stream.widths)]
    tiled = tiled_of(op, stream)
    pair = {stream.rows, stream.streamed}
    takes = (
        not (stream.largest or stream.turns or program.pages)
        and len(stream.scores) == len(set(streamed)) == 2
        and len(stream.sums) == len({load.name for load in stream.summed} & {*streamed}) == len(wide)
        and all(set(op.input(name).type.dtypes) & HALF for name in matrices)
        and all(op.input(name).type.axes[-1] in stream.widths for name in matrices)
        and all(tensor.default is None for tensor in op.inputs)
        and all(tensor in tiled or not pair <= set(tensor.type.axes) for tensor in op.inputs)
        and len(tiled) <= 1
        and all(not part.at for value in op.values for part in walk(value.node) if isinstance(part, Load))
        and not reads_matrices_behind(op, stream)
        and not any(result.when for result in op.results if result not in wide)
        and not any(param.kind in ("bool", "enum") for param in op.params)
        and not compute_of(op).in_float64
        and (len(stream.sums) == 1 or not _spills(op))
    )
    return _GradientBuilder(program, wide).view() if takes else None


def _spills(op: Op) -> bool:
    """Whether two sums leave too few registers for the math of scores: the plain kernel is faster by 8 % then."""
    return any(isinstance(part, Call) and part.function == "tanh" for value in op.values for part in walk(value.node))


def tiled_of(op: Op, stream: Stream) -> list[Input]:
    """The tensors with a number for each score."""
    return [tensor for tensor in op.inputs if is_of_scores(tensor, stream) or is_across(tensor, stream)]


@dataclass(frozen=True, slots=True)
class _Vectors(Places):
    """Reads numbers of columns as vectors, of which each thread has one, and those of scores of a ring."""

    def reads(self, tensor: Input) -> list[Line]:
        if tensor not in tiled_of(self.op, self.stream):
            # The slots of a dataclass leave `super` without its arguments another class.
            return Places.reads(self, tensor)
        across = ", True" if is_across(tensor, self.stream) else ""
        read = f"read_scores({tensor.name}_ring, 2 * step + half{across})"
        return [Line(f"{tensor.name} = {read}.to({self.compute.text})")]

    def mask(self, axes: tuple[str, ...]) -> str:
        mask = Places.mask(self, axes)
        return "block_mask" if mask == "col_mask" else mask


@dataclass
class _OfRows(Below):
    """Has vectors of what is a number for each row, and spreads these where they meet more. Exponentials of `score`,
    which is in base 2, are to that base.
    """

    rows: str = ""
    others: frozenset[str] = frozenset()
    score: str = ""
    spreads: bool = False

    def expression(self, node: Node) -> ast.expr:
        if not self.spreads or self.rows not in node.axes or self.others & set(node.axes):
            return super().expression(node)
        return parse(f"{self.of_rows(node)}[:, None]")

    def of_rows(self, node: Node) -> str:
        self.spreads = False
        text = operand(ast.unparse(self.expression(node)))
        self.spreads = True
        return text

    def call(self, node: Call) -> ast.expr:
        match node:
            case Call(function="exp", args=(Call(function="sub", args=(Ref(name=x), y)),)) if x == self.score:
                if self.rows in y.axes:
                    return parse(f"tl.exp2({x} - to_base2({self.of_rows(y)})[:, None])")
                return parse(f"tl.exp2({x} - {self.below_of_columns(y)})")
            case Call(function="exp", args=(Call(function="sub", args=(x, Load() as y)),)) if self.is_of_columns(y):
                return parse(f"exp2_shifted({ast.unparse(self.in_compute(x))}, {self.below_of_columns(y)})")
        return super().call(node)

    def is_of_columns(self, node: Node) -> bool:
        return self.rows not in node.axes and bool(self.others & set(node.axes))

    def below_of_columns(self, node: Node) -> str:
        """Numbers of columns to base 2: of what is read, each thread takes its own there, before they are spread."""
        if isinstance(node, Load):
            return f"across_columns(to_base2({node.name}))"
        return f"to_base2({ast.unparse(self.in_compute(node))})"

    def tanh(self, x: str, _: tuple[str, ...]) -> ast.expr:
        return parse(f"tanh_half({x})")


class _GradientBuilder(Builder):
    """Makes the lines of the loop and those around it.

    Matrices are in rings of blocks in shared memory, and matmuls are in flight until a line needs what they give.
    """

    def __init__(self, program: StreamingProgram, wide: list[Result]) -> None:
        super().__init__(program)
        stream = self.stream
        self.wide = wide
        self.compute = Compute("tl.float32")
        self.places = replace(self.places, compute=self.compute)
        cols = [replace(dim, index="block_cols") if stream.streamed in dim.axes else dim for dim in self.space.cols]
        self.vectors = _Vectors(self.op, replace(self.space, cols=tuple(cols)), self.compute, stream=stream)
        self.rows_lowering = self.lowering = self.lowered_by(_OfRows)
        self.rows_lowering.rows = stream.rows
        self.rows_lowering.others = frozenset({stream.streamed, *stream.widths})
        self.scale, self.to_base2 = to_base2(self.op, stream)
        self.rows_lowering.score = self.to_base2.name if self.to_base2 else ""
        self.tile: list[str] = []  # the matrices that are read for each tile
        self.in_flight: list[str] = []

    index = "tl.int32"

    # The loop

    def row_tile(self, load: Load) -> None:
        if load.name not in self.read:
            self.read.add(load.name)
            self.tile.append(load.name)
            self.lines.setup.append(Line(f"{load.name} = take({load.name}_ring, half)"))

    def product(self, score: Scores) -> None:
        """The scores of a block; the first begins all, in front of what else the block computes before."""
        if not self.in_flight:
            begins = []
            for one in self.stream.scores:
                self.row_tile(one.left)
                self.read.add(one.right.name)
                begins.append(Line(f"{one.right.name} = take({one.right.name}_ring, step)"))
                begins.append(Line(f"{one.name} = begin_scores({one.left.name}, {one.right.name})"))
                self.in_flight.append(one.name)
            self.lines.loop[:0] = begins
        self.wait(score.name)
        if score.right not in self.stream.summed:
            self.lines.loop.append(Line(f"give_back({score.right.name}_ring, step)"))

    def wait(self, name: str, *others: str) -> None:
        """Until a matmul has ended, which do so in the order in which they began."""
        del self.in_flight[: self.in_flight.index(name) + 1]
        names = [name, *others]
        wait = f"warpgroup_mma_wait({len(self.in_flight)}, deps={tuple_text(names)})"
        self.lines.loop.append(Line(f"{', '.join(names)} = {wait}"))

    def add_product(self, name: str, factor: str, matrix: Load, so_far: str) -> None:
        self.lines.loop.append(Line(f"{name}, {name}_left = add_product({name}, {factor}, {matrix.name})"))
        self.in_flight.append(name)

    def inner(self, value: Value) -> None:
        if self.to_base2 and value.name == self.to_base2.name:
            value = self.to_base2
        self.rows_lowering.spreads = self.streams(value.node.axes)
        super().inner(value)
        self.rows_lowering.spreads = False

    def final(self, value: Value) -> list[Line]:
        self.rows_lowering.spreads = not {*self.stream.widths}.isdisjoint(value.node.axes)
        lines = super().final(value)
        self.rows_lowering.spreads = False
        return lines

    def chosen(self, name: str, test: Node, other: Node) -> list[Line]:
        """What is past the end is masked with scores that become minus infinity, of which no weight is left: numbers of
        columns that these are below are 0 there.
        """
        least = ast.unparse(parse(LEAST))
        if ast.unparse(self.lowering.expression(other)) == least:
            for factor in [one for one in self.past_the_end if self.is_weight(self.op.value(one).node, name)]:
                del self.past_the_end[factor]
                self.past_the_end[name] = least
        return super().chosen(name, test, other)

    def is_weight(self, node: Node, score: str) -> bool:
        """Whether a node is the exponential of a score below a number for each column that is read."""
        match node:
            case Call(function="exp", args=(Call(function="sub", args=(Ref(name=name), Load() as y)),)):
                return name == score and self.streams(y.axes)
        return False

    def limits(self, test: Node) -> str:
        """Limits that differ from row to row are vectors, too."""
        spreads, self.rows_lowering.spreads = self.rows_lowering.spreads, False
        text = super().limits(test)
        self.rows_lowering.spreads = spreads
        names = self.blocks.limits_by_row if text else []
        return re.sub(rf"\b({'|'.join(names)})\b", r"\1[:, None]", text) if names else text

    def sum(self, total: StreamSum) -> None:
        self.rows_lowering.spreads = True
        super().sum(total)
        self.rows_lowering.spreads = False

    def loaded(self, node: Load, lowering: Lowering) -> ast.expr:
        if self.in_row_sum:
            return parse(f"in_float32({node.name})")
        is_of_cols = self.streams(node.axes) and self.stream.rows not in node.axes
        return parse(f"across_columns({node.name})") if is_of_cols else super().loaded(node, lowering)

    def elements(self, values: list[Value], lines: list[Line] | None = None) -> None:
        """Numbers are read as vectors."""
        whole, self.places = self.places, self.vectors
        super().elements(values, lines)
        self.places = whole

    def total_of_rows(self, text: str) -> str:
        return f"sum_of_rows({text}, by_row)"

    def begin(self) -> None:
        """Sums begin in the template; a block ends with their matmuls."""
        for name in [*self.in_flight]:
            self.wait(name, f"{name}_left")
            matrix = self.sums[name].matrix
            assert matrix is not None
            self.lines.loop.append(Line(f"give_back({matrix.name}_ring, step)"))

    def store(self, result: Result) -> list[Line]:
        return [] if result in self.wide else super().store(result)

    def memory(self) -> dict[str, str]:
        """The matrices of the tile by way of whose memory results are stored, each of one that is as wide."""
        found: dict[str, str] = {}
        for result in self.wide:
            free = (one.left.name for one in self.stream.scores if one.over == result.axes[-1:])
            if name := next((name for name in free if name not in found.values()), ""):
                found[result.output.name] = name
        return found

    def read_early(self, loop: Iterable[Line], numbers: list[str]) -> list[Line]:
        """The lines of a block, with what reads numbers of columns or scores right behind the matmuls that these begin
        with.
        """
        lines = [line for line in loop if line.assigned not in numbers]
        first = 2 * len(self.stream.scores)
        return [*lines[:first], *(line for line in loop if line.assigned in numbers), *lines[first:]]

    # The whole

    def view(self) -> dict[str, Any] | None:
        """What the template prints; None where lines call what Gluon has not, where bounds are made of more than params
        and numbers of heads, or where numbers of rows, which lie as those of scores do, meet a matrix behind the loop.
        """
        self.build()
        op, stream = self.op, self.stream
        matrices = {load.name for load in stream.matrices}
        numbers = [one for one in op.inputs if one.name not in matrices]
        tiled = [one.name for one in tiled_of(op, stream)]
        of_cols = [one.name for one in numbers if stream.streamed in one.type.axes and one.name not in tiled]
        of_heads = [one.name for one in numbers if not {stream.rows, stream.streamed} & {*one.type.axes}]
        self.lines.loop = self.read_early(self.lines.loop, [*of_cols, *tiled])
        setup, loop, end = (nested(part) for part in (self.lines.setup, self.lines.loop, self.lines.end))
        reads = [line for line in setup if line.assigned in of_heads]
        bounds, found = bounds_of(self, reads)
        lines = [*bounds, *setup, *loop, *end]
        is_shared = all(set(re.findall(r"\btl\.(\w+)", line.text)) <= SHARED | {"load"} for line in lines_of(lines))
        tile_reads = [line for line in reads if told(bounds, [line.assigned])]
        others = {*(name for line in setup for name in line.targets), *(one.name for one in op.inputs)} - {*of_heads}
        memory = self.memory()
        is_spread = any("[:, None]" in line.text for line in lines_of(end))
        if not is_shared or told(bounds, others) or is_spread or len(memory) < len(self.wide):
            return None
        if found and not found.is_of_inputs(others):
            return None
        dims, group = self.space.rows, self.places.dims(stream.heads)
        heads = [dim.index for dim in (*dims, *group)]
        head_of_rows = [dim.index for dim in self.places.described_dims(stream.heads)]
        used = {*head_of_rows, *told([*setup, *loop, *end], heads)}
        lengths = ["n_heads", "n_rows", "n_cols", *(dim.size for dim in (*dims[1:], *group))]
        of_group = [f"{dim.index} = head % {dim.size}" for dim in group] + [f"head //= {dim.size}" for dim in group]
        streamed = [score.right.name for score in stream.scores]
        tensors = [*(tensor.name for tensor in op.inputs), *(result.output.name for result in op.results)]
        in_rings = [*self.tile, *streamed, *tiled]
        described = {*in_rings, *memory}
        kinds = dict.fromkeys(described, "rows") | dict.fromkeys(streamed, "cols")
        kinds |= {name: "across" if is_across(op.input(name), stream) else "scores" for name in tiled}
        given = {name: f"{name}_desc" if name in described else f"{name}_ptr" for name in tensors}
        strides = self.strides(names_of([*setup, *loop, *end]))
        steps = [*(one.name for one in strides), *(found.strides if found else [])]
        scale = scale_text(self.lowering, self.scale)
        mentioned = [*lines, *([Line(scale)] if scale else [])]
        known, in_loop, beside = names_of(mentioned), names_of(loop), names_of([*setup, *end])
        param_args = [one for one in param_arguments(op, self.compute) if one.name in known]
        params = [one.name for one in param_args]
        more = [*(["bounds_ptr"] if found else []), *lengths, *steps, *(one.spelling for one in param_args)]
        casts = [line for line in param_casts(op, self.compute, self.lowering) if line.assigned in params]
        widths = lengths_of_widths(self, mentioned, lengths)
        if widths is None:
            return None
        uniform = [*(line.assigned for line in widths), *params]
        own = [text for name, text in given.items() if name not in described] + ["bounds_ptr"] * bool(found)
        integers = [param.name for param in op.params if param.kind == "int" and param.name in params]

        def of(name: str) -> str:
            """How many blocks a ring has, and how many groups read each. What is copied is given back soon."""
            if name in tiled:
                return "2 * (STAGES - 1), 1"
            return "2, 1" if name in self.tile else "STAGES, 2"

        return {
            "family": "streaming",
            "template": "gluon_gradient.jinja",
            "name": op.name,
            "rows": stream.rows,
            "streamed": stream.streamed,
            "tile": self.tile,
            "blocks": streamed,
            "tiled": tiled[0] if tiled else "",
            "is_across": "across" in kinds.values(),
            "head_of_tiled": head_of_scores(tiled[0], self.places) if tiled else "",
            "rings": ", ".join(f"{name}_ring" for name in in_rings),
            "descs": ", ".join(f"{name}_desc" for name in in_rings),
            "made_rings": ", ".join(f"ring({name}_desc, {of(name)})" for name in in_rings),
            "sums": [(one.name, one.matrix.name) for one in stream.sums if one.matrix],
            "memory": [*memory.items()],
            "last_first": self.blocks.tiles is None or self.blocks.tiles.some.first == Number(0),
            "longest": longest(self.blocks.tiles),
            "heads": ", ".join(heads),
            "heads_of_half": ", ".join(name if name in used else f"_{name}" for name in heads),
            "head": tuple_text([dim.index for dim in dims]),
            "head_of_rows": tuple_text(head_of_rows),
            "lengths": ", ".join(lengths),
            "decode": [*map(Line, of_group), *self.places.decode()],
            "bounds": in_gluon(bounds),
            "n_parts": len(self.blocks.parts),
            "cycle": self.blocks.cycle is not None,
            "count": self.blocks.count,
            "whole": self.blocks.parts.index("whole"),
            "tile_reads": in_gluon(tile_reads),
            "tile_params": listed(told([*tile_reads, *bounds], [*own, *steps, *uniform])),
            "use_cols": not in_loop.isdisjoint(("cols", "col_mask")),
            "use_col_mask": "col_mask" in in_loop,
            "of_cols": of_cols,
            "use_rows": "rows" in in_loop or not beside.isdisjoint(("rows", "row_mask")),
            "use_by_row": not (in_loop | beside).isdisjoint(("by_row", "rows", "row_mask")),
            "use_row_mask": "row_mask" in beside,
            "factor": gluon_text(scale),
            "setup": in_gluon(setup),
            "loop": in_gluon(loop),
            "end": in_gluon(end),
            "given": ", ".join([*(f"{name}_desc" for name in memory), *own, *steps, *uniform]),
            "signature": ", ".join([*given.values(), *more]),
            "casts": in_gluon([*widths, *casts]),
            "fixed": repr([*map(in_string, ["n_heads", "n_rows", "n_cols", *integers])]),
            "kinds": [kinds.get(name, "") for name in tensors],
            "found": found and found.view(),
            "found_of": [tensors.index(name) for name in found.names] if found else [],
        }
