"""The iteration space of a kernel: rows by columns, and how each tensor is stepped through.

A kernel works on tiles of `rows` [BLOCK_M, 1] by `cols` [1, BLOCK_N]. Each of the two stands for
one or more dimensions. Free dimensions are folded together on the host as far as the strides
allow; an axis whose index the math uses is pinned: it stays a dimension of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from ..lang.ir import Index, Load, Op, Reduce
from ..spec.types import BATCH

# Free dimensions that a kernel takes after folding. A batch of three covers the transposes that
# attention layouts make; more than that is first made contiguous.
FREE_ROWS = 3
FREE_COLS = 2
# The least length of a line of adjacent elements: as many as fill the sectors that are read and written.
LINE = 64


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of a kernel's rows or columns. `axes` is one axis if it is pinned, else one or more that every
    tensor with them steps through by a single stride.
    """

    axes: tuple[str, ...]
    index: str  # the kernel's name for the position along it
    size: str  # the kernel's name for its length
    suffix: str  # of the names of strides along it: "stride_x_" + suffix
    pinned: bool


@dataclass(frozen=True, slots=True)
class Space:
    """Rows by columns. `split` says that rows and columns are folded separately.

    `taken` are axes that no result has: they are read only at computed positions, or iterated over if they have an
    index. `flat` says that pointers point at the elements already: there are no strides, there is one mask, and masked
    lanes are never stored.
    """

    rows: tuple[Dim, ...]
    cols: tuple[Dim, ...]
    split: bool = True
    taken: tuple[Dim, ...] = ()
    flat: bool = False

    @property
    def dims(self) -> tuple[Dim, ...]:
        return self.rows + self.cols

    @property
    def row_axes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(axis for dim in self.rows for axis in dim.axes))

    @property
    def col_axes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(axis for dim in self.cols for axis in dim.axes))

    def steps(self, axes: tuple[str, ...], dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The dimensions along which a tensor with these axes moves."""
        return tuple(dim for dim in dims if (all if dim.pinned else any)(axis in axes for axis in dim.axes))


def row_space(op: Op, cols: tuple[str, ...], window: tuple[str, ...] = (), reduces: bool = True) -> Space:
    """The space of a kernel that `reduces`, or works along, `cols`: one row for each index along other axes, except
    those of a `window`, which each element iterates over.
    """
    pinned = pinned_axes(op)
    rows = tuple(axis for axis in _visited(op) if axis not in (*cols, *window))
    sizes = {axis: str(size) for axis, size in op.sizes}
    row_dims = _dims(op, rows, pinned, sizes, FREE_ROWS, "")
    if reduces:
        row_dims = _neighbours_last(op, row_dims)
    if len(row_dims) == 1:
        row_dims = (replace(row_dims[0], index="rows"),)
    col_dims: tuple[Dim, ...]
    if len(cols) == 1 and cols[0] != BATCH:
        col_dims = (Dim(cols, "cols", "n_cols", cols[0].lower(), True),)
    elif BATCH not in cols and set(cols[1:]) <= set(sizes) and not any(axis in cols for axis in _reduced(op)):
        col_dims = _dims(op, cols, {*cols}, sizes, 0, "c")
    else:
        col_dims = _dims(op, cols, pinned, sizes, FREE_COLS, "c")
        if Space((), col_dims).col_axes != cols:
            # Sums over rows are stored in the order of the columns.
            col_dims = _dims(op, cols, {*cols} - {BATCH}, sizes, FREE_COLS, "c")
        if len(col_dims) == 1:
            col_dims = (Dim(col_dims[0].axes, "cols", "n_cols", col_dims[0].suffix, col_dims[0].pinned),)
    indices = {axis: index_of(axis) for axis in window}
    return Space(row_dims, col_dims, taken=_outside(op, (*rows, *cols), indices))


def _neighbours_last(op: Op, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The dimensions of rows, ordered so that neighbouring rows are adjacent in some inputs if possible: pinned
    dimensions, which come last, may be along an axis that no input has last.
    """
    last = {tensor.type.axes[-1] for tensor in op.inputs if tensor.type.axes}
    if not dims or dims[-1].axes[-1] in last:
        return dims
    near = [dim for dim in dims if dim.axes[-1] in last and not dim.pinned]
    near = near or [dim for dim in dims if dim.axes[-1] in last]
    return (*(dim for dim in dims if dim not in near), *near)


def _outside(op: Op, visited: tuple[str, ...], indices: dict[str, str]) -> tuple[Dim, ...]:
    """Dimensions for the axes that a kernel does not visit; those in `indices` have an index."""
    axes = [axis for axis in op.axes if axis not in visited]
    return tuple(Dim((axis,), indices.get(axis, ""), f"size_{axis.lower()}", axis.lower(), True) for axis in axes)


def map_space(op: Op, window: tuple[str, ...] = ()) -> Space:
    """The space of an elementwise kernel over the axes of its first result, in their order; a single element has none.

    If a tensor lacks some axes, the math uses an index or a window, or folded neighbours may be strided, the columns
    are the last axis, with preceding ones if it is short, and the rows are the rest. Otherwise all dimensions fold
    together and the columns are the innermost one.
    """
    axes = tuple(axis for axis in op.results[0].axes if axis not in window)
    if not axes:
        return Space((), (), taken=_outside(op, (), {axis: index_of(axis) for axis in window}))
    pinned = pinned_axes(op)
    ragged = any(isinstance(one, Load) and one.axes and set(one.axes) != set(axes) for one in op.nodes)
    # Adjacent elements along two folded axes may be strided in other tensors, as in a pixel shuffle.
    interleaved = len(_line_of(op, axes)) > 1 and any(tensor.type.axes[-1:] != axes[-1:] for tensor in op.inputs)
    if not (pinned or ragged or window or interleaved):
        rank = free_dims(op, axes, FREE_ROWS + 1)
        dims = tuple(Dim(axes, f"i{n}", f"size_{n}", str(n), False) for n in range(rank - 1))
        return Space(dims, (Dim(axes, "cols", "n_cols", str(rank - 1), False),), split=False)
    return row_space(op, _line_of(op, axes), window, reduces=False)


def _line_of(op: Op, axes: tuple[str, ...]) -> tuple[str, ...]:
    """The last axis, with preceding ones if they are short and of fixed lengths; never the first axis or `...`."""
    lengths = dict(op.sizes)
    count = 1
    while set(axes[-count:]) <= set(lengths) and math.prod(lengths[axis] for axis in axes[-count:]) < LINE:
        if count + 1 >= len(axes) or axes[-count - 1] == BATCH:  # The first axes stay rows.
            break
        count += 1
    return axes[-count:] if axes[-count:] != (BATCH,) else ()


def is_line(space: Space) -> bool:
    """Whether there is a single dimension, so that tiles have no rows."""
    return len(space.dims) == 1 and space.dims[0].axes != (BATCH,)


def ends_in_columns(op: Op, cols: tuple[str, ...]) -> bool:
    """Whether the columns are a single axis, which is the last one of every tensor of rows and columns."""
    every = [tensor.type.axes for tensor in op.inputs] + [result.axes for result in op.results]
    tiles = [axes for axes in every if set(axes) & set(cols) and set(axes) - set(cols)]
    return len(cols) == 1 and cols != (BATCH,) and bool(tiles) and all(axes[-1:] == cols for axes in tiles)


def pinned_axes(op: Op) -> set[str]:
    """The axes whose position the math uses."""
    found = op.nodes if any(value.node.gathers or Index in value.node.kinds for value in op.values) else ()
    pinned = {node.axis for node in found if isinstance(node, Index)}
    return pinned | {axis for node in found if isinstance(node, Load) for axis, _ in node.at}


def _reduced(op: Op) -> list[str]:
    return [axis for node in op.nodes if isinstance(node, Reduce) for axis in node.over]


def _visited(op: Op) -> tuple[str, ...]:
    """The axes that a kernel visits: the axes of results in their order, and the reduced ones."""
    axes = [*(axis for result in op.results for axis in result.axes), *_reduced(op)]
    leading = [BATCH] if BATCH in axes else []
    return tuple(dict.fromkeys([*leading, *axes]))


def free_dims(op: Op, free: tuple[str, ...], most: int) -> int:
    """The number of dimensions that a kernel takes after folding: enough for tensors that are contiguous.

    These fold if all tensors have the free axes adjacent and in the kernel's order; an axis that some tensor lacks, or
    has elsewhere, may stay a dimension of its own.
    """
    orders = [tensor.type.axes for tensor in op.inputs] + [result.axes for result in op.results]
    mine = {tuple(axis for axis in axes if axis in free) for axes in orders} - {()}
    if mine != {free}:
        most = max(most, len(free))
    else:
        adjacent = [{*pairwise(axes)} for axes in orders if {*axes} & {*free}]
        most = max(most, 1 + sum(any(pair not in pairs for pairs in adjacent) for pair in pairwise(free)))
    return most if BATCH in free else min(len(free), most)


def _dims(
    op: Op, axes: tuple[str, ...], pinned: set[str], sizes: dict[str, str], most: int, prefix: str
) -> tuple[Dim, ...]:
    free = tuple(axis for axis in axes if axis not in pinned)
    return folded_dims(axes, pinned, sizes, free_dims(op, free, most), prefix)


def folded_dims(
    axes: tuple[str, ...], pinned: set[str], sizes: Mapping[str, str], slots: int, prefix: str = ""
) -> tuple[Dim, ...]:
    """`slots` dimensions that the free axes fold into, and one for each pinned axis."""
    free = tuple(axis for axis in axes if axis not in pinned)
    dims = [Dim(free, f"i{prefix}{n}", f"size_{prefix}{n}", f"{prefix}{n}", False) for n in range(slots)]
    dims += [
        Dim((axis,), index_of(axis), sizes.get(axis, f"size_{axis.lower()}"), axis.lower(), True)
        for axis in axes
        if axis in pinned
    ]
    return tuple(dims)


def index_of(axis: str) -> str:
    """The name that kernels use for the position along an axis."""
    return f"i_{axis.lower()}"
