"""The plain matmul of large float32 matrices that are split into bfloat16s before they are multiplied."""

import math
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from . import (
    contraction,
    copies,
    gemm,
    launch,
    matmul_heuristics,
    split_kernels,
    tensors,
    tma,
)

TMA = matmul_heuristics.Tma(
    gemm.TMA.configs[0],
    matmul_heuristics.tile(128, 128, 64, num_warps=8, num_stages=4),
)


def multiply(
    left: torch.Tensor,
    right: torch.Tensor,
    precision: str,
    sums_batch: bool = False,
    search: contraction.Search | None = None,
) -> torch.Tensor:
    """As `gemm.gemm`, with large float32 matrices split beforehand into as many bfloat16s as the precision says."""
    components = tensors.n_components(left.dtype, precision)
    if sums_batch and components:
        left, right, sums_batch = gemm.in_a_row(left), gemm.in_a_row(right), False
    batch = left.shape[:-2] or right.shape[:-2]
    lengths = left.shape[-2], right.shape[-2], left.shape[-1]
    key, replay = launch.lookup("split_gemm", (left, right), precision)
    if replay is None and not splits(left, lengths, math.prod(batch), precision):
        return gemm.gemm(left, right, precision, sums_batch, search)
    shape = (*batch, *lengths[:2])
    result = torch.empty(shape, dtype=left.dtype, device=left.device)
    by_name = {"left": left, "right": right, "result": result}
    if replay is not None:
        replay((*by_name.values(),))
        return result
    launch.run_stages(key, by_name, [_stage(left, right, result, components)])
    return result


def splits(
    left: torch.Tensor, lengths: tuple[int, int, int], n_batch: int, precision: str
) -> bool:
    """Whether matrices of these lengths are split: if the result has tiles for half of the SMs."""
    n_rows, n_cols, _ = lengths
    return (
        tensors.n_components(left.dtype, precision) > 0
        and n_batch * n_rows * n_cols >= 2**21
        and matmul_heuristics.use_tma(
            left.device, torch.bfloat16, *lengths, n_batch, False
        )
    )


def _stage(
    left: torch.Tensor, right: torch.Tensor, result: torch.Tensor, components: int
) -> launch.Stage:
    """The launch that multiplies the components of matrices."""
    *batch, n_rows, n_cols = result.shape
    n_batch = math.prod(batch)
    config = TMA.choose(n_batch * n_rows, n_cols, 0, left.device)
    block_m, block_n, block_k = matmul_heuristics.blocks_of(config)
    half = block_n // 2
    left_desc, left_last = _descriptor(left, block_m, block_k, components)
    right_desc, right_last = _descriptor(right, half, block_k, components)
    result_desc = tma.result_descriptor(result, result.shape, block_m, half)
    tiles = matmul_heuristics.count_tiles(config, n_rows, n_cols, n_batch)
    lengths = n_rows, n_cols, left.shape[-1], tiles
    flags = left.ndim > 2, right.ndim > 2, bool(batch), left_last, right_last
    accumulator = tensors.accumulator_dtype(left.dtype)
    options = {
        "N_COMPONENTS": components,
        "INDEX": tensors.index_dtype(result),
        **contraction.options_of(config, block_k, config.num_stages, accumulator),
    }
    programs = matmul_heuristics.persistent_programs(left.device)
    args = left_desc, right_desc, result_desc, result, *lengths, *flags
    grid = (min(tiles, programs),)
    return launch.Stage(split_kernels.gemm_split_kernel, grid, args, options)


def _descriptor(
    tensor: torch.Tensor, block: int, block_inner: int, components: int
) -> tuple[Any, bool]:
    """A descriptor of the components of matrices, and whether the inner axis is last."""
    tensor, shape, inner_last = tma.in_memory_order(tensor, block, block_inner)
    made = copies.split(tensor, components)
    return TensorDescriptor.from_tensor(made, [1, *shape]), inner_last
