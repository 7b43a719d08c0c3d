"""Launches of kernels that sum parts of rows for several taps, and of the one that merges the parts."""

from typing import Any

import torch

from . import heuristics, launch, tensors
from .rowwise import even_parts
from .sums_kernels import merge_sums_kernel


def run(
    key: launch.Key | None,
    *,
    shape: tuple[int, int, int],
    contiguous: bool,
    args: launch.Args,
    constants: dict[str, Any],
    tiles: tuple[heuristics.Loop, Any],
    dtype: torch.dtype,
    result: torch.Tensor,
    merge_kernel: Any = None,  # torch.compile does not trace a default that is a kernel
) -> None:
    """Launch a kernel that sums parts of rows for several taps, in a dtype, and the one that merges the parts, which is
    wrapped for registered operators.

    The `shape` is that of rows, columns and an outer axis. The kernel takes parts and their columns before its sizes.
    """
    given, sizes, params = args
    n_rows, n_cols, n_outer = shape
    device = launch.device_of(given)
    config = tiles[0].choose(n_rows, n_cols, contiguous)
    splits, outer = heuristics.choose_parts(n_rows, n_cols, n_outer, config, device)
    splits, split_cols = even_parts(max(1, n_cols), splits, config.kwargs["BLOCK_N"])
    n_parts = splits * outer
    tile = {**config.kwargs, "num_warps": config.num_warps, **constants}
    tile["INDEX"] = tensors.index_dtype(*given)
    grid = (tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]), splits, outer)
    first = launch.launcher(tiles[1], grid, tile, device)
    options = {"BLOCK_N": tensors.power_of_two(n_parts), "num_warps": 4}
    options |= {"IS_MEAN": False, "IS_OTHER_MEAN": False}
    kernel = merge_sums_kernel if merge_kernel is None else merge_kernel
    n_sums, most = result.numel(), launch.MOST_FIRST
    counts = [min(most, n_sums - start) for start in range(0, n_sums, most)]
    others = [launch.launcher(kernel, (count,), options, device) for count in counts]

    def launches(every: tuple[Any, ...], params: tuple[Any, ...] = ()) -> None:
        *given, result = every
        part = torch.empty((n_sums, n_parts), dtype=dtype, device=device)
        first(*given, part, split_cols, *sizes, *params)
        pairs = [(part, result)]
        if n_sums > most:  # More programs than a grid has.
            pairs = [
                *zip(
                    torch.split(part, most),
                    torch.split(result.view(-1), most),
                    strict=True,
                )
            ]
        for merge, (one, sums) in zip(others, pairs, strict=True):
            merge(one, sums, None, None, n_parts, n_cols)

    launch.repeated(key, launches, (*given, result), params)
