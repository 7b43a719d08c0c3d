"""Device functions of matrix products: where tiles lie. tritongen copies the ones that a kernel calls."""

import triton
import triton.language as tl


@triton.jit
def _grouped(tile, row_tiles, col_tiles, GROUP: tl.constexpr):
    """The row and column of a tile: down groups of rows, so that what tiles share stays in the cache."""
    first = tile // (GROUP * col_tiles) * GROUP
    height = tl.minimum(row_tiles - first, GROUP)
    within = tile % (GROUP * col_tiles)
    return first + within % height, within // height


@triton.jit
def _halves(tile, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The left and the right half of a tile."""
    return tl.split(tl.permute(tl.reshape(tile, [BLOCK_M, 2, BLOCK_N // 2]), (0, 2, 1)))


@triton.jit
def _quarters(tile, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The quarters of a tile, from left to right."""
    left, right = _halves(tile, BLOCK_M, BLOCK_N)
    return _halves(left, BLOCK_M, BLOCK_N // 2) + _halves(right, BLOCK_M, BLOCK_N // 2)
