# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Where the tiles of a matmul lie, as device functions."""

import triton
import triton.language as tl


@triton.jit
def swizzle(tile, row_tiles, col_tiles, GROUP: tl.constexpr):
    """The row and column of a tile: down groups of rows, so that what tiles share stays in the cache."""
    first = tile // (GROUP * col_tiles) * GROUP
    height = tl.minimum(row_tiles - first, GROUP)
    within = tile % (GROUP * col_tiles)
    return first + within % height, within // height


@triton.jit
def halves(tile, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The left and the right half of a tile."""
    return tl.split(tl.permute(tl.reshape(tile, [BLOCK_M, 2, BLOCK_N // 2]), (0, 2, 1)))


@triton.jit
def quarters(tile, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The quarters of a tile, from left to right."""
    left, right = halves(tile, BLOCK_M, BLOCK_N)
    return halves(left, BLOCK_M, BLOCK_N // 2) + halves(right, BLOCK_M, BLOCK_N // 2)
