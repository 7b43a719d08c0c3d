# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The kernels that finish sums of which each program has computed a part: those over rows, and those along rows."""

import triton
import triton.language as tl


@triton.jit
def add_parts(
    part_ptr,
    sum_ptr,
    n_parts,
    n_cols,
    COMPUTE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Add up [n_parts, n_cols] to [n_cols], in the same order always."""
    cols = (tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    col_mask = cols < n_cols
    total = tl.zeros([BLOCK_M, BLOCK_N], COMPUTE)
    for start in range(0, n_parts, BLOCK_M):
        parts = start + tl.arange(0, BLOCK_M)[:, None]
        mask = (parts < n_parts) & col_mask
        total += tl.load(part_ptr + parts * n_cols + cols, mask=mask, other=0.0)
    total = tl.sum(total, axis=0, keep_dims=True)
    tl.store(sum_ptr + cols, total, mask=col_mask)


@triton.jit
def add_parts_kernel(
    part_ptr,
    sum_ptr,
    other_part_ptr,
    other_sum_ptr,
    n_parts,
    n_cols,
    COMPUTE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One sum, and another where there is one."""
    add_parts(part_ptr, sum_ptr, n_parts, n_cols, COMPUTE, BLOCK_M, BLOCK_N)
    if other_sum_ptr is not None:
        add_parts(
            other_part_ptr, other_sum_ptr, n_parts, n_cols, COMPUTE, BLOCK_M, BLOCK_N
        )


@triton.jit
def merge_sum(
    part_ptr, sum_ptr, n_splits, n_cols, IS_MEAN: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Add up [n_rows, n_splits] to [n_rows], a row for each program."""
    row = tl.program_id(0).to(tl.int64)
    splits = tl.arange(0, BLOCK_N)
    part = part_ptr + row * n_splits + splits
    total = tl.sum(tl.load(part, mask=splits < n_splits, other=0), axis=0)
    if IS_MEAN:
        total = total / n_cols
    tl.store(sum_ptr + row, total.to(sum_ptr.dtype.element_ty))


@triton.jit
def merge_sums_kernel(
    part_ptr,
    sum_ptr,
    other_part_ptr,
    other_sum_ptr,
    n_splits,
    n_cols,
    IS_MEAN: tl.constexpr,
    IS_OTHER_MEAN: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One sum along rows, and another where there is one."""
    merge_sum(part_ptr, sum_ptr, n_splits, n_cols, IS_MEAN, BLOCK_N)
    if other_sum_ptr is not None:
        merge_sum(
            other_part_ptr, other_sum_ptr, n_splits, n_cols, IS_OTHER_MEAN, BLOCK_N
        )
