"""Launches of kernels that hold a tile of rows past which an axis streams, as attention does."""

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton.language as tl

from . import heuristics, launch, streaming_tma, tensors
from .dtypes import torch_dtype

BLOCK_SPLITS = 16  # partial sums of a row that the reduction reads at once


class Split(NamedTuple):
    """How programs split what streams past a tile: the kernel that merges the partial sums that they leave.

    Of the partial sums of a row there are so many numbers. The kernel takes these before its tensors, and how many
    splits there are before its sizes.
    """

    kernel: Any
    length: int
    args: launch.Args
    constants: dict[str, Any]


class Gluon(NamedTuple):
    """The Gluon kernel beside a plain one.

    Fields: the name of the module beside which `gluon_kernels` is, the kernel's name, how many scores a block has, how
    many dimensions the batch is folded into, whether a mask leaves some tiles fewer blocks than others, of each tensor
    whether it is read in tiles of "rows", in blocks of "cols", or has a number for each row or head (""), and how many
    axes it has besides the batch.
    """

    module: str
    kernel: str
    n_scores: int
    n_dims: int
    is_masked: bool
    kinds: tuple[str, ...]
    n_own: tuple[int, ...]


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
    reads: tuple[tuple[int, ...], tuple[int, ...]],
    args: launch.Args,
    constants: dict[str, Any],
    split: Split | None = None,
    in_group: int | None = None,
    blocks: streaming_tma.Blocks | None = None,
    page: int | None = None,
    gluon: Gluon | None = None,
    across: bool = False,
) -> None:
    """Launch a program for each tile of rows of each head, or several that split what streams past it.

    Args:
        key: that of the call, by which calls like it launch the same.
        table: of configurations.
        kernel: what is launched.
        lengths: how many heads there are, how many rows each has, and how long what streams is.
        reads: the widths of the matrices that are read for a tile, and of those that are read for each block.
        args: the tensors of the kernel, its sizes and its params.
        constants: what it is compiled for, but for its tiles.
        split: how programs split what streams, if they can.
        in_group: how many neighbouring heads share what streams, whose rows may lie in one tile; None where a kernel
            knows of no such.
        blocks: the matrices that stream, whose blocks are read by TMA where the device and the tensors allow.
        page: how many positions a page has, where what streams lies in pages.
        gluon: the kernel that is launched instead where the device and the tensors allow.
        across: whether a program takes one block of what otherwise streams.
    """
    n_heads, n_rows, n_cols = lengths
    tile_widths, block_widths = (tuple(map(padded, one)) for one in reads)
    matrix = args[0][0]
    given, sizes, params = args
    dims = None
    if blocks is not None and heuristics.use_descriptors(matrix.device, n_rows, n_cols):
        n_matrices = n_heads // (in_group or 1)
        dims = streaming_tma.dims_of_blocks(given, sizes, blocks, n_matrices)
    read = tile_widths, block_widths, matrix.itemsize, matrix.device, dims is not None
    config = table.choose(n_rows, *read)
    n_tiled, n_lines = n_heads, n_rows
    if in_group is not None:
        packed = table.choose(in_group * n_rows, *read)
        packs = heuristics.use_packed_heads(n_rows, in_group, packed)
        if packs:
            config, n_tiled, n_lines = packed, n_heads // in_group, in_group * n_rows
        constants["PACK_HEADS"] = packs
    tiles = n_tiled * tensors.cdiv(n_lines, config.kwargs["BLOCK_M"])
    n_splits = 1
    if split is not None:
        n_splits = heuristics.choose_stream_splits(tiles, n_cols, config, matrix.device)
    if gluon is not None and n_splits == 1 and n_tiled == n_heads:
        widths = tile_widths + block_widths
        n_scores = gluon.n_scores
        if heuristics.use_gluon(
            matrix.device, matrix.dtype, lengths, widths, n_scores
        ):
            launches = importlib.import_module(".streaming_gluon", __package__)
            if launches.run(key, gluon, lengths, in_group, args):
                return
    constants["num_stages"] = heuristics.stream_stages(config, page)
    if split is not None and n_splits > 1:
        constants |= {**config.kwargs, "num_warps": config.num_warps}
        grid = tiles, n_splits
        _run_split(key, kernel, grid, n_heads * n_rows, args, constants, split)
        return
    if split is not None:
        args = given, (None, *sizes), params  # No memory for partial sums.
    if blocks is not None:
        args = given, (*[None] * len(blocks.places), *sizes), params
    if blocks is not None and dims is not None:
        described = streaming_tma.descriptors(
            given, blocks, dims, config.kwargs["BLOCK_N"]
        )
        constants |= {**config.kwargs, "num_warps": config.num_warps}
        every = (*given, *described, *sizes, *params)
        stage = launch.Stage(kernel, (tiles,), every, constants)
        by_name = {} if key is None else launch.named(kernel, args)
        launch.run_stages(key, by_name, (stage,), tuple(by_name))
        return
    beside = (tensors.cdiv(n_cols, config.kwargs["BLOCK_N"]),) if across else ()
    launch.run(key, kernel, (tiles, *beside), config, *args, **constants)


def _run_split(
    key: launch.Key | None,
    kernel: Any,
    grid: tuple[int, int],
    n_lines: int,
    args: launch.Args,
    constants: dict[str, Any],
    split: Split,
) -> None:
    """Launch several programs for each tile, and one for each row of each head, which are so many."""
    (given, sizes, params), (_, n_splits) = args, grid
    merged, merged_sizes, merged_params = split.args
    partial = torch.empty(
        (n_splits, n_lines, split.length),
        dtype=torch_dtype(constants.get("COMPUTE", tl.float32)),
        device=given[0].device,
    )
    first = (*given, partial, *sizes, *params)
    second = (partial, *merged, n_splits, *merged_sizes, *merged_params)
    reduced = {**split.constants, "BLOCK_SPLITS": BLOCK_SPLITS}
    stages = (
        launch.Stage(kernel, grid, first, constants),
        launch.Stage(split.kernel, (n_lines,), second, reduced),
    )
    called = given, (None, *sizes), params  # With what stands for partial sums.
    by_name = {} if key is None else launch.named(kernel, called)
    launch.run_stages(key, by_name, stages, tuple(by_name))


def padded(width: int) -> int:
    """The width of a tile that holds all of a matrix's."""
    return max(16, tensors.power_of_two(width))
