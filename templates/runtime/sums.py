"""Launches of kernels whose programs each compute a part of some sums, and of the kernel that adds the parts up."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import launch, tensors
from .sums_kernels import add_parts_kernel


def run(
    key: launch.Key | None,
    kernel: Any,
    grid: tuple[int, ...],
    args: launch.Args,
    sums: Sequence[torch.Tensor | None],
    dtypes: Sequence[torch.dtype],
    n_parts: int,
    add_kernel: Any = None,
    made: Callable[[], tuple[Any, ...]] = tuple,
    /,
    **options: Any,
) -> None:
    """Launch a kernel that stores `n_parts` of each of the `sums`, in a dtype for each, and then what adds them up, two
    sums in a launch. Absent sums have no parts.

    The kernel takes what is `made` for each launch, tensors, memory [n_parts, n] for each sum of n elements, sizes and
    params. Later calls with the same key repeat this with their own tensors, followed by their sums, and params. Where
    torch has to see launches, `add_kernel` is the runtime's, wrapped.
    """
    given, sizes, params = args
    device = launch.device_of((*given, *sums))
    n_sums, asked = len(sums), [one.numel() for one in sums if one is not None]
    first = launch.launcher(kernel, grid, options, device)
    n = max(asked, default=1)
    block_n = min(32, tensors.power_of_two(n))
    tile = {"BLOCK_M": 4096 // block_n, "BLOCK_N": block_n, "num_warps": 8}
    # torch.compile does not trace a default that is a kernel.
    add_kernel = add_parts_kernel if add_kernel is None else add_kernel
    blocks = (tensors.cdiv(n, block_n),)
    adds = [launch.launcher(add_kernel, blocks, tile, device) for _ in asked[::2]]

    def launches(given: tuple[Any, ...], params: tuple[Any, ...] = ()) -> None:
        given, sums = given[:-n_sums], given[-n_sums:]
        parts = [
            (
                None
                if one is None
                else torch.empty((n_parts, n), dtype=dtype, device=device)
            )
            for one, dtype in zip(sums, dtypes, strict=True)
        ]
        first(*made(), *given, *parts, *sizes, *params)
        pairs = [pair for pair in zip(parts, sums, strict=True) if pair[1] is not None]
        for place, add in enumerate(adds):
            two = [*pairs[2 * place : 2 * place + 2], (None, None)]
            add(*two[0], *two[1], n_parts, n)

    launch.repeated(key, launches, (*given, *sums), params)
