"""The plain matmul of two matrices, without prologue or epilogue, which gradients of matmuls use."""

import math

import torch

from . import contraction, launch, matmul_heuristics, tensors
from . import gemm_kernels as kernels
from .matmul_heuristics import tile

VECTOR = 16  # elements: Triton specialises on strides and lengths that this divides
TMA = matmul_heuristics.Tma(
    tile(128, 256, 64, num_warps=8, num_stages=3),
    tile(128, 128, 64, num_warps=4, num_stages=5),
    tile(64, 128, 128, num_warps=4, num_stages=4),
    tile(128, 64, 128, num_warps=4, num_stages=4),
)
STRIDED = matmul_heuristics.Strided(
    half=(
        tile(128, 128, 64, num_warps=8, num_stages=3),
        tile(64, 128, 128, num_warps=4, num_stages=3),
        tile(64, 64, 128, num_warps=4, num_stages=4),
        tile(128, 32, 64, num_warps=4, num_stages=4),
        tile(64, 32, 128, num_warps=4, num_stages=5),
        tile(32, 128, 64, num_warps=4, num_stages=5),
        tile(32, 64, 256, num_warps=4, num_stages=3),
        tile(32, 32, 256, num_warps=4, num_stages=4),
        tile(16, 128, 64, num_warps=4, num_stages=4),
        tile(16, 64, 256, num_warps=4, num_stages=3),
        tile(16, 64, 128, num_warps=4, num_stages=4),
    ),
    single=(
        tile(128, 128, 16, num_warps=4, num_stages=3),
        tile(64, 128, 16, num_warps=4, num_stages=3),
        tile(64, 64, 32, num_warps=4, num_stages=3),
        tile(32, 64, 32, num_warps=2, num_stages=3),
        tile(16, 64, 32, num_warps=2, num_stages=3),
    ),
    double=(
        tile(128, 64, 16, num_warps=8, num_stages=3),
        tile(64, 64, 16, num_warps=4, num_stages=3),
        tile(16, 64, 32, num_warps=4, num_stages=3),
        tile(16, 32, 64, num_warps=4, num_stages=3),
    ),
)
# For float32 on tensor cores, rounded or split.
SPLIT = matmul_heuristics.Strided(
    half=STRIDED.half,
    single=(
        tile(128, 128, 32, num_warps=8, num_stages=3),
        tile(64, 64, 64, num_warps=4, num_stages=3),
        tile(64, 32, 32, num_warps=4, num_stages=4),
        tile(16, 64, 64, num_warps=4, num_stages=3),
        tile(16, 32, 64, num_warps=4, num_stages=3),
    ),
    double=STRIDED.double,
)


def gemm(
    left: torch.Tensor,
    right: torch.Tensor,
    precision: str = "ieee",
    sums_batch: bool = False,
    search: contraction.Search | None = None,
) -> torch.Tensor:
    """left @ right.mT, accumulated in float32, or in float64 where that is the dtype.

    Args:
        left: [rows, inner] or [batch, rows, inner], with any strides: float16, bfloat16, float32 or float64.
        right: [cols, inner] or [batch, cols, inner], with any strides, of the same dtype and on the same device. If
            only one of the two has a batch, the other is broadcast.
        precision: how float32 is multiplied, "ieee", "tf32", "tf32x3", "bf16x3" or "bf16x6".
        sums_batch: whether the result is summed over the batch, which both must have.
        search: `search.fastest`, to time tiles at the first call of a size rather than choose by rule.

    Returns:
        [rows, cols], or [batch, rows, cols] if either has a batch that is not summed, contiguous, with left's dtype.

    Raises:
        ValueError: if the matrices do not match, or one lacks the batch that is summed.
    """
    key, replay = launch.lookup("gemm", (left, right), precision, sums_batch, search)
    *batch, n_rows, n_inner = left.shape
    *right_batch, n_cols, _ = right.shape
    if replay is None:
        _check(left, right, sums_batch)
        if sums_batch and not _sums(left, right):
            return gemm(in_a_row(left), in_a_row(right), precision, search=search)
    batch = batch or right_batch
    n_summed = batch.pop() if sums_batch else None
    result = left.new_empty((*batch, n_rows, n_cols))
    if replay is not None:
        replay((left, right, result))
        return result
    if result.numel() == 0:
        return result
    by_name = {"left": left, "right": right, "result": result}
    flags = tensors.dot_precision(precision), left.ndim > 2, right.ndim > 2
    operands = contraction.Operands(
        lengths=(n_rows, n_cols, n_inner),
        left=(left,),
        right=(right,),
        results=(result,),
        n_batch=math.prod(batch) if batch else None,
        n_summed=n_summed or 1,
        loop=(n_summed, *flags),
        both=(bool(batch),),
    )
    contraction.run(key, by_name, _kernels(precision), operands, search)
    return result


def _check(left: torch.Tensor, right: torch.Tensor, sums_batch: bool) -> None:
    """Refuse matrices that do not match."""
    *batch, _, n_inner = left.shape
    *right_batch, _, right_inner = right.shape
    fits = (right_batch or batch, right_inner) == (batch or right_batch, n_inner)
    fits = fits and (left.ndim == right.ndim == 3 or not sums_batch)
    if not (fits and left.dtype == right.dtype):
        raise ValueError(
            f"gemm: left is {left.dtype} {list(left.shape)}, right {right.dtype} {list(right.shape)}"
        )


def _kernels(precision: str) -> contraction.Kernels:
    table = STRIDED if precision == "ieee" else SPLIT
    strides = 3, 3
    return contraction.Kernels(
        contraction.Strided(table, kernels.gemm_kernel, strides, pads=True),
        kernels.gemm_reduce_kernel,
        contraction.Tma(TMA, kernels.gemm_tma_kernel, kernels.gemm_stream_k_kernel),
        precision=precision,
    )


def _sums(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether kernels sum over a batch in place: if they read it in vectors and in blocks that are nearly full."""
    n_batch, _, n_inner = left.shape
    return (
        n_batch > 1
        and n_inner % VECTOR == 0
        and matmul_heuristics.fills(n_inner, contraction.SHORTEST)
        and contraction.all_readable((left, right), VECTOR * left.itemsize)
    )


def in_a_row(matrices: torch.Tensor) -> torch.Tensor:
    """[batch, rows, inner] as [rows, batch * inner]."""
    n_batch, n_rows, n_inner = matrices.shape
    return matrices.transpose(0, 1).reshape(n_rows, n_batch * n_inner)
