"""The matmul that gradients of matmuls are made of: of two matrices as they are, with nothing before or after it."""

import math

import torch

from . import contraction, dtypes, heuristics, launch
from . import gemm_kernels as kernels
from .heuristics import tile

TMA = heuristics.Tma(
    tile(128, 256, 64, num_warps=8, num_stages=3),
    tile(128, 128, 64, num_warps=8, num_stages=4),
    tile(64, 128, 64, num_warps=4, num_stages=4),
)
STRIDED = heuristics.Strided(
    half=(
        tile(128, 128, 64, num_warps=8, num_stages=3),
        tile(64, 128, 128, num_warps=4, num_stages=3),
        tile(64, 64, 128, num_warps=4, num_stages=4),
        tile(64, 32, 128, num_warps=4, num_stages=5),
        tile(32, 128, 64, num_warps=4, num_stages=5),
        tile(32, 64, 256, num_warps=4, num_stages=3),
        tile(32, 32, 256, num_warps=4, num_stages=4),
        tile(16, 128, 64, num_warps=4, num_stages=4),
        tile(16, 64, 256, num_warps=4, num_stages=3),
    ),
    wide=(
        tile(128, 64, 16, num_warps=8, num_stages=3),
        tile(64, 64, 16, num_warps=4, num_stages=3),
        tile(16, 64, 32, num_warps=4, num_stages=3),
        tile(16, 32, 64, num_warps=4, num_stages=3),
    ),
)


def gemm(
    left: torch.Tensor, right: torch.Tensor, precision: str = "ieee"
) -> torch.Tensor:
    """left @ right.mT, accumulated in float32, or in float64 where that is the dtype.

    Args:
        left: [rows, inner] or [batch, rows, inner], with any strides: float16, bfloat16, float32 or float64.
        right: [cols, inner] or [batch, cols, inner], with any strides, of the same dtype and on the same device.
        precision: how float32 is multiplied: "ieee", "tf32", "tf32x3", "bf16x3" or "bf16x6".

    Returns:
        [rows, cols] or [batch, rows, cols], contiguous, of left's dtype.

    Raises:
        ValueError: for matrices that do not fit together.
    """
    key, replay = launch.lookup("gemm", (left, right), precision)
    *batch, n_rows, n_inner = left.shape
    n_cols = right.shape[-2]
    if replay is None and (
        right.shape != (*batch, n_cols, n_inner) or right.dtype != left.dtype
    ):
        raise ValueError(
            f"gemm: left is {left.dtype} {list(left.shape)}, right {right.dtype} {list(right.shape)}"
        )
    shape = (*batch, n_rows, n_cols)
    result = torch.empty(shape, dtype=left.dtype, device=left.device)
    if result.numel() == 0:
        return result
    by_name = {"left": left, "right": right, "result": result}
    if replay is not None:
        replay(by_name)
        return result
    contraction.run(
        key,
        by_name,
        (n_rows, n_cols, n_inner),
        (left,),
        (right,),
        (result,),
        strided=(STRIDED, kernels.gemm_kernel),
        described=(TMA, kernels.gemm_tma_kernel, kernels.gemm_stream_k_kernel),
        reduction=kernels.gemm_reduce_kernel,
        n_batch=math.prod(batch),
        loop=(dtypes.dot_precision(precision),),
        both=(bool(batch),),
        n_strides=(3, 3),
    )
    return result
