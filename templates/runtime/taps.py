"""Launches of kernels that compute partial sums of rows for several taps, and of the one that reduces them."""

from typing import Any

import torch

from . import heuristics, launch, sums, tensors
from .rowwise import even_splits


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
    add_kernel: Any = None,
) -> None:
    """Launch a kernel that sums parts of rows for several taps, in a dtype, and the one that adds them up, which is
    wrapped for registered operators.

    The `shape` is that of rows, columns and an outer axis. The kernel takes the columns of a part before its sizes.
    """
    given, sizes, params = args
    n_rows, n_cols, n_outer = shape
    device = launch.device_of(given)
    config = heuristics.Simple(tiles[0]).choose(n_rows, n_cols, contiguous)
    splits, outer = heuristics.choose_tap_splits(
        n_rows, n_cols, n_outer, config, device
    )
    splits, partial_cols = even_splits(max(1, n_cols), splits, config.kwargs["BLOCK_N"])
    options = {**config.kwargs, "num_warps": config.num_warps, **constants}
    options["INDEX"] = tensors.index_dtype(*given)
    grid = (tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]), splits, outer)
    args = given, (partial_cols, *sizes), params
    of_sums = (result,), (dtype,), splits * outer, add_kernel
    sums.run(key, tiles[1], grid, args, *of_sums, **options)
