"""Launches of kernels that hold a tile of rows past which an axis streams, as attention does."""

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from . import heuristics, launch, tensors


class Gluon(NamedTuple):
    """The Gluon kernel beside a plain one.

    Fields: the name of the module beside which `gluon_kernels` is, the kernel's name, how many dimensions the batch is
    folded into, whether a mask leaves some tiles fewer blocks than others, and of each tensor whether it is read in
    tiles of "rows", in blocks of "cols", or has a number for each row ("").
    """

    module: str
    kernel: str
    n_dims: int
    is_masked: bool
    kinds: tuple[str, ...]


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
    lengths: tuple[int, int, int],
    widths: dict[str, int],
    reads: tuple[tuple[str, ...], tuple[str, ...]],
    args: launch.Args,
    constants: dict[str, Any],
    gluon: Gluon | None = None,
) -> None:
    """Launch a program for each tile of rows of each head.

    Args:
        key: that of the call, by which calls like it launch the same.
        table: of configurations.
        kernel: what is launched.
        lengths: how many heads there are, of how many rows and columns.
        widths: the axes that tiles hold whole, and their lengths.
        reads: the axes of the matrices that are read for a tile, and of those that are read for each block.
        args: the tensors of the kernel, its sizes and its params.
        constants: what it is compiled for.
        gluon: the kernel that is launched instead where the device and the tensors allow.
    """
    if gluon is not None and heuristics.use_gluon(
        args[0][0].device, args[0][0].dtype, lengths, tuple(widths.values())
    ):
        launches = importlib.import_module(".streaming_gluon", __package__)
        if launches.run(key, gluon, lengths, args):
            return
    n_heads, n_rows, _ = lengths
    padded = {axis: max(16, tensors.power_of_two(n)) for axis, n in widths.items()}
    tile_widths, block_widths = (tuple(padded[axis] for axis in one) for one in reads)
    matrix = args[0][0]
    config = table.choose(
        n_rows, tile_widths, block_widths, matrix.itemsize, matrix.device
    )
    grid = (n_heads * tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]),)
    for axis, width in widths.items():
        constants[f"size_{axis.lower()}"] = width
        constants[f"PADDED_{axis.upper()}"] = padded[axis]
    constants["num_stages"] = config.num_stages
    launch.run(key, kernel, grid, config, *args, **constants)
