# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Device functions that locate the tiles of elementwise kernels."""

import triton
import triton.language as tl


@triton.jit
def rows_and_cols(
    n_cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, INDEX: tl.constexpr
):
    """The rows [1, BLOCK_M] and columns [BLOCK_N, 1] of a program's tile.

    Neighbouring programs take neighbouring columns, so that memory is walked in order. Columns are the first axis of
    tiles, since Triton has neighbouring threads go along that where a tensor is contiguous along neither.
    """
    tiles = tl.cdiv(n_cols, BLOCK_N)
    row_tile, col_tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    rows = row_tile.to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = col_tile.to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N)
    return rows[None, :], cols[:, None]
