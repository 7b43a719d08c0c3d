# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Reductions of a tile over strips of WIDTH adjacent rows (AXIS 0) or columns (AXIS 1): device functions.

`mask` has the rows or columns that are inside. The result has one row, or one column, per strip.
"""

import triton
import triton.language as tl

from .reduce import exp_shift, nan_max, nan_min


@triton.jit
def as_stored(tile, ptr):
    """Round a tile to the dtype in which it is stored, if it is stored, so that reductions agree with later reads
    of it.
    """
    if ptr is not None:
        tile = tile.to(ptr.dtype.element_ty).to(tile.dtype)
    return tile


@triton.jit
def split_strips(tile, WIDTH: tl.constexpr, AXIS: tl.constexpr):
    """Reshape rows or columns into [strips, WIDTH]."""
    if AXIS == 0:
        strips = tl.reshape(tile, [tile.shape[0] // WIDTH, WIDTH, tile.shape[1]])
    else:
        strips = tl.reshape(tile, [tile.shape[0], tile.shape[1] // WIDTH, WIDTH])
    return strips


@triton.jit
def in_groups(tile, WIDTH: tl.constexpr):
    """Reshape [rows, columns] to [rows, groups, WIDTH]."""
    return split_strips(tile, WIDTH, 1)


@triton.jit
def merge_groups(groups):
    """Reshape [rows, groups, WIDTH] back to [rows, columns]."""
    return tl.reshape(groups, [groups.shape[0], groups.shape[1] * groups.shape[2]])


@triton.jit
def group_squares(groups):
    """The sums of squared distances from the mean of each group."""
    mean = tl.sum(groups, axis=2, keep_dims=True) / groups.shape[2]
    distance = groups - mean
    return tl.sum(distance * distance, axis=2, keep_dims=True)


@triton.jit
def strip_sum(tile, mask, WIDTH: tl.constexpr, AXIS: tl.constexpr):
    return tl.sum(split_strips(tl.where(mask, tile, 0.0), WIDTH, AXIS), axis=AXIS + 1)


@triton.jit
def strip_max(tile, mask, WIDTH: tl.constexpr, AXIS: tl.constexpr):
    """The largest of each strip, or NaN if one is."""
    strips = split_strips(tl.where(mask, tile, float("-inf")), WIDTH, AXIS)
    return tl.reduce(strips, AXIS + 1, nan_max)


@triton.jit
def strip_min(tile, mask, WIDTH: tl.constexpr, AXIS: tl.constexpr):
    """The smallest of each strip, or NaN if one is."""
    strips = split_strips(tl.where(mask, tile, float("inf")), WIDTH, AXIS)
    return tl.reduce(strips, AXIS + 1, nan_min)


@triton.jit
def strip_exps(tile, mask, WIDTH: tl.constexpr, AXIS: tl.constexpr):
    """The sum of exp(x - shift) of each strip, where the shift is its maximum, or 0 if that is infinite."""
    strips = split_strips(tl.where(mask, tile, float("-inf")), WIDTH, AXIS)
    largest = tl.reduce(strips, AXIS + 1, nan_max, keep_dims=True)
    return tl.sum(tl.exp(strips - exp_shift(largest, True)), axis=AXIS + 1)


@triton.jit
def strip_squares(tile, mask, WIDTH: tl.constexpr, AXIS: tl.constexpr):
    """The sums of squared distances from the mean of each strip."""
    inside = split_strips(mask, WIDTH, AXIS)
    count = tl.sum(inside.to(tl.int32), axis=AXIS + 1, keep_dims=True)
    strips = split_strips(tl.where(mask, tile, 0.0), WIDTH, AXIS)
    mean = tl.sum(strips, axis=AXIS + 1, keep_dims=True) / tl.maximum(count, 1)
    distance = tl.where(inside, strips - mean, 0.0)
    return tl.sum(distance * distance, axis=AXIS + 1)


@triton.jit
def store_strips(
    ptr,
    strips,
    first_row,
    first_col,
    n_rows,
    n_cols,
    WIDTH: tl.constexpr,
    AXIS: tl.constexpr,
    INDEX: tl.constexpr,
    matrix=None,
):
    """Store the results of strips, as far as they are inside, to [columns, strips] or [rows, strips], of one matrix of
    a batch if there is one.
    """
    if AXIS == 0:
        n_rows, first_row = tl.cdiv(n_rows, WIDTH), first_row // WIDTH
    else:
        n_cols, first_col = tl.cdiv(n_cols, WIDTH), first_col // WIDTH
    rows = (first_row.to(INDEX) + tl.arange(0, strips.shape[0]))[:, None]
    cols = (first_col.to(INDEX) + tl.arange(0, strips.shape[1]))[None, :]
    places = cols * n_rows + rows if AXIS == 0 else rows * n_cols + cols
    if matrix is not None:
        ptr += matrix.to(INDEX) * n_rows * n_cols
    tl.store(ptr + places, strips, mask=(rows < n_rows) & (cols < n_cols))
