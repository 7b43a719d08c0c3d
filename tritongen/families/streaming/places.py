"""Where the tensors of a streaming kernel are: at an index of the batch, along its rows, in a block, and across."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...lang.ir import Load, Op
from ...lowering.space import FREE_ROWS, Dim, Space, folded_dims, free_dims, index_of, pinned_axes
from ...lowering.tile import Tensor, Tile, decoded, indices, nothing_of, widen_float8
from ...nest.access import Access, Address, if_given
from ...nest.ir import Branch, Let, Line
from ...nest.values import Expr, Term, V, joined, runtime, tl
from ...passes.paged import Paged, Pages
from ...spec.types import BATCH, Input
from ..stream import Stream, multiplied_as, of_bytes


def space_of(op: Op, stream: Stream) -> Space:
    """The space with the batch dimensions as rows, and the dimensions of tile, block and widths as columns."""
    pinned = pinned_axes(op)
    free = tuple(axis for axis in stream.batch if axis not in pinned)
    count = min(free_dims(op, free, FREE_ROWS), len(free) + (BATCH in free))
    dims = folded_dims(stream.batch, pinned, {axis: str(size) for axis, size in op.sizes}, count)
    if len(dims) == 1:
        dims = (replace(dims[0], index="head", size="n_heads"),)
    cols = [_dim(axis, index_of(axis)) for axis in stream.heads]
    cols += [_dim(stream.rows, "rows", "n_rows"), _dim(stream.streamed, "cols", "n_cols")]
    cols += [_dim(axis, f"at_{axis.lower()}") for axis in stream.widths]
    cols += [_dim(axis, index_of(axis)) for axis in stream.outer_axes]
    known = {axis for dim in (*dims, *cols) for axis in dim.axes}
    return Space(dims, tuple(cols), taken=tuple(_dim(axis, "") for axis in op.axes if axis not in known))


def _dim(axis: str, index: str, size: str = "") -> Dim:
    return Dim((axis,), index, size or f"size_{axis.lower()}", axis.lower(), True)


@dataclass(frozen=True, slots=True)
class Places(Tile):
    """Spells addresses, masks and positions."""

    stream: Stream = field(kw_only=True)
    row_mask: Expr | None = V.row_mask  # None where all rows of a tile are rows of the tensors
    pages: Pages | None = None

    def dim(self, axis: str) -> Dim:
        return next(dim for dim in self.space.dims if axis in dim.axes)

    def dims(self, axes: tuple[str, ...]) -> tuple[Dim, ...]:
        return tuple(map(self.dim, axes))

    def of_input(self, name: str) -> Tensor:
        return self.tensor(self.op.input(name))

    # The batch

    def decode(self) -> list[Line]:
        """The index of the batch in each of its dimensions."""
        dims = self.space.rows
        return list(decoded("head", dims)) if len(dims) > 1 else []

    def at(self, tensor: Tensor, *dims: Dim) -> Address:
        """The pointer to a tensor at the index of the batch, and along some dimensions."""
        return self.sum(tensor.pointer, self.space.steps(tensor.axes, (*self.space.rows, *dims)), tensor)

    # Matrices

    def matrix_base(self, load: Load) -> Line:
        """The line that points to a matrix, at the head and the turn that it is of."""
        others = self.dims((*self.stream.heads, *self.stream.outer_axes))
        return Let(f"{load.name}_head", self.at(self.of_input(load.name), *others).value)

    def matrix(self, load: Load, masked: Term) -> list[Line]:
        """The lines that load a tile of a matrix, or a block of one that is streamed."""
        tensor, width = self.of_input(load.name), self.stream.width(load)
        streams = self.stream.streamed in load.axes
        along = self.stream.streamed if streams else self.stream.rows
        at, size = ("block", "n_cols") if streams else ("tile", "n_rows")
        strides = tensor.strides((self.dim(along), self.dim(width)))
        read = runtime.load_rows(f"{load.name}_head", at, size, *strides, f"size_{width.lower()}", masked)
        return [Let(load.name, read), *self.converted(load)]

    def converted(self, load: Load) -> list[Line]:
        """The line that converts single bytes to the others' dtype, or float16 where these are all: it is exact."""
        if not of_bytes(self.op, load):
            return []
        other = multiplied_as(self.op, self.stream)
        if not other:
            return [Let(load.name, V[load.name].to("tl.float16"))]
        left, outer_axes = self.stream.scores[0].left, set(self.stream.outer_axes)
        # A tile of each turn is not read yet where bytes are that stay the same in every turn.
        is_read = other == left.name and (not outer_axes & set(left.axes) or bool(outer_axes & set(load.axes)))
        dtype = f"{other}.dtype" if is_read else f"{other}_ptr.dtype.element_ty"
        to = widen_float8(dtype) if "float64" in self.op.input(other).type.dtypes else (dtype,)
        return [Let(load.name, V[load.name].to(*to))]

    def described(self, load: Load, read: Line) -> list[Line]:
        """The lines that load a block by TMA where there is a descriptor, or as another line reads it."""
        outer_axes = tuple(axis for axis in self.stream.outer_axes if axis in load.axes)
        at = (*(dim.index for dim in self.described_dims(outer_axes)), V.start)
        described = V[f"{load.name}_desc"]
        by_tma = Let(load.name, runtime.load_described(described, at))
        return [Branch(described.is_none, body=(read,), other=(by_tma,))]

    def described_dims(self, axes: tuple[str, ...]) -> tuple[Dim, ...]:
        """The dimensions of a descriptor before the two of a matrix: batch dimensions, and `axes`.

        TMA has at most five dimensions. If there are more, the last batch dimensions have a length of 1.
        """
        return (*self.space.rows[: 3 - len(axes)], *self.dims(axes))

    # Pages

    def table(self, paged: Paged) -> Line:
        """The line that points to a table of the page indices."""
        return Let(f"{paged.table}_head", self.at(self.of_input(paged.table)).value)

    def page_indices(self, pages: Pages, paged: Paged, start: Term, first: Term, last: Term) -> Line:
        """The line that looks up pages of a block from `start` on that a tile needs: from `first` to `last`."""
        stride = self.taken_stride(self.of_input(paged.table), pages.page)
        sizes = stride, self.size_name(pages.slot), V.BLOCK_N, V.INDEX
        found = runtime.page_numbers(f"{paged.table}_head", start, first, last, *sizes)
        return Let(f"{paged.table}_ahead", found)

    def in_pages(self, paged: Paged, first: Term, last: Term) -> Line:
        """The line that gives the page of each position of a block."""
        n_pages = self.size_name(paged.pages)
        return Let(f"{paged.table}_at", runtime.pages_at(f"{paged.table}_ahead", V.block, first, last, n_pages))

    def paged_matrix(self, pages: Pages, paged: Paged) -> list[Line]:
        """The lines that load a block of a matrix."""
        tensor, width = self.of_input(paged.load.name), self.stream.width(paged.load)
        strides = (self.taken_stride(tensor, axis) for axis in (paged.pages, pages.slot, width))
        rows = f"{paged.table}_at", V.block % self.size_name(pages.slot)
        read = runtime.load_rows_at(f"{tensor.name}_head", *rows, *strides, f"size_{width.lower()}")
        return [Let(tensor.name, read), *self.converted(paged.load)]

    # Elements

    def axes_of(self, tensor: Input) -> tuple[str, ...]:
        return self.pages.axes_of(tensor) if self.pages else tensor.type.axes

    def address(self, tensor: Tensor) -> Address:
        return self.at(tensor, *self.space.cols).moved(*self.to_positions(tensor))

    def to_positions(self, tensor: Tensor) -> tuple[Expr, ...]:
        """The offsets of the pages of a block's positions, and of the positions within them; () without pages."""
        if self.pages is None:
            return ()
        paged, size = self.pages.of(tensor.name), self.size_name(self.pages.slot)
        page = (paged.pages, at_pages(paged)) if paged else (self.pages.page, V.cols // size)
        steps = dict((page, (self.pages.slot, V.cols % size)))
        return tuple(at * self.taken_stride(tensor, axis) for axis, at in steps.items() if axis in tensor.axes)

    def mask_of(self, tensor: Input) -> Expr | None:
        """The load mask of an input; a paged one is masked to positions whose pages are looked up."""
        paged = self.pages and self.pages.of(tensor.name)
        return at_pages(paged) >= 0 if paged else self.mask(self.axes_of(tensor))

    def mask(self, axes: tuple[str, ...]) -> Expr | None:
        """The mask of rows, of a block, or of both; in full blocks none, or for tiles the mask of rows."""
        if {self.stream.rows, self.stream.streamed} <= set(axes):
            return V.tile_mask
        masks = {self.stream.rows: self.row_mask, self.stream.streamed: V.col_mask}
        masks |= {axis: V[f"{axis.lower()}_mask"] for axis in self.stream.widths}
        return joined(*(mask for axis, mask in masks.items() if axis in axes))

    def reads(self, tensor: Input) -> list[Line]:
        """The lines that load the elements of a tensor for a tile."""
        mine = self.of_input(tensor.name)
        mask = self.mask_of(tensor)
        # Full blocks load without a mask. Values computed past the end are masked later.
        other = None if mask == V.col_mask else nothing_of(tensor)
        read = Access(self.address(mine), mask, other, self.widen(tensor))
        if mine.optional and tensor.name not in self.op.chosen:
            return if_given(tensor, tensor.name, read, self.default(tensor, mine.axes))
        return [Let(tensor.name, read.value)]

    def widen(self, tensor: Input) -> tuple[str, ...]:
        return ("bool",) if may_be_wide(self.op, self.stream, tensor) else Tile.widen(self, tensor)

    def compared(self, load: Load, axis: str) -> Expr:
        """The compared integers of the tile, or of some blocks; past the end, the last one is repeated."""
        tensor, at = self.of_input(load.name), V.tile_met if axis == self.stream.rows else V.cols_met
        return Access(self.at(tensor).moved(at * tensor.stride(self.dim(axis)))).value

    def default(self, tensor: Input, axes: tuple[str, ...]) -> Term:
        number = tensor.default
        if tensor.type.dtypes == ("bool",):
            return number
        # Bounds of blocks need integers, and gathered values have the shape of their indices.
        dtype = self.compute.text if tensor.type.may_be_float else "tl.int64"
        mask = self.mask_of_gather(axes) if tensor.name in indices(self.op) else None
        return tl.full(() if mask is None else mask.field("shape"), number, dtype)

    def mask_of_gather(self, axes: tuple[str, ...]) -> Expr | None:
        """The mask of a gather: also in full blocks, since its indices may be computed from values past the end."""
        own = self.mask(axes)
        return own if own != V.col_mask else V.cols < V.n_cols

    def taken_stride(self, tensor: Tensor, axis: str) -> str:
        return tensor.stride(Dim((axis,), "", "", axis.lower(), True))

    # What the lowering asks

    def size(self, axes: tuple[str, ...]) -> Expr:
        return self.product(axes)

    def size_name(self, axis: str) -> str:
        known = {self.stream.rows: "n_rows", self.stream.streamed: "n_cols"}
        return known.get(axis, "size_batch" if axis == BATCH else f"size_{axis.lower()}")


def may_be_wide(op: Op, stream: Stream, tensor: Input) -> bool:
    """Whether a bool tensor along rows or columns may be passed as int32, as matrices may be float64."""
    matrix = multiplied_as(op, stream)
    read = (node for node in op.nodes if isinstance(node, Load))
    is_along = any({stream.rows, stream.streamed} & {*load.axes} for load in read if load.name == tensor.name)
    return is_along and tensor.type.dtypes == ("bool",) and bool(matrix) and "float64" in op.input(matrix).type.dtypes


def at_pages(paged: Paged) -> Expr:
    """The page of each position of a block."""
    return V[f"{paged.table}_at"][None, :]
