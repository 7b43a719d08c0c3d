"""The matmul that gradients of matmuls are made of: of two matrices as they are, with nothing before or after it."""

import math
from typing import Any

import torch
import triton
import triton.language as tl

from . import gemm_kernels as kernels
from . import heuristics, launch, tensors, tma
from .dtypes import torch_dtype

REDUCE_M = 4  # rows of a tile that a program of the split-K reduction adds up


def _config(
    block_m: int, block_n: int, block_k: int, num_warps: int, num_stages: int
) -> triton.Config:
    blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP": 8}
    return triton.Config(blocks, num_warps=num_warps, num_stages=num_stages)


# Rows and columns of a tile, how much of the inner axis it takes at once, warps, and pipeline stages.
TMA = heuristics.Tma(
    _config(128, 256, 64, 8, 3),
    _config(128, 128, 64, 8, 4),
    _config(64, 128, 64, 4, 4),
)
STRIDED = heuristics.Strided(
    half=(
        _config(128, 128, 64, 8, 3),
        _config(64, 128, 128, 4, 3),
        _config(64, 64, 128, 4, 4),
        _config(64, 32, 128, 4, 5),
        _config(32, 128, 64, 4, 5),
        _config(32, 64, 256, 4, 3),
        _config(32, 32, 256, 4, 4),
        _config(16, 128, 64, 4, 4),
        _config(16, 64, 256, 4, 3),
    ),
    wide=(
        _config(128, 64, 16, 8, 3),
        _config(64, 64, 16, 4, 3),
        _config(16, 64, 32, 4, 3),
        _config(16, 32, 64, 4, 3),
    ),
)


def gemm(
    left: torch.Tensor, right: torch.Tensor, precision: str = "ieee"
) -> torch.Tensor:
    """left @ right.mT, accumulated in float32, or in float64 where that is the dtype.

    Args:
        left: [rows, inner] or [batch, rows, inner], with any strides: float16, bfloat16, float32 or float64.
        right: [cols, inner] or [batch, cols, inner], with any strides, of the same dtype and on the same device.
        precision: how float32 is multiplied, "ieee", "tf32" or "tf32x3".

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
    with launch.on_device(left.device):
        if replay is not None:
            replay(by_name)
        elif heuristics.use_tma(
            left.device, left.dtype, n_rows, n_cols, n_inner, math.prod(batch)
        ):
            launch.remember(key, *_launch_tma(by_name, precision))
        else:
            launch.remember(key, *_launch_strided(by_name, precision))
    return result


def _launch_tma(
    by_name: dict[str, torch.Tensor], precision: str
) -> list[launch.Replay | None]:
    """Launch persistent programs, and stream-K for the tail wave where that saves time."""
    left, right, result = by_name["left"], by_name["right"], by_name["result"]
    *batch, n_rows, n_cols = result.shape
    n_batch, n_inner = math.prod(batch), left.shape[-1]
    config = TMA.choose(n_batch * n_rows, n_cols, n_inner, left.device)
    block_m, block_n, block_k = (config.kwargs[f"BLOCK_{side}"] for side in "MNK")
    left_desc, left_inner_last = tma.descriptor(left, block_m, block_k)
    right_desc, right_inner_last = tma.descriptor(right, block_n, block_k, n_rows)
    result_desc = tma.result_descriptor(result, block_m, block_n // 2)
    tiles = n_batch * tensors.cdiv(n_rows, block_m) * tensors.cdiv(n_cols, block_n)
    tile_steps = tensors.cdiv(n_inner, block_k)
    programs = heuristics.persistent_programs(left.device)
    split = heuristics.choose_stream_k(tiles, tile_steps, programs)
    n_long, long_parts, n_short, short_parts = split
    first_tile = tiles - n_long - n_short
    options = {
        "LEFT_INNER_LAST": left_inner_last,
        "RIGHT_INNER_LAST": right_inner_last,
        "PRECISION": precision,
        **_constants(by_name),
        **_tiling(config, config.num_stages),
    }
    launches = []
    if first_tile:
        launches.append(
            launch.run_named(
                kernels.gemm_tma_kernel,
                (min(tiles, programs),),
                by_name,
                (
                    left_desc,
                    right_desc,
                    result_desc,
                    result,
                    n_rows,
                    n_cols,
                    n_inner,
                    first_tile,
                ),
                **options,
            )
        )
    if n_long:
        n_parts = n_long * long_parts + n_short * short_parts
        partial = _partial_sums(n_parts, block_m, block_n, left)
        launches += [
            launch.run_named(
                kernels.gemm_stream_k_kernel,
                (n_parts,),
                by_name,
                (
                    left_desc,
                    right_desc,
                    partial,
                    n_rows,
                    n_cols,
                    first_tile,
                    *split,
                    tile_steps,
                ),
                **options,
            ),
            _launch_reduce(by_name, partial, first_tile, split, config),
        ]
    return launches


def _launch_strided(
    by_name: dict[str, torch.Tensor], precision: str
) -> list[launch.Replay | None]:
    """Launch a program for each tile, or split-K programs for few tiles with a long inner axis."""
    left, right, result = by_name["left"], by_name["right"], by_name["result"]
    *batch, n_rows, n_cols = result.shape
    n_batch, n_inner = math.prod(batch), left.shape[-1]
    config = STRIDED.choose(
        n_batch * n_rows, n_cols, left.dtype, right.stride(-2) == 1, left.device
    )
    block_m, block_n, block_k = (config.kwargs[f"BLOCK_{side}"] for side in "MNK")
    tiles = n_batch * tensors.cdiv(n_rows, block_m) * tensors.cdiv(n_cols, block_n)
    n_parts = heuristics.choose_split_k(tiles, n_inner, left.device)
    stage_bytes = (block_m + block_n) * block_k * left.dtype.itemsize
    stages = heuristics.choose_stages(config, tiles * n_parts, stage_bytes, left.device)
    strides = (*_strides(left), *_strides(right))
    options = {
        "PRECISION": precision,
        **_constants(by_name),
        **_tiling(config, stages),
    }
    if n_parts == 1:
        args = (left, right, result, n_rows, n_cols, n_inner, *strides)
        return [
            launch.run_named(kernels.gemm_kernel, (tiles,), by_name, args, **options)
        ]
    steps = tensors.cdiv(tensors.cdiv(n_inner, n_parts), block_k)
    n_parts = tensors.cdiv(n_inner, steps * block_k)
    partial = _partial_sums(tiles * n_parts, block_m, block_n, left)
    return [
        launch.run_named(
            kernels.gemm_split_k_kernel,
            (tiles, n_parts),
            by_name,
            (left, right, partial, n_rows, n_cols, n_inner, steps, *strides),
            **options,
        ),
        _launch_reduce(by_name, partial, 0, (tiles, n_parts, 0, 0), config),
    ]


def _launch_reduce(
    by_name: dict[str, torch.Tensor],
    partial: torch.Tensor,
    first_tile: int,
    split: tuple[int, int, int, int],
    config: triton.Config,
) -> launch.Replay | None:
    """Launch the split-K reduction of tiles that are split as `heuristics.choose_stream_k` tells."""
    result = by_name["result"]
    *_, n_rows, n_cols = result.shape
    n_long, _, n_short, _ = split
    block_m = config.kwargs["BLOCK_M"]
    return launch.run_named(
        kernels.gemm_reduce_kernel,
        ((n_long + n_short) * block_m // REDUCE_M,),
        by_name,
        (result, partial, n_rows, n_cols, first_tile, *split),
        **_constants(by_name),
        BLOCK_M=block_m,
        BLOCK_N=config.kwargs["BLOCK_N"],
        REDUCE_M=REDUCE_M,
        GROUP=config.kwargs["GROUP"],
        num_warps=4,
    )


def _partial_sums(
    count: int, block_m: int, block_n: int, like: torch.Tensor
) -> torch.Tensor:
    """Memory for the partial sums of so many tiles."""
    dtype = torch_dtype(_accumulator(like))
    return torch.empty((count, block_m, block_n), dtype=dtype, device=like.device)


def _accumulator(tensor: torch.Tensor) -> tl.dtype:
    return tl.float64 if tensor.dtype == torch.float64 else tl.float32


def _constants(by_name: dict[str, torch.Tensor]) -> dict[str, Any]:
    """What all kernels are compiled for."""
    return {
        "BATCHED": by_name["left"].ndim == 3,
        "ACC": _accumulator(by_name["left"]),
        "INDEX": tensors.index_dtype(*by_name.values()),
    }


def _tiling(config: triton.Config, num_stages: int) -> dict[str, Any]:
    return {
        **config.kwargs,
        "num_warps": config.num_warps,
        "num_stages": num_stages,
    }


def _strides(matrix: torch.Tensor) -> tuple[int | None, ...]:
    """The strides of a matrix, that of the batch first: None where there is none."""
    return (None, *matrix.stride()) if matrix.ndim == 2 else matrix.stride()
