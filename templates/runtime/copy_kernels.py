# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The kernel that copies a matrix to where matmuls read it faster."""

import triton
import triton.language as tl


@triton.jit
def copy_kernel(
    tensor_ptr,
    copy_ptr,
    n_rows,
    n_cols,
    n_apart,
    stride_batch,
    stride_row,
    stride_col,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    INDEX: tl.constexpr,
):
    """A tile of a matrix with any strides, to rows that are contiguous and n_apart elements apart."""
    row_tiles, col_tiles = tl.cdiv(n_rows, BLOCK_M), tl.cdiv(n_cols, BLOCK_N)
    row_tile, col_tile = tl.program_id(0) // col_tiles, tl.program_id(0) % col_tiles
    batch = (row_tile // row_tiles).to(INDEX)
    rows = (row_tile % row_tiles).to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = col_tile.to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    offsets = batch * stride_batch + rows * stride_row + cols * stride_col
    tile = tl.load(tensor_ptr + offsets, mask=mask)
    tl.store(copy_ptr + (batch * n_rows + rows) * n_apart + cols, tile, mask=mask)
