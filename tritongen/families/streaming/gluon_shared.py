"""What the Gluon kernels of forwards and of gradients share: bounds of tiles, values for each score, and spelling."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ...lang.ir import Load, Node, Op, Result, Value, walk
from ...lang.trees import walk as nodes_of
from ...lowering.assemble import param_arguments
from ...lowering.lower import Compute, Lowering, compute_of
from ...lowering.views import Argument, Kernel
from ...nest.access import Address
from ...nest.ir import (
    Accumulate,
    Do,
    For,
    Given,
    Let,
    Line,
    free_names,
    names_of,
    needed_by,
    with_values,
    without_dead_code,
)
from ...nest.values import Expr, Term, V, expr, runtime, tl
from ...passes.structure import reached
from ...spec.types import Input
from ..gluon import casts, filled, names_in
from ..stream import Stream
from .kernels import Below, Builder
from .places import Places
from .program import StreamingProgram

HALF = {"float16", "bfloat16"}
Ring = tuple[Term, int]  # how many blocks it has, and how many groups read each


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


class FoundBounds:
    """The bounds of the runs of blocks of all tiles, which a kernel of its own finds once for all heads that have the
    same, and not each warp group for each tile.
    """

    def __init__(self, builder: Builder, lines: Sequence[Line]) -> None:
        self.builder, self.dims, self.lines = builder, builder.space.rows, lines
        read = names_of(lines)
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

    def kernel(self) -> Kernel:
        builder = self.builder
        n_bounds = len(builder.blocks.runs) + 1
        strides = names_in(self.lines, [one.name for one in builder.strides()])
        pointers = [*(f"{name}_ptr" for name in self.names), "bounds_ptr"]
        sizes = ["n_rows", "n_cols", *(dim.size for dim in self.dims[1:])]
        lines = with_values((*self.lines,), lambda one: one.with_names({"INDEX": expr(builder.index)}))
        at = V.bounds_ptr + tl.program_id(0) * n_bounds + V.place
        body = (
            Let("tiles", tl.cdiv("n_rows", "BLOCK_M")),
            Let("head", tl.program_id(0) // V.tiles),
            Let("first_row", (tl.program_id(0) % V.tiles).to("tl.int64") * V.BLOCK_M),
            Given("tile", (V.first_row + tl.arange(0, "BLOCK_M")).to("tl.int32")),
            *builder.places.decode(),
            *lines,
            For(tl.static_range(n_bounds), index="place", body=(Do(tl.store(at, V.bounds[V.place])),)),
        )
        return Kernel(
            f"{builder.op.name}_bounds_kernel",
            "Bounds of the block ranges of each tile, where they differ by head.",
            tuple(Argument(one, "") for one in (*pointers, *sizes, *strides)),
            ("BLOCK_M", "BLOCK_N"),
            body=without_dead_code(body),
            fixed=("n_rows", "n_cols"),
        )


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


@dataclass(frozen=True, slots=True)
class GluonKernels:
    """Kernels behind the functions that they call, the kinds of tensors that have descriptors, and which tensors the
    bounds of blocks are found of.
    """

    functions: tuple[Kernel, ...]
    kinds: tuple[str, ...]
    found_of: tuple[int, ...]


class GluonBuilder(Builder):
    """Makes a Gluon kernel: matrices are in shared memory, and per-row values are vectors."""

    index = "tl.int32"
    row_index = "rows"  # the positions of rows as vectors
    vectors: type[Places]  # reads per-row values
    of_rows: type[OfRows]
    lowering: OfRows
    found: FoundBounds | None = None
    kinds: Mapping[str, str]  # how tensors that have descriptors lie

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
        self.every = [*(one.name for one in op.inputs), *(one.output.name for one in op.results)]
        self.group = self.places.dims(stream.heads)
        dims = self.space.rows
        self.heads = [dim.index for dim in (*dims, *self.group)]
        self.lengths = ["n_heads", "n_rows", "n_cols", *(dim.size for dim in (*dims[1:], *self.group))]

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

    def bounds_of(self, reads: Iterable[Line]) -> Sequence[Line]:
        """The lines by which a tile has the bounds of its runs of blocks, of what reads per-head values. A kernel finds
        them before where values of both axes are compared.
        """
        bounds = self.lines.bounds
        if self.blocks.compared:
            self.found = FoundBounds(self, [*needed_by(bounds, reads), *bounds])
            bounds = self.found.read
        elif not self.blocks.tiles:
            every = runtime.blocks_from_start(V.n_cols, V.n_cols, V.BLOCK_N)
            bounds = [Let("bounds", every, comment=line.comment) for line in bounds]
        return bounds

    @property
    def passed(self) -> list[str]:
        """What functions may read that is the same for all tiles: pointers, steps, lengths of heads, and params."""
        pointers = [f"{name}_ptr" for name in self.every if name not in self.kinds]
        params = [one.name for one in param_arguments(self.op, self.compute)]
        return [*pointers, *(["bounds_ptr"] if self.found else []), *self.steps, *self.widths, *params]

    @property
    def steps(self) -> list[str]:
        return [*(one.name for one in self.strides()), *(self.found.strides if self.found else [])]

    @property
    def widths(self) -> dict[str, str]:
        """The names of other lengths, each with a matrix that is as wide; "" where none is."""
        matrices = {self.stream.width(load): load.name for load in self.stream.matrices}
        names = {self.places.size_name(axis): matrices.get(axis, "") for axis in self.op.axes}
        return {name: matrix for name, matrix in names.items() if name not in self.lengths}

    def piped(self, template: str, rings: Mapping[str, Ring], **fills: Any) -> GluonKernels | None:
        """The kernel of a template; None where what is read has no name in Gluon: a length of no matrix, or a pointer
        to one.
        """
        functions = filled(self.op.name, [template, "streaming"], {**self.fills(rings), **fills})
        read = set[str]().union(*(free_names(one.body) for one in functions))
        unknown = {f"{load.name}_ptr" for load in self.stream.matrices}
        unknown |= {length for length, matrix in self.widths.items() if not matrix}
        if unknown & read:
            return None
        finder = (self.found.kernel(),) if self.found else ()
        found_of = tuple(map(self.every.index, self.found.names)) if self.found else ()
        return GluonKernels((*finder, *functions), tuple(self.kinds.get(one, "") for one in self.every), found_of)

    def fills(self, rings: Mapping[str, Ring]) -> dict[str, Any]:
        """What all pipelines have."""
        in_group = [Let(dim.index, V.head % dim.size) for dim in self.group]
        outer = [Accumulate("head", "//", expr(dim.size)) for dim in self.group]
        axes = self.op.input(self.tiled[0]).type.axes if self.tiled else ()
        heads = tuple(axis for axis in axes if axis in self.stream.heads)
        widths = {length: matrix for length, matrix in self.widths.items() if matrix}
        pointers = (f"{one}_{'desc' if one in self.kinds else 'ptr'}" for one in self.every)
        params = tuple(one.name for one in param_arguments(self.op, self.compute))
        return {
            "ALONG": self.stream.streamed,
            "LENGTHS": (*self.lengths,),
            "HEADS": (*self.heads,),
            "HEAD": expr(tuple(dim.index for dim in self.space.rows)),
            "HEAD_OF_ROWS": expr(tuple(dim.index for dim in self.places.described_dims(self.stream.heads))),
            "HEAD_OF_TILED": expr(tuple(dim.index for dim in self.places.described_dims(heads))),
            "DECODE": (*in_group, *outer, *self.places.decode()),
            "N_RUNS": len(self.blocks.runs),
            "FULL": self.blocks.runs.index("full"),
            "OPERANDS": (*rings,),
            "RINGS": expr(tuple(runtime.ring(f"{one}_desc", *shape) for one, shape in rings.items())),
            "PASSED": (*self.passed,),
            "TENSORS": (*pointers, *(["bounds_ptr"] if self.found else [])),
            "STEPS": (*self.steps,),
            "PARAMS": params,
            "FIXED": ("n_heads", "n_rows", "n_cols", *(one.name for one in self.op.params if one.kind == "int")),
            "WIDTHS": (*widths,),
            "OF_WIDTHS": (*widths.values(),),
            "CASTS": casts(self.op, self.compute),
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
