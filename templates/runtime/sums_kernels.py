# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The kernel that reduces partial sums."""

import triton
import triton.language as tl


@triton.jit
def add_parts(
    part_ptr, sum_ptr, n_parts, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Add up [n_parts, n] to [n], in the same order always."""
    cols = (tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    col_mask = cols < n
    total = tl.zeros([BLOCK_M, BLOCK_N], part_ptr.dtype.element_ty)
    for start in range(0, n_parts, BLOCK_M):
        parts = start + tl.arange(0, BLOCK_M)[:, None]
        total += tl.load(
            part_ptr + parts * n + cols, mask=(parts < n_parts) & col_mask, other=0
        )
    total = tl.sum(total, axis=0, keep_dims=True)
    tl.store(sum_ptr + cols, total.to(sum_ptr.dtype.element_ty), mask=col_mask)


@triton.jit
def add_parts_kernel(
    part_ptr,
    sum_ptr,
    other_part_ptr,
    other_sum_ptr,
    n_parts,
    n,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One sum, and another where there is one."""
    add_parts(part_ptr, sum_ptr, n_parts, n, BLOCK_M, BLOCK_N)
    if other_sum_ptr is not None:
        add_parts(other_part_ptr, other_sum_ptr, n_parts, n, BLOCK_M, BLOCK_N)
