"""Launches of kernels that hold a tile of rows past which an axis streams, as attention does."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton.language as tl

from . import heuristics, launch, tensors
from .dtypes import torch_dtype

BLOCK_SPLITS = 16  # partial sums of a row that the reduction reads at once


class Split(NamedTuple):
    """How programs split what streams past a tile: the kernel that merges the partial sums that they leave.

    Those of a row lie side by side, each one number, or as many as an axis is long. The kernel takes them before its
    tensors, and how many programs there are before its sizes.
    """

    kernel: Any
    widths: tuple[str | None, ...]
    args: tuple[tuple[Any, ...], tuple[int, ...] | None, tuple[Any, ...]]
    constants: dict[str, Any]


def sizes(
    n_dims: int,
    batch: Sequence[int],
    lengths: tuple[int, ...],
    every: Sequence[torch.Tensor | None],
    n_own: Sequence[int],
) -> tuple[int, ...] | None:
    """What kernels are told of a batch that is folded into `n_dims` dimensions; None where more remain.

    That is the numbers of rows, and of columns where they count, lengths of the dimensions but the first, and the
    strides of each tensor along the dimensions and its `n_own` other axes, which come last. Those of an absent tensor
    are 0.
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
    split: Split | None = None,
    in_group: int | None = None,
) -> None:
    """Launch a program for each tile of rows of each head, or several that split what streams past it.

    Args:
        key: that of the call, by which calls like it launch the same.
        table: of configurations.
        kernel: what is launched.
        lengths: how many heads there are, of how many rows and columns.
        widths: the axes that tiles hold whole, and their lengths.
        reads: the axes of the matrices that are read for a tile, and of those that are read for each block.
        args: the tensors of the kernel, its sizes and its params.
        constants: what it is compiled for.
        split: how programs split what streams, if they can.
        in_group: how many neighbouring heads share what streams, whose rows may lie in one tile; None where a kernel
            knows of no such.
    """
    n_heads, n_rows, n_cols = lengths
    padded = {axis: max(16, tensors.power_of_two(n)) for axis, n in widths.items()}
    tile_widths, block_widths = (tuple(padded[axis] for axis in one) for one in reads)
    given, sizes, params = args
    matrix = given[0]
    read = tile_widths, block_widths, matrix.itemsize, matrix.device
    config = table.choose(n_rows, *read)
    n_tiled, n_lines = n_heads, n_rows
    if in_group is not None:
        packed = table.choose(in_group * n_rows, *read)
        packs = in_group > 1 and 2 * n_rows <= packed.kwargs["BLOCK_M"]
        if packs:
            config, n_tiled, n_lines = packed, n_heads // in_group, in_group * n_rows
        constants["PACK_HEADS"] = packs
    tiles = n_tiled * tensors.cdiv(n_lines, config.kwargs["BLOCK_M"])
    constants |= _of_widths(widths, padded, [*widths])
    constants["num_stages"] = config.num_stages
    n_splits = 1
    if split is not None:
        n_splits = heuristics.choose_stream_splits(tiles, n_cols, config, matrix.device)
    if split is None or n_splits == 1:
        none: list[Any] = [None] if split is not None else []
        args = given, (*none, *sizes), params
        launch.run(key, kernel, (tiles,), config, *args, **constants)
        return
    partial_width = (
        tensors.cdiv(
            sum(1 if axis is None else padded[axis] for axis in split.widths), 4
        )
        * 4
    )
    partial = torch.empty(
        (n_splits, n_heads * n_rows, partial_width),
        dtype=torch_dtype(constants.get("COMPUTE", tl.float32)),
        device=matrix.device,
    )
    options = {**config.kwargs, "num_warps": config.num_warps, **constants}
    across = [axis for axis in split.widths if axis is not None]
    reduced = {**split.constants, **_of_widths(widths, padded, across)}
    merged, merged_sizes, merged_params = split.args
    assert merged_sizes is not None  # Of fewer tensors no more dimensions remain.
    launches = (
        (kernel, (tiles, n_splits), (*given, partial, *sizes, *params), options),
        (
            split.kernel,
            (n_heads * n_rows,),
            (partial, *merged, n_splits, *merged_sizes, *merged_params),
            {**reduced, "BLOCK_SPLITS": BLOCK_SPLITS},
        ),
    )
    if key is None:
        for kernel, grid, passed, options in launches:
            launch.run(None, kernel, grid, None, passed, **options)
        return
    names = [name.removesuffix("_ptr") for name in kernel.arg_names]
    first_param = len(given) + 1 + len(sizes)
    names = names[: len(given)] + names[first_param : first_param + len(params)]
    by_name = dict(zip(names, (*given, *params), strict=True))
    replays = [
        launch.run_named(kernel, grid, by_name, passed, **options)
        for kernel, grid, passed, options in launches
    ]
    launch.remember(key, *replays, names=names)


def _of_widths(
    widths: dict[str, int], padded: dict[str, int], axes: Sequence[str]
) -> dict[str, int]:
    """The lengths of some axes, for kernels that are compiled for them."""
    found: dict[str, int] = {}
    for axis in axes:
        found[f"size_{axis.lower()}"] = widths[axis]
        found[f"PADDED_{axis.upper()}"] = padded[axis]
    return found
