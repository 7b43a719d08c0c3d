# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The kernels of `gemm` for large float32 matrices that are split into two or three bfloat16s beforehand.

x is x0 + x1 + x2, each component the rest of x rounded to bfloat16, so that each has 8 more bits. Of nine products of
components, those that matter are multiplied: x0 y0, x0 y1 and x1 y0; with three, also x1 y1, x0 y2 and x2 y0.
Components of a matrix of a batch are adjacent: component p of matrix m has index N_COMPONENTS * m + p.
"""

import triton
import triton.language as tl

from .gemm_kernels import locate_tile
from .matmul import load_block, store_tile


@triton.jit
def pair_of(pair, N_COMPONENTS: tl.constexpr):
    """The operands of the small cross products of the split, the smallest first."""
    if N_COMPONENTS == 3:
        left = tl.where(pair == 1, 2, tl.where((pair == 0) | (pair == 3), 1, 0))
        right = tl.where(pair == 2, 2, tl.where((pair == 0) | (pair == 4), 1, 0))
    else:
        left, right = 1 - pair, pair
    return left, right


@triton.jit
def gemm_split_kernel(
    left_desc, right_desc, result_desc, result_ptr,
    n_rows, n_cols, n_inner, n_tiles,
    LEFT_BATCHED: tl.constexpr, RIGHT_BATCHED: tl.constexpr, BATCHED: tl.constexpr,
    LEFT_INNER_LAST: tl.constexpr, RIGHT_INNER_LAST: tl.constexpr,
    N_COMPONENTS: tl.constexpr, ACC: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    """Persistent over all tiles. It takes the arguments of `gemm_tma_kernel`."""
    HALF: tl.constexpr = BLOCK_N // 2
    n_pairs: tl.constexpr = 5 if N_COMPONENTS == 3 else 2
    n_steps = tl.cdiv(n_inner, BLOCK_K)
    for tile in range(tl.program_id(0), n_tiles, tl.num_programs(0)):
        matrix, first_row, first_col = locate_tile(
            tile, n_rows, n_cols, BATCHED, BLOCK_M, BLOCK_N, GROUP
        )
        left_first = matrix * N_COMPONENTS if LEFT_BATCHED else 0
        right_first = matrix * N_COMPONENTS if RIGHT_BATCHED else 0
        first = tl.zeros([BLOCK_M, HALF], ACC)
        second = tl.zeros([BLOCK_M, HALF], ACC)
        # The small products add up to so little that truncation in tensor cores does not matter.
        for step in range(n_pairs * n_steps):
            left_component, right_component = pair_of(step // n_steps, N_COMPONENTS)
            start = step % n_steps * BLOCK_K
            left_component += left_first
            right_component += right_first
            left = load_block(
                left_desc, first_row, start, LEFT_INNER_LAST, left_component
            )
            one = load_block(
                right_desc, first_col, start, RIGHT_INNER_LAST, right_component
            )
            other = load_block(
                right_desc, first_col + HALF, start, RIGHT_INNER_LAST, right_component
            )
            first = tl.dot(left, one.T, first, input_precision="ieee", out_dtype=ACC)
            second = tl.dot(
                left, other.T, second, input_precision="ieee", out_dtype=ACC
            )

        # The rest of an infinity is NaN: use the largest product alone.
        first = tl.where(first == first, first, 0.0)
        second = tl.where(second == second, second, 0.0)
        # The large product is added a block at a time, in float32: by an fma, since `+` would
        # be made part of the dot.
        for start in range(0, n_inner, BLOCK_K):
            left = load_block(left_desc, first_row, start, LEFT_INNER_LAST, left_first)
            one = load_block(
                right_desc, first_col, start, RIGHT_INNER_LAST, right_first
            )
            other = load_block(
                right_desc, first_col + HALF, start, RIGHT_INNER_LAST, right_first
            )
            block = tl.dot(left, one.T, input_precision="ieee", out_dtype=ACC)
            first = tl.fma(block, 1.0, first)
            block = tl.dot(left, other.T, input_precision="ieee", out_dtype=ACC)
            second = tl.fma(block, 1.0, second)

        for half in tl.static_range(2):
            store_tile(
                result_desc,
                result_ptr,
                second if half else first,
                first_row,
                first_col + half * HALF,
                n_rows,
                n_cols,
                INDEX,
                matrix if BATCHED else None,
            )
