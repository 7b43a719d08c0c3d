"""Shared by the Gluon kernels of forwards and gradients: bounds of tiles, per-score values, and spelling."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ...lang.ir import Load, Node, Op, Result, Value, walk
from ...lang.trees import walk as nodes_of
from ...lowering.assemble import param_arguments
from ...lowering.lower import Compute, compute_of
from ...lowering.space import Dim
from ...lowering.views import Kernel
from ...nest.access import Address
from ...nest.ir import Accumulate, Let, Line, Nest, free_names, needed_by, with_values
from ...nest.values import Expr, Term, V, expr, runtime
from ...passes.structure import reached
from ...spec.types import Input
from ..gluon import casts, filled, names_in
from ..stream import Stream
from .kernels import Below, Builder
from .places import Places
from .program import StreamingProgram

HALF = {"float16", "bfloat16"}
Ring = tuple[Term, int]  # its number of blocks, and the number of groups that read each


def is_for_gluon(op: Op, stream: Stream) -> bool:
    """Whether all matrices are half precision with a width as the last axis, at most one tensor has per-score values,
    no param is a bool or an enum, and nothing is computed in float64.
    """
    matrices = [op.input(load.name).type for load in stream.matrices]
    return (
        all(set(kind.dtypes) & HALF and kind.axes[-1] in stream.widths for kind in matrices)
        and len(tiled_of(op, stream)) <= 1
        and not any(param.kind in ("bool", "enum") for param in op.params)
        and not compute_of(op).in_float64
    )


def matrices_in(results: Iterable[Result], stream: Stream) -> list[Result]:
    """The results that are matrices rather than per-row values."""
    return [result for result in results if set(result.axes) & set(stream.widths)]


def kind_of_scores(tensor: Input, stream: Stream) -> str:
    """The layout of a half-precision tensor of per-score values, such as a bias: "scores" if its last axes are the rows
    and the streamed axis, "across" if they are transposed, as in a kernel that streams queries; else "".
    """
    axes = tensor.type.axes
    others = tuple(axis for axis in axes if axis not in (*stream.batch, *stream.heads))
    if others != axes[-2:] or tensor.default is not None or not set(tensor.type.dtypes) & HALF:
        return ""
    pair = stream.rows, stream.streamed
    return "scores" if others == pair else "across" if others == pair[::-1] else ""


def tiled_of(op: Op, stream: Stream) -> list[Input]:
    """The tensors with a value for each score."""
    return [tensor for tensor in op.inputs if kind_of_scores(tensor, stream)]


@dataclass
class OfRows(Below):
    """Holds values per index of `rows` as vectors, and expands them where they are combined with `others` axes."""

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
    """Kernels after the functions that they call, the kinds of tensors with descriptors, and the indices of the
    tensors that the bounds of blocks are found from.
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
    found: Nest = ()  # the lines of the kernel that finds bounds
    bounds_steps: Sequence[str] = ()

    def __init__(self, program: StreamingProgram) -> None:
        super().__init__(program)
        op, stream = self.op, self.stream
        self.wide = matrices_in(op.results, stream)
        self.compute = Compute("tl.float32")
        self.places = replace(self.places, compute=self.compute)
        matrices = {load.name for load in stream.matrices}
        self.scalars = {one.name: one.type.axes for one in op.inputs if one.name not in matrices}
        self.tiled = [tensor.name for tensor in tiled_of(op, stream)]
        # The layouts of tensors with descriptors.
        self.kinds = {name: kind_of_scores(op.input(name), stream) for name in self.tiled}
        pair = {stream.rows, stream.streamed}
        self.of_heads = [name for name, axes in self.scalars.items() if pair.isdisjoint(axes)]
        self.of_cols = [n for n, axes in self.scalars.items() if self.streams(axes) and n not in self.tiled]
        self.lowering = self.lowered_by(self.of_rows)
        self.lowering.rows, self.lowering.others = stream.rows, frozenset({stream.streamed, *stream.widths})
        self.every = [*(one.name for one in op.inputs), *(one.output.name for one in op.results)]
        self.group = self.places.dims(stream.heads)
        dims = self.space.rows
        self.lengths = ["n_heads", "n_rows", "n_cols", *(dim.size for dim in (*dims[1:], *self.group))]

    def elements(self, values: list[Value], lines: list[Line] | None = None) -> None:
        """Per-row values are read as vectors, in the loop and before it."""
        if lines is not None:
            super().elements(values, lines)
            return
        indices = {self.stream.rows: self.row_index, self.stream.streamed: "block_cols"}
        cols = tuple(replace(dim, index=indices.get(dim.axes[0], dim.index)) for dim in self.space.cols)
        matrices, space = self.places, replace(self.space, cols=cols)
        self.places = self.vectors(self.op, space, self.compute, stream=self.stream)
        super().elements(values)
        self.places = matrices

    def final(self, value: Value) -> list[Line]:
        with self.lowering.spreading(not {*self.stream.widths}.isdisjoint(value.node.axes)):
            return super().final(value)

    def store(self, result: Result) -> list[Line]:
        return [] if result in self.wide else super().store(result)

    def bounds_of(self, reads: Iterable[Line]) -> Sequence[Line]:
        """The lines that give a tile the bounds of its runs of blocks, after `reads`, which read per-head values. Where
        integers of both axes are compared, an earlier kernel finds the bounds, once for all heads that share them.
        """
        bounds = self.lines.bounds
        if self.blocks.compared:
            self.found = (*needed_by(bounds, reads), *bounds)
            self.bounds_steps = [f"stride_bounds_{dim.suffix}" for dim in self.space.rows]
            steps = (V[dim.index] * step for dim, step in zip(self.space.rows, self.bounds_steps, strict=True))
            at = Address("bounds_ptr", (*steps,)).value
            return [Let("bounds", runtime.read_bounds(at, V.first_row // V.BLOCK_M))]
        if self.blocks.tiles:
            return bounds
        every = runtime.blocks_from_start(V.n_cols, V.n_cols, V.BLOCK_N)
        return [Let("bounds", every, comment=line.comment) for line in bounds]

    def has_bounds(self, bounds: Sequence[Line], computed: Iterable[str]) -> bool:
        """Whether bounds depend on no computed value, and bounds that a kernel finds also on no param and no head of a
        group.
        """
        others = [*computed, *(dim.index for dim in self.group), *(param.name for param in self.op.params)]
        return not names_in(bounds, computed) and not names_in(self.found, others)

    @property
    def passed(self) -> list[str]:
        """The arguments of functions that are the same for all tiles: pointers, strides, widths, and params."""
        pointers = [f"{name}_ptr" for name in self.every if name not in self.kinds]
        params = [one.name for one in param_arguments(self.op, self.compute)]
        return [*pointers, *(["bounds_ptr"] if self.found else []), *self.steps, *self.widths, *params]

    @property
    def steps(self) -> list[str]:
        return [*(one.name for one in self.strides()), *self.bounds_steps]

    @property
    def widths(self) -> dict[str, str]:
        """The names of the remaining lengths, each with a matrix of that width; "" where there is none."""
        matrices = {self.stream.width(load): load.name for load in self.stream.matrices}
        names = {self.places.size_name(axis): matrices.get(axis, "") for axis in self.op.axes}
        return {name: matrix for name, matrix in names.items() if name not in self.lengths}

    def piped(self, template: str, rings: Mapping[str, Ring], **fills: Any) -> GluonKernels | None:
        """The kernels of a template; None where a function reads a name that Gluon lacks: a length that is the width of
        no matrix, or a pointer to a matrix.
        """
        templates = [*(["bounds"] if self.found else []), template, "streaming"]
        functions = filled(self.op.name, templates, {**self.fills(rings), **fills})
        read = set[str]().union(*(free_names(one.body) for one in functions))
        unknown = {f"{load.name}_ptr" for load in self.stream.matrices}
        unknown |= {length for length, matrix in self.widths.items() if not matrix}
        if unknown & read:
            return None
        kinds = tuple(self.kinds.get(one, "") for one in self.every)
        return GluonKernels(functions, kinds, tuple(map(self.every.index, self.compared)))

    @property
    def compared(self) -> tuple[str, ...]:
        """The tensors that bounds are found from."""
        return tuple(one.name for one in self.op.inputs if names_in(self.found, [f"{one.name}_ptr"]))

    def fills(self, rings: Mapping[str, Ring]) -> dict[str, Any]:
        """The template arguments that all pipelines share."""
        outer, group, described = self.space.rows, self.group, self.places.described_dims
        in_group = [Let(dim.index, V.head % dim.size) for dim in group]
        tiled = self.op.input(self.tiled[0]).type.axes if self.tiled else ()
        widths = {length: matrix for length, matrix in self.widths.items() if matrix}
        pointers = (f"{one}_{'desc' if one in self.kinds else 'ptr'}" for one in self.every)
        return {
            "ALONG": self.stream.streamed,
            "LENGTHS": (*self.lengths,),
            "HEADS": tuple(dim.index for dim in (*outer, *group)),
            "HEAD": _indices(outer),
            "HEAD_OF_ROWS": _indices(described(self.stream.heads)),
            "HEAD_OF_TILED": _indices(described(tuple(axis for axis in tiled if axis in self.stream.heads))),
            "DECODE": (
                *in_group,
                *(Accumulate("head", "//", expr(dim.size)) for dim in group),
                *self.places.decode(),
            ),
            "N_RUNS": len(self.blocks.runs),
            "FULL": self.blocks.runs.index("full"),
            "OPERANDS": (*rings,),
            "RINGS": expr(tuple(runtime.ring(f"{one}_desc", *shape) for one, shape in rings.items())),
            "TILED": (*self.tiled,),
            "PASSED": (*self.passed,),
            "TENSORS": (*pointers, *(["bounds_ptr"] if self.found else [])),
            "STEPS": (*self.steps,),
            "PARAMS": tuple(one.name for one in param_arguments(self.op, self.compute)),
            "FIXED": ("n_heads", "n_rows", "n_cols", *(one.name for one in self.op.params if one.kind == "int")),
            "WIDTHS": (*widths,),
            "OF_WIDTHS": (*widths.values(),),
            "CASTS": casts(self.op, self.compute),
            "FOUND": self.compared,
            "SIZES": tuple(dim.size for dim in outer[1:]),
            "DECODE_OUTER": (*self.places.decode(),),
            "FIND": with_values(self.found, lambda one: one.with_names({"INDEX": expr(self.index)})),
            "N_BOUNDS": len(self.blocks.runs) + 1,
        }


def _indices(dims: Iterable[Dim]) -> Expr:
    return expr(tuple(dim.index for dim in dims))


def spread(value: Expr) -> Expr:
    """A vector of rows as a column that broadcasts to tiles."""
    return value[:, None]


def is_spread(line: Line) -> bool:
    """Whether a value of a line expands a vector to a column."""
    nodes = (node for value in line.values for node in nodes_of(value.tree))
    return any(isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) for node in nodes)


def reads_matrices_behind(op: Op, stream: Stream) -> bool:
    """Whether the epilogue reads further matrices, which have no shared memory."""
    refs = op.refs
    sums = {one.name for one in stream.sums}
    behind = (value for value in op.values if value.name not in sums and sums & reached(refs, [value.name], ()))
    loads = (node for value in behind for node in walk(value.node) if isinstance(node, Load))
    return any(set(load.axes) & set(stream.widths) for load in loads)
