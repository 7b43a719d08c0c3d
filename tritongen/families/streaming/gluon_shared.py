"""What the Gluon kernels of forwards and of gradients share: bounds of tiles, numbers for each score, and spelling."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ...emit.host_checks import tuple_text
from ...lang.ir import Load, Node, Op, walk
from ...lowering.lower import Lowering
from ...nest.ir import Line, names_of, with_text
from ...passes.structure import reached
from ...spec.types import Input
from ..stream import Stream
from .kernels import Builder
from .places import Places

HALF = {"float16", "bfloat16"}
# What Gluon has of what kernels call of Triton's language.
SHARED = frozenset(
    "abs arange cdiv ceil cos exp exp2 floor float32 full int32 int64 log log2 maximum minimum rsqrt sin sqrt store sum"
    " where".split()
)


def is_of_scores(tensor: Input, stream: Stream) -> bool:
    """Whether a tensor has a number for each score, as a bias may have, in half precision and along what streams."""
    return _ends_with(tensor, stream, (stream.rows, stream.streamed))


def is_across(tensor: Input, stream: Stream) -> bool:
    """Whether a tensor has such numbers along rows, as a bias has where its rows stream past keys."""
    return _ends_with(tensor, stream, (stream.streamed, stream.rows))


def _ends_with(tensor: Input, stream: Stream, last: tuple[str, str]) -> bool:
    axes = tensor.type.axes
    others = tuple(axis for axis in axes if axis not in (*stream.batch, *stream.heads))
    return others == axes[-2:] == last and bool(set(tensor.type.dtypes) & HALF) and tensor.default is None


def head_of_scores(name: str, places: Places) -> str:
    """Where blocks of what has a number for each score are, along all but rows and columns."""
    axes = (axis for axis in places.op.input(name).type.axes if axis in places.stream.heads)
    return tuple_text([dim.index for dim in places.described_dims(tuple(axes))])


class FoundBounds:
    """The bounds of the runs of blocks of all tiles, which a kernel of its own finds once for all heads that have the
    same, and not each warp group for each tile.
    """

    def __init__(self, builder: Builder, reads: Iterable[Line]) -> None:
        """With those of the lines that read numbers of heads that bounds are made of."""
        bounds = builder.lines.bounds
        self.builder, self.dims = builder, builder.space.rows
        self.lines = [*(line for line in reads if told(bounds, [line.assigned])), *bounds]
        read = names_of(self.lines)
        self.names = [one.name for one in builder.op.inputs if f"{one.name}_ptr" in read]
        self.strides = [f"stride_bounds_{dim.suffix}" for dim in self.dims]

    @property
    def read(self) -> list[Line]:
        """The line by which a tile reads its bounds."""
        steps = (f"{dim.index} * {stride}" for dim, stride in zip(self.dims, self.strides, strict=True))
        return [Line(f"bounds = read_bounds({' + '.join(['bounds_ptr', *steps])}, first_row // BLOCK_M)")]

    def is_of_inputs(self, computed: Iterable[str]) -> bool:
        """Whether bounds are the same for all heads of a group, and made of no param and nothing that is computed."""
        group = (dim.index for dim in self.builder.places.dims(self.builder.stream.heads))
        return not told(self.lines, [*computed, *group, *(param.name for param in self.builder.op.params)])

    def view(self) -> dict[str, Any]:
        sizes = ["n_rows", "n_cols", *(dim.size for dim in self.dims[1:])]
        strides = [one.name for one in self.builder.strides(names_of(self.lines))]
        return {
            "args": ", ".join([*(f"{name}_ptr" for name in self.names), "bounds_ptr", *sizes, *strides]),
            "head": self.builder.places.decode(),
            "lines": with_text(self.lines, lambda text: text.replace("INDEX", self.builder.index)),
            "n_bounds": len(self.builder.blocks.parts) + 1,
        }


def bounds_of(builder: Builder, reads: Iterable[Line]) -> tuple[list[Line], FoundBounds | None]:
    """The lines by which a tile has the bounds of its runs of blocks, and what a kernel finds before, if one does:
    where numbers of both axes are compared.
    """
    bounds = builder.lines.bounds
    if builder.blocks.compared:
        found = FoundBounds(builder, reads)
        return found.read, found
    if not builder.blocks.tiles:
        bounds = [replace(line, text="bounds = blocks_from_start(n_cols, n_cols, BLOCK_N)") for line in bounds]
    return bounds, None


def lengths_of_widths(builder: Builder, lines: list[Line], known: Iterable[str]) -> list[Line] | None:
    """The lines by which a kernel has the lengths of heads that some lines use, from descriptors of matrices; None
    where these use other lengths that are not known, or pointers to matrices.
    """
    axes = {builder.places.size_name(axis): axis for axis in builder.op.axes}
    used = told(lines, [name for name in axes if name not in known])
    matrices = {builder.stream.width(load): load.name for load in builder.stream.matrices}
    pointers = [f"{load.name}_ptr" for load in builder.stream.matrices]
    if any(axes[name] not in matrices for name in used) or told(lines, pointers):
        return None
    return [Line(f"{name} = {matrices[axes[name]]}_desc.shape[-1]") for name in used]


def told(lines: Iterable[Line], names: Iterable[str]) -> list[str]:
    """Those of some names that are in some lines."""
    known = names_of(lines)
    return [name for name in names if name in known]


def listed(names: Iterable[str]) -> str:
    """Names in front of other arguments."""
    return "".join(f"{name}, " for name in names)


def in_gluon(lines: Iterable[Line]) -> list[Line]:
    return [*with_text(lines, gluon_text)]


def gluon_text(text: str) -> str:
    return re.sub(r"\btl\.", "gl.", text)


def scale_text(lowering: Lowering, scale: Node | None) -> str:
    """How a kernel spells the number that scores are multiplied by; "" where there is none."""
    return ast.unparse(lowering.expression(scale)) if scale else ""


def reads_matrices_behind(op: Op, stream: Stream) -> bool:
    """Whether what is made of the sums reads matrices besides: these have no memory of their own."""
    refs = op.refs
    sums = {one.name for one in stream.sums}
    behind = (value for value in op.values if value.name not in sums and sums & reached(refs, [value.name], ()))
    loads = (part for value in behind for part in walk(value.node) if isinstance(part, Load))
    return any(set(load.axes) & set(stream.widths) for load in loads)
