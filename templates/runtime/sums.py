"""Launches of kernels whose programs write partial sums, and of the kernel that reduces these."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import launch, tensors
from .reduce import reduce_partials_kernel


def run(
    key: launch.Key | None,
    kernel: Any,
    grid: tuple[int, ...],
    args: launch.Args,
    sums: Sequence[torch.Tensor | None],
    dtypes: Sequence[torch.dtype],
    n_partials: int,
    add_kernel: Any = None,
    made: Callable[[], tuple[Any, ...]] = tuple,
    /,
    **options: Any,
) -> None:
    """Launch a kernel that stores `n_partials` of each of the `sums`, in a dtype for each, and the kernel that adds
    them up, two sums in a launch. Absent sums have no partials.

    The kernel takes what is `made` for each launch, tensors, memory [n_partials, n] for each sum of n elements, sizes
    and params. Later calls with the same key repeat this with their own tensors, followed by their sums, and params.
    Where torch has to see launches, `add_kernel` is the runtime's, wrapped.
    """
    given, sizes, params = args
    device = launch.device_of((*given, *sums))
    first = launch.Launcher(kernel, grid, options, device)
    n_sums = len(sums)
    asked = [place for place, one in enumerate(sums) if one is not None]
    elements = [one.numel() for one in sums if one is not None]
    n = max(elements) if elements else 1
    block_n = 32 if n >= 32 else tensors.power_of_two(n)
    in_tile, warps = (1024, 4) if n_partials * block_n <= 1024 else (4096, 8)
    tile = {"BLOCK_M": in_tile // block_n, "BLOCK_N": block_n, "num_warps": warps}
    # torch.compile does not trace a default that is a kernel.
    add_kernel = reduce_partials_kernel if add_kernel is None else add_kernel
    blocks = (tensors.cdiv(n, block_n),)
    pairs = [asked[place : place + 2] for place in range(0, len(asked), 2)]
    adds = [launch.Launcher(add_kernel, blocks, tile, device) for _ in pairs]

    def launches(given: tuple[Any, ...], params: tuple[Any, ...] = ()) -> None:
        given, sums = given[:-n_sums], given[-n_sums:]
        partials: list[torch.Tensor | None] = [None] * n_sums
        for place in asked:
            partials[place] = torch.empty(
                (n_partials, n), dtype=dtypes[place], device=device
            )
        first.launch(*made(), *given, *partials, *sizes, *params)
        for add, (one, *others) in zip(adds, pairs, strict=True):
            two = (partials[others[0]], sums[others[0]]) if others else (None, None)
            add.launch(partials[one], sums[one], *two, n_partials, n)

    launches((*given, *sums), params)
    if launch.is_replayed(device):
        launch.remember(key, launches)
