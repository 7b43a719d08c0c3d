"""What the Gluon kernels of forwards and of gradients share: bounds of tiles, values for each score, and spelling."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ...emit.host_checks import tuple_text
from ...lang.ir import Load, Node, Op, Result, Value, walk
from ...lang.names import in_string
from ...lang.trees import walk as nodes_of
from ...lowering.assemble import param_arguments, param_casts
from ...lowering.lower import Compute, Lowering, compute_of
from ...nest.access import Address
from ...nest.ir import Accumulate, Let, Line, names_of, with_values
from ...nest.values import Expr, V, expr, runtime
from ...passes.structure import reached
from ...spec.types import Input
from ..gluon import in_gluon, listed, names_in
from ..stream import Stream
from .kernels import Below, Builder
from .places import Places
from .program import StreamingProgram

HALF = {"float16", "bfloat16"}


def is_for_gluon(op: Op, stream: Stream) -> bool:
    """Whether all matrices are half precision and lie along their widths, one tensor at most has a number for each
    score, and params are scalars.
    """
    matrices = [op.input(load.name).type for load in stream.matrices]
    return (
        all(set(kind.dtypes) & HALF and kind.axes[-1] in stream.widths for kind in matrices)
        and len(tiled_of(op, stream)) <= 1
        and not any(param.kind in ("bool", "enum") for param in op.params)
        and not compute_of(op).in_float64
    )


def matrices_in(results: Iterable[Result], stream: Stream) -> list[Result]:
    """The results that are matrices, and not a value for each row."""
    return [result for result in results if set(result.axes) & set(stream.widths)]


def tiled_of(op: Op, stream: Stream) -> list[Input]:
    """The tensors with a value for each score."""
    return [tensor for tensor in op.inputs if is_of_scores(tensor, stream) or is_across(tensor, stream)]


def is_of_scores(tensor: Input, stream: Stream) -> bool:
    """Whether a tensor has a value for each score, as a bias may have, in half precision and along what streams."""
    return _ends_with(tensor, stream, (stream.rows, stream.streamed))


def is_across(tensor: Input, stream: Stream) -> bool:
    """Whether a tensor has such values along rows, as a bias has where its rows stream past keys."""
    return _ends_with(tensor, stream, (stream.streamed, stream.rows))


def _ends_with(tensor: Input, stream: Stream, last: tuple[str, str]) -> bool:
    axes = tensor.type.axes
    others = tuple(axis for axis in axes if axis not in (*stream.batch, *stream.heads))
    return others == axes[-2:] == last and bool(set(tensor.type.dtypes) & HALF) and tensor.default is None


def head_of_scores(name: str, places: Places) -> str:
    """Where blocks of what has a value for each score are, along all but rows and columns."""
    axes = (axis for axis in places.op.input(name).type.axes if axis in places.stream.heads)
    return tuple_text([dim.index for dim in places.described_dims(tuple(axes))])


class FoundBounds:
    """The bounds of the runs of blocks of all tiles, which a kernel of its own finds once for all heads that have the
    same, and not each warp group for each tile.
    """

    def __init__(self, builder: Builder, reads: Iterable[Line]) -> None:
        """With those of the lines that read per-head values that bounds are made of."""
        bounds = builder.lines.bounds
        self.builder, self.dims = builder, builder.space.rows
        self.lines = [*(line for line in reads if names_in(bounds, [line.assigned])), *bounds]
        read = names_of(self.lines)
        self.names = [one.name for one in builder.op.inputs if f"{one.name}_ptr" in read]
        self.strides = [f"stride_bounds_{dim.suffix}" for dim in self.dims]

    @property
    def read(self) -> list[Line]:
        """The line by which a tile reads its bounds."""
        steps = (V[dim.index] * stride for dim, stride in zip(self.dims, self.strides, strict=True))
        at = Address("bounds_ptr", (*steps,)).value
        return [Let("bounds", runtime.read_bounds(at, V.first_row // V.BLOCK_M))]

    def is_of_inputs(self, computed: Iterable[str]) -> bool:
        """Whether bounds are the same for all heads of a group, and made of no param and nothing that is computed."""
        group = (dim.index for dim in self.builder.places.dims(self.builder.stream.heads))
        return not names_in(self.lines, [*computed, *group, *(param.name for param in self.builder.op.params)])

    def view(self) -> dict[str, Any]:
        sizes = ["n_rows", "n_cols", *(dim.size for dim in self.dims[1:])]
        strides = names_in(self.lines, [one.name for one in self.builder.strides()])
        return {
            "args": ", ".join([*(f"{name}_ptr" for name in self.names), "bounds_ptr", *sizes, *strides]),
            "head": self.builder.places.decode(),
            "lines": with_values((*self.lines,), lambda one: one.with_names({"INDEX": expr(self.builder.index)})),
            "n_bounds": len(self.builder.blocks.runs) + 1,
        }


def bounds_of(builder: Builder, reads: Iterable[Line]) -> tuple[list[Line], FoundBounds | None]:
    """The lines by which a tile has the bounds of its runs of blocks, and what a kernel finds before, if one does:
    where values of both axes are compared.
    """
    bounds = builder.lines.bounds
    if builder.blocks.compared:
        found = FoundBounds(builder, reads)
        return found.read, found
    if not builder.blocks.tiles:
        every = runtime.blocks_from_start(V.n_cols, V.n_cols, V.BLOCK_N)
        bounds = [Let("bounds", every, comment=line.comment) for line in bounds]
    return bounds, None


def lengths_of_widths(builder: Builder, lines: list[Line], known: Iterable[str]) -> list[Line] | None:
    """The lines by which a kernel has the lengths of heads that some lines use, from descriptors of matrices; None
    where these use other lengths that are not known, or pointers to matrices.
    """
    axes = {builder.places.size_name(axis): axis for axis in builder.op.axes}
    used = names_in(lines, [name for name in axes if name not in known])
    matrices = {builder.stream.width(load): load.name for load in builder.stream.matrices}
    pointers = [f"{load.name}_ptr" for load in builder.stream.matrices]
    if any(axes[name] not in matrices for name in used) or names_in(lines, pointers):
        return None
    return [Let(name, V[f"{matrices[axes[name]]}_desc"].field("shape")[-1]) for name in used]


@dataclass(frozen=True, slots=True)
class GluonLines:
    """The lines of a Gluon kernel: bounds of a tile, with what these read, and of the warp groups that compute, those
    in front of the loop, those that read per-column values for a block, those of the loop and those behind it.
    """

    bounds: Sequence[Line]
    found: FoundBounds | None
    tile_reads: Sequence[Line]
    setup: Sequence[Line]
    columns: Sequence[Line]
    loop: Sequence[Line]
    end: Sequence[Line]

    @property
    def of_tile(self) -> list[Line]:
        return [*self.tile_reads, *self.bounds]

    @property
    def of_half(self) -> list[Line]:
        return [*self.setup, *self.columns, *self.loop, *self.end]


@dataclass
class OfRows(Below):
    """Has vectors of what is a value for each of `rows`, and spreads these where they meet more, along the `others`."""

    rows: str = ""
    others: frozenset[str] = frozenset()
    spreads: bool = False

    def expression(self, node: Node) -> Expr:
        if self.spreads and self.is_of_rows(node):
            return spread(self.of_rows(node))
        return super().expression(node)

    def is_of_rows(self, node: Node) -> bool:
        return self.rows in node.axes and not self.others & set(node.axes)

    def of_rows(self, node: Node) -> Expr:
        with self.spreading(False):
            return self.expression(node)

    @contextmanager
    def spreading(self, spreads: bool) -> Iterator[None]:
        before, self.spreads = self.spreads, spreads
        yield
        self.spreads = before

    def tanh(self, x: Expr, _: tuple[str, ...]) -> Expr:
        return runtime.tanh_half(x)


class GluonBuilder(Builder):
    """Makes the lines of a Gluon kernel: matrices are in shared memory, and per-row values are vectors."""

    index = "tl.int32"
    row_index = "rows"  # the positions of rows as vectors
    vectors: type[Places]  # reads per-row values
    of_rows: type[OfRows]
    lowering: OfRows

    def __init__(self, program: StreamingProgram) -> None:
        super().__init__(program)
        op, stream = self.op, self.stream
        self.wide = matrices_in(op.results, stream)
        self.compute = Compute("tl.float32")
        self.places = replace(self.places, compute=self.compute)
        matrices = {load.name for load in stream.matrices}
        self.scalars = {one.name: one.type.axes for one in op.inputs if one.name not in matrices}
        self.tiled = [tensor.name for tensor in tiled_of(op, stream)]
        pair = {stream.rows, stream.streamed}
        self.of_heads = [name for name, axes in self.scalars.items() if pair.isdisjoint(axes)]
        self.of_cols = [n for n, axes in self.scalars.items() if self.streams(axes) and n not in self.tiled]
        self.lowering = self.lowered_by(self.of_rows)
        self.lowering.rows, self.lowering.others = stream.rows, frozenset({stream.streamed, *stream.widths})

    def elements(self, values: list[Value], lines: list[Line] | None = None) -> None:
        """Per-row values are read as vectors."""
        indices = {self.stream.rows: self.row_index, self.stream.streamed: "block_cols"}
        cols = tuple(replace(dim, index=indices.get(dim.axes[0], dim.index)) for dim in self.space.cols)
        matrices, space = self.places, replace(self.space, cols=cols)
        self.places = self.vectors(self.op, space, self.compute, stream=self.stream)
        super().elements(values, lines)
        self.places = matrices

    def final(self, value: Value) -> list[Line]:
        with self.lowering.spreading(not {*self.stream.widths}.isdisjoint(value.node.axes)):
            return super().final(value)

    def store(self, result: Result) -> list[Line]:
        return [] if result in self.wide else super().store(result)


class Signature:
    """The arguments of a Gluon kernel, those of them that its warps are passed, and the tiles that these compute."""

    def __init__(
        self, builder: GluonBuilder, lines: GluonLines, described: Collection[str], scale: Expr | None
    ) -> None:
        """Of tensors, the `described` have descriptors; the others are read by pointers."""
        self.builder, self.lines, self.found, self.described = builder, lines, lines.found, described
        op, stream, self.group = builder.op, builder.stream, builder.places.dims(builder.stream.heads)
        self.dims = builder.space.rows
        self.tensors = [*(one.name for one in op.inputs), *(one.output.name for one in op.results)]
        self.lengths = ["n_heads", "n_rows", "n_cols", *(dim.size for dim in (*self.dims[1:], *self.group))]
        every = [*lines.of_tile, *lines.of_half, *([Let("factor", scale)] if scale else [])]
        known = names_of(every)
        self.pointers = [f"{name}_ptr" for name in self.tensors if name not in described]
        self.steps = names_in([*lines.tile_reads, *lines.of_half], [one.name for one in builder.strides()])
        if lines.found:
            self.pointers.append("bounds_ptr")
            self.steps += lines.found.strides
        self.params = [one for one in param_arguments(op, builder.compute) if one.name in known]
        names = {one.name for one in self.params}
        self.casts = [one for one in param_casts(op, builder.compute) if one.assigned in names]
        self.integers = [param.name for param in op.params if param.kind == "int" and param.name in names]
        self.widths = lengths_of_widths(builder, every, self.lengths)
        self.head_of_rows = [dim.index for dim in builder.places.described_dims(stream.heads)]

    @property
    def uniform(self) -> list[str]:
        """The scalars that are the same for all tiles."""
        return [*(line.assigned for line in self.widths or ()), *(one.name for one in self.params)]

    @property
    def passed(self) -> list[str]:
        return [*self.pointers, *self.steps, *self.uniform]

    @property
    def heads(self) -> list[str]:
        return [dim.index for dim in (*self.dims, *self.group)]

    @property
    def text(self) -> str:
        given = [f"{name}_desc" if name in self.described else f"{name}_ptr" for name in self.tensors]
        given += ["bounds_ptr"] if self.found else []
        return ", ".join([*given, *self.lengths, *self.steps, *(one.spelling for one in self.params)])

    def unpacked(self, read: Iterable[str], lines: Iterable[Line]) -> str:
        """The lengths as a function unpacks them that reads some, and others in lines."""
        known = {*read, *names_of(lines)}
        return ", ".join(name if name in known else f"_{name}" for name in self.lengths)

    def view(self) -> dict[str, Any]:
        builder, lines, found, group = self.builder, self.lines, self.found, self.group
        used = {*self.head_of_rows, *names_in(lines.of_half, self.heads)}
        in_group = [Let(dim.index, V.head % dim.size) for dim in group]
        decode = [*in_group, *(Accumulate("head", "//", expr(dim.size)) for dim in group), *builder.places.decode()]
        tiled = builder.tiled[0] if builder.tiled else ""
        blocks, stream = builder.blocks, builder.stream
        return {
            "family": "streaming",
            "name": builder.op.name,
            "rows": stream.rows,
            "streamed": stream.streamed,
            "tiled": tiled,
            "head_of_tiled": head_of_scores(tiled, builder.places) if tiled else "",
            "heads": ", ".join(self.heads),
            "heads_of_half": ", ".join(name if name in used else f"_{name}" for name in self.heads),
            "head": tuple_text([dim.index for dim in self.dims]),
            "head_of_rows": tuple_text(self.head_of_rows),
            "lengths": ", ".join(self.lengths),
            "lengths_of_tile": self.unpacked(("n_heads", "n_rows"), [*decode, *lines.of_tile]),
            "decode": decode,
            "bounds": in_gluon(lines.bounds),
            "found": found and found.view(),
            "found_of": [self.tensors.index(name) for name in found.names] if found else [],
            "n_runs": len(blocks.runs),
            "full": blocks.runs.index("full"),
            "tile_reads": in_gluon(lines.tile_reads),
            "tile_params": listed(names_in(lines.of_tile, self.passed)),
            "loop": in_gluon(lines.loop),
            "end": in_gluon(lines.end),
            "signature": self.text,
            "casts": in_gluon([*(self.widths or ()), *self.casts]),
            "fixed": repr([*map(in_string, ["n_heads", "n_rows", "n_cols", *self.integers])]),
        }


def spread(value: Expr) -> Expr:
    """A vector of rows as a column, which meets tiles."""
    return value[:, None]


def is_spread(line: Line) -> bool:
    """Whether a value of a line has a vector as a column."""
    nodes = (node for value in line.values for node in nodes_of(value.tree))
    return any(isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) for node in nodes)


def scale_value(lowering: Lowering, scale: Node | None) -> Expr | None:
    """The number that scores are multiplied by; None where there is none."""
    return lowering.expression(scale) if scale else None


def reads_matrices_behind(op: Op, stream: Stream) -> bool:
    """Whether what is made of the sums reads matrices besides: these have no memory of their own."""
    refs = op.refs
    sums = {one.name for one in stream.sums}
    behind = (value for value in op.values if value.name not in sums and sums & reached(refs, [value.name], ()))
    loads = (part for value in behind for part in walk(value.node) if isinstance(part, Load))
    return any(set(load.axes) & set(stream.widths) for load in loads)
