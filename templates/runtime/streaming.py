"""Launches of kernels that hold a tile of rows past which an axis streams, as attention does."""

from collections.abc import Sequence
from typing import Any

import torch

from . import heuristics, launch, tensors


def sizes(
    n_dims: int,
    batch: Sequence[int],
    lengths: tuple[int, int],
    every: Sequence[torch.Tensor | None],
    n_own: Sequence[int],
) -> tuple[int, ...] | None:
    """What kernels are told of a batch that is folded into `n_dims` dimensions; None where more remain.

    That is the numbers of rows and columns, lengths of the dimensions but the first, and the strides of each tensor
    along the dimensions and its `n_own` other axes, which come last. Those of an absent tensor are 0.
    """
    absent = (0,) * len(batch)
    folded = tensors.fold(
        n_dims,
        tuple(batch),
        tuple(absent if one is None else one.stride()[: len(batch)] for one in every),
    )
    if folded is None:
        return None
    head_sizes, steps = folded
    found = [*lengths, *head_sizes[1:]]
    for one, own, step in zip(every, n_own, steps, strict=True):
        found += [*step, *((0,) * own if one is None else one.stride()[len(batch) :])]
    return tuple(found)


def run(
    key: launch.Key | None,
    table: heuristics.Streamed,
    kernel: Any,
    n_heads: int,
    n_rows: int,
    reads: tuple[tuple[int, ...], tuple[int, ...]],
    args: launch.Args,
    constants: dict[str, Any],
) -> None:
    """Launch a program for each tile of rows of each head.

    Args:
        key: that of the call, by which calls like it launch the same.
        table: of configurations.
        kernel: what is launched.
        n_heads: how many heads there are.
        n_rows: how many rows each has.
        reads: the widths of the matrices that are read for a tile, and of those that are read for each block.
        args: the tensors of the kernel, its sizes and its params.
        constants: what it is compiled for, but for its tiles.
    """
    tile_widths, block_widths = (tuple(map(padded, one)) for one in reads)
    matrix = args[0][0]
    config = table.choose(
        n_rows, tile_widths, block_widths, matrix.itemsize, matrix.device
    )
    grid = (n_heads * tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]),)
    stages = config.num_stages
    launch.run(key, kernel, grid, config, *args, num_stages=stages, **constants)


def padded(width: int) -> int:
    """The width of a tile that holds all of a matrix's."""
    return max(16, tensors.power_of_two(width))
