# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The kernels of `gemm`: left [rows, inner] times right [cols, inner], contracted along the inner axis.

They equal the kernels of any plain contraction, but take at run time what an operator's own kernels know when they are
generated. With BATCHED, the result has a leading batch axis, as do LEFT_BATCHED and RIGHT_BATCHED matrices; an
unbatched matrix is shared, and strides of absent axes are None. PRECISION is the `input_precision` of tl.dot. Arguments
come in the order in which `contraction` passes them. Where n_summed is not None, both matrices have a batch of
n_summed, and the result is the sum over it: the inner axes of its matrices follow one another, each in full blocks.
"""

import triton
import triton.language as tl

from .addressing import aligned, offsets, padded
from .matmul import (
    block_dot,
    halves,
    load_block,
    locate,
    locate_in_batch,
    store_tile,
)
from .split_k import partials_of, split_k, store_partial, stream_k, sum_partials


@triton.jit
def locate_tile(
    tile, n_rows, n_cols,
    BATCHED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """The matrix of the batch that a tile belongs to, its first row and its first column."""
    if BATCHED:
        matrix, first_row, first_col = locate_in_batch(
            tile, n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP
        )
    else:
        first_row, first_col = locate(tile, n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP)
        matrix = 0
    return matrix, first_row, first_col


@triton.jit
def count_terms(n_inner, n_summed, BLOCK_K: tl.constexpr):
    """The total length of the summed inner axes, each padded to full blocks where there are several."""
    if n_summed is None:
        n_terms = n_inner
    else:
        n_terms = n_summed * (tl.cdiv(n_inner, BLOCK_K) * BLOCK_K)
    return n_terms


@triton.jit
def locate_block(matrix, term, n_inner, n_summed, BLOCK_K: tl.constexpr):
    """The matrix of a block and its offset along the inner axis: one of the summed matrices, or the tile's own."""
    if n_summed is None:
        start = term
    else:
        length = tl.cdiv(n_inner, BLOCK_K) * BLOCK_K
        matrix, start = term // length, tl.multiple_of(term % length, BLOCK_K)
    return matrix, start


@triton.jit
def gemm_kernel(
    left_ptr, right_ptr, result_ptr, partial_ptr,
    n_rows, n_cols, n_inner, steps,
    stride_left_batch, stride_left_row, stride_left_inner,
    stride_right_batch, stride_right_col, stride_right_inner,
    n_summed,
    PRECISION: tl.constexpr, LEFT_BATCHED: tl.constexpr, RIGHT_BATCHED: tl.constexpr,
    BATCHED: tl.constexpr, SWAPS: tl.constexpr, ALIGN_M: tl.constexpr,
    ALIGN_N: tl.constexpr, ALIGN_K: tl.constexpr, ACC: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    """One BLOCK_M x BLOCK_N tile per program, any strides; for split-K, a partial sum over `steps` blocks."""
    tile = tl.program_id(0)
    matrix, first_row, first_col = locate_tile(
        tile, n_rows, n_cols, BATCHED, BLOCK_M, BLOCK_N, GROUP
    )
    rows = (first_row.to(INDEX) + tl.arange(0, BLOCK_M))[:, None]
    cols = (first_col.to(INDEX) + tl.arange(0, BLOCK_N))[None, :]
    row_mask = rows < padded(n_rows, ALIGN_M)
    col_mask = cols < padded(n_cols, ALIGN_N)
    if LEFT_BATCHED and n_summed is None:
        left_ptr += matrix.to(INDEX) * stride_left_batch
    if RIGHT_BATCHED and n_summed is None:
        right_ptr += matrix.to(INDEX) * stride_right_batch

    left_rows = left_ptr + offsets(rows, stride_left_row, ALIGN_K)
    right_cols = right_ptr + offsets(cols, stride_right_col, ALIGN_K)
    acc = tl.zeros([BLOCK_M, BLOCK_N], ACC)
    n_terms = count_terms(n_inner, n_summed, BLOCK_K)
    first, end = split_k(n_terms, steps, BLOCK_K, INDEX)
    for term in range(first, end, BLOCK_K):
        at, start = locate_block(matrix, term, n_inner, n_summed, BLOCK_K)
        inner = (start + tl.arange(0, BLOCK_K)).to(INDEX)
        inner_mask = inner < aligned(n_inner, ALIGN_K)
        left_at, right_at = left_rows, right_cols
        if n_summed is not None:
            left_at += at.to(INDEX) * stride_left_batch
            right_at += at.to(INDEX) * stride_right_batch
        left = tl.load(
            left_at + offsets(inner[None, :], stride_left_inner, ALIGN_M),
            mask=row_mask & inner_mask[None, :],
            other=0.0,
        )
        right = tl.load(
            right_at + offsets(inner[:, None], stride_right_inner, ALIGN_N),
            mask=col_mask & inner_mask[:, None],
            other=0.0,
        )
        acc = block_dot(left, right, acc, PRECISION, SWAPS)

    if partial_ptr is not None:
        partial = tl.program_id(1) * tl.num_programs(0) + tile
        store_partial(partial_ptr, partial, acc)
    else:
        matrix = matrix if BATCHED else None
        store_tile(
            None, result_ptr, acc, first_row, first_col, n_rows, n_cols, INDEX, matrix
        )


@triton.jit
def multiply_block(
    left_desc, right_desc,
    acc, matrix, first_row, first_col, term,
    n_inner, n_summed,
    PRECISION: tl.constexpr, LEFT_BATCHED: tl.constexpr, RIGHT_BATCHED: tl.constexpr,
    LEFT_INNER_LAST: tl.constexpr, RIGHT_INNER_LAST: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Accumulate the dot of two blocks, loaded by TMA."""
    at, start = locate_block(matrix, term, n_inner, n_summed, BLOCK_K)
    left = load_block(
        left_desc, first_row, start, LEFT_INNER_LAST, at if LEFT_BATCHED else None
    )
    right = load_block(
        right_desc, first_col, start, RIGHT_INNER_LAST, at if RIGHT_BATCHED else None
    )
    return tl.dot(left, right.T, acc, input_precision=PRECISION, out_dtype=acc.dtype)


@triton.jit
def gemm_tma_kernel(
    left_desc, right_desc, result_desc, result_ptr,
    n_rows, n_cols, n_inner, n_tiles,
    n_summed,
    PRECISION: tl.constexpr, LEFT_BATCHED: tl.constexpr, RIGHT_BATCHED: tl.constexpr,
    BATCHED: tl.constexpr, LEFT_INNER_LAST: tl.constexpr, RIGHT_INNER_LAST: tl.constexpr,
    ACC: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP: tl.constexpr, INDEX: tl.constexpr,
):  # fmt: skip
    """Persistent; loads and stores tiles by TMA, or by `result_ptr` where TMA cannot store."""
    # flatten: the loads of the next tile overlap with the epilogue of this one.
    for tile in tl.range(tl.program_id(0), n_tiles, tl.num_programs(0), flatten=True):
        matrix, first_row, first_col = locate_tile(
            tile, n_rows, n_cols, BATCHED, BLOCK_M, BLOCK_N, GROUP
        )
        acc = tl.zeros([BLOCK_M, BLOCK_N], ACC)
        for term in range(0, count_terms(n_inner, n_summed, BLOCK_K), BLOCK_K):
            acc = multiply_block(
                left_desc, right_desc, acc, matrix, first_row, first_col, term,
                n_inner, n_summed, PRECISION, LEFT_BATCHED, RIGHT_BATCHED,
                LEFT_INNER_LAST, RIGHT_INNER_LAST, BLOCK_K,
            )  # fmt: skip

        # Half by half: the store of one slice overlaps with the math of the next.
        slices = halves(acc, BLOCK_M, BLOCK_N)
        of = matrix if BATCHED else None
        for half in tl.static_range(2):
            col = first_col + half * (BLOCK_N // 2)
            store_tile(
                result_desc, result_ptr, slices[half],
                first_row, col, n_rows, n_cols, INDEX, of,
            )  # fmt: skip


@triton.jit
def gemm_stream_k_kernel(
    left_desc, right_desc, partial_ptr,
    n_rows, n_cols, n_inner, first_tile, n_long, long_splits, n_short, short_splits,
    n_summed,
    PRECISION: tl.constexpr, LEFT_BATCHED: tl.constexpr, RIGHT_BATCHED: tl.constexpr,
    BATCHED: tl.constexpr, LEFT_INNER_LAST: tl.constexpr, RIGHT_INNER_LAST: tl.constexpr,
    ACC: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Stream-K: partial sums of the tiles of the tail wave, which are too few to occupy all SMs."""
    partial = tl.program_id(0)
    tile_steps = tl.cdiv(count_terms(n_inner, n_summed, BLOCK_K), BLOCK_K)
    tile, first_step, end_step = stream_k(
        partial, first_tile, n_long, long_splits, n_short, short_splits, tile_steps
    )
    matrix, first_row, first_col = locate_tile(
        tile, n_rows, n_cols, BATCHED, BLOCK_M, BLOCK_N, GROUP
    )
    acc = tl.zeros([BLOCK_M, BLOCK_N], ACC)
    for step in range(first_step, end_step):
        acc = multiply_block(
            left_desc, right_desc, acc, matrix, first_row, first_col, step * BLOCK_K,
            n_inner, n_summed, PRECISION, LEFT_BATCHED, RIGHT_BATCHED,
            LEFT_INNER_LAST, RIGHT_INNER_LAST, BLOCK_K,
        )  # fmt: skip

    store_partial(partial_ptr, partial, acc)


@triton.jit
def gemm_reduce_kernel(
    result_ptr, partial_ptr,
    n_rows, n_cols, first_tile, n_long, long_splits, n_short, short_splits,
    BATCHED: tl.constexpr, ACC: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, GROUP: tl.constexpr, REDUCE_M: tl.constexpr,
    INDEX: tl.constexpr,
):  # fmt: skip
    """Adds up the partial sums of split-K or stream-K, in a fixed order; REDUCE_M rows of a tile per program."""
    first = tl.program_id(0) * REDUCE_M
    shared, within = first // BLOCK_M, first % BLOCK_M
    matrix, first_row, first_col = locate_tile(
        first_tile + shared, n_rows, n_cols, BATCHED, BLOCK_M, BLOCK_N, GROUP
    )
    acc = tl.zeros([REDUCE_M, BLOCK_N], ACC)
    partials = partials_of(shared, n_long, long_splits, n_short, short_splits)
    acc = sum_partials(acc, partial_ptr, partials, within, BLOCK_M)
    first_row += within
    matrix = matrix if BATCHED else None
    store_tile(
        None, result_ptr, acc, first_row, first_col, n_rows, n_cols, INDEX, matrix
    )
