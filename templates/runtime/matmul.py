# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Device functions of matmuls: the order of tiles, loads of blocks, products and stores of tiles."""

import triton
import triton.language as tl

from .tensors import dot_precision

# Precisions that split float32 into two or three bfloat16s.
BF16X3: tl.constexpr = tl.constexpr(dot_precision("bf16x3"))
BF16X6: tl.constexpr = tl.constexpr(dot_precision("bf16x6"))


@triton.jit
def swizzle(tile, row_tiles, col_tiles, GROUP: tl.constexpr):
    """The row and column of a tile, in groups of GROUP rows (L2 swizzle)."""
    first = tile // (GROUP * col_tiles) * GROUP
    height = tl.minimum(row_tiles - first, GROUP)
    within = tile % (GROUP * col_tiles)
    return first + within % height, within // height


@triton.jit
def locate(
    tile,
    n_rows,
    n_cols,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr,
):
    """The first row and the first column of a tile."""
    row_tiles, col_tiles = tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_cols, BLOCK_N)
    row_tile, col_tile = swizzle(tile, row_tiles, col_tiles, GROUP)
    return row_tile * BLOCK_M, col_tile * BLOCK_N


@triton.jit
def locate_in_batch(
    tile,
    n_rows,
    n_cols,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr,
):
    """The matrix of a batch that a tile belongs to, its first row and its first column."""
    row_tiles, col_tiles = tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_cols, BLOCK_N)
    matrix, tile = tile // (row_tiles * col_tiles), tile % (row_tiles * col_tiles)
    row_tile, col_tile = swizzle(tile, row_tiles, col_tiles, GROUP)
    return matrix, row_tile * BLOCK_M, col_tile * BLOCK_N


@triton.jit
def block_dot(left, right, acc, PRECISION: tl.constexpr, SWAPS: tl.constexpr):
    """`tl.dot`; with SWAPS, the transpose of the dot of the transposed blocks: without
    tensor cores, a warp reads few rows of the first block at once, and many columns of the
    second, which are in the same banks where the inner axis is contiguous.
    """
    if SWAPS:
        left, right, acc = right.T, left.T, acc.T
    acc = tl.dot(left, right, acc, input_precision=PRECISION, out_dtype=acc.dtype)
    return acc.T if SWAPS else acc


@triton.jit
def load_block(desc, first, start, INNER_LAST: tl.constexpr, matrix=None):
    """A block of rows or columns by the inner axis, which is the last of the descriptor or the one before; of a matrix
    of a batch, if there is one.
    """
    if matrix is not None:
        if INNER_LAST:
            block = desc.load([matrix, first, start])
        else:
            block = desc.load([matrix, start, first])
        block = block.reshape(block.shape[1], block.shape[2])
    elif INNER_LAST:
        block = desc.load([first, start])
    else:
        block = desc.load([start, first])
    return block if INNER_LAST else block.T


@triton.jit
def store_tile(
    desc,
    ptr,
    tile,
    first_row,
    first_col,
    n_rows,
    n_cols,
    INDEX: tl.constexpr,
    matrix=None,
):
    """Store a tile of a contiguous result, as far as it is inside: by TMA where there is a descriptor, and not at all
    where nobody asked for the result; of a matrix of a batch, if there is one.
    """
    if desc is not None:
        tile = tile.to(ptr.dtype.element_ty)
        if matrix is None:
            desc.store([first_row, first_col], tile)
        else:
            tile = tile.reshape(1, tile.shape[0], tile.shape[1])
            desc.store([matrix, first_row, first_col], tile)
    elif ptr is not None:
        rows = (first_row.to(INDEX) + tl.arange(0, tile.shape[0]))[:, None]
        cols = (first_col.to(INDEX) + tl.arange(0, tile.shape[1]))[None, :]
        mask = (rows < n_rows) & (cols < n_cols)
        if matrix is not None:
            ptr += matrix.to(INDEX) * n_rows * n_cols
        tl.store(ptr + rows * n_cols + cols, tile, mask=mask)


@triton.jit
def halves(tile, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The left and the right half of a tile."""
    return tl.split(tl.permute(tl.reshape(tile, [BLOCK_M, 2, BLOCK_N // 2]), (0, 2, 1)))


@triton.jit
def quarters(tile, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The quarters of a tile, from left to right."""
    left, right = halves(tile, BLOCK_M, BLOCK_N)
    return halves(left, BLOCK_M, BLOCK_N // 2) + halves(right, BLOCK_M, BLOCK_N // 2)


@triton.jit
def hold(x):
    """An integer, clamped so that adding a position does not overflow."""
    return tl.minimum(tl.maximum(x.to(tl.int64), -(2**48)), 2**48)
