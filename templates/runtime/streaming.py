"""Launches of kernels that hold a tile of rows past which an axis streams, as attention does."""

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources

from . import launch, streaming_heuristics, streaming_tma, tensors
from .dtypes import torch_dtype
from .search import fastest

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

    Fields: the name of the module beside which `gluon_kernels` is, the operator's name, how many scores a block has and
    how many matmuls it adds to sums, how many dimensions the batch is folded into, of each tensor whether it is read in
    tiles of "rows", in blocks of "cols" or of "scores", the rows of which stream where they lie "across", or has a
    number for each row, column or head (""), how many axes it has besides the batch, None for one without that, and the
    places of the tensors by which a kernel before it finds the bounds of tiles, if one does.
    """

    module: str
    name: str
    matmuls: tuple[int, int]
    n_dims: int
    kinds: tuple[str, ...]
    n_own: tuple[int | None, ...]
    found_of: tuple[int, ...] = ()

    @property
    def is_gradient(self) -> bool:
        """Whether a block has the scores of a gradient as well."""
        return self.matmuls[0] > 1


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
    table: streaming_heuristics.Streamed,
    kernel: Any,
    lengths: tuple[int, int, int],
    reads: tuple[tuple[int, ...], tuple[int, ...]],
    args: launch.Args,
    constants: dict[str, Any],
    split: Split | None = None,
    in_group: int | None = None,
    blocks: streaming_tma.Blocks | None = None,
    gluon: Gluon | None = None,
    across: bool = False,
    search: bool = False,
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
        gluon: the kernel that is launched instead where the device and the tensors allow.
        across: whether a program takes one block of what otherwise streams.
        search: whether tiles of the plain kernel are timed at the first call of a size, and not chosen by rule.
    """
    n_heads, n_rows, n_cols = lengths
    tile_widths, block_widths = (tuple(map(padded, one)) for one in reads)
    matrix = args[0][0]
    given, sizes, params = args
    dims = None
    if blocks is not None and streaming_heuristics.use_descriptors(
        matrix.device, n_rows, n_cols
    ):
        n_matrices = n_heads // (in_group or 1)
        dims = streaming_tma.dims_of_blocks(given, sizes, blocks, n_matrices)
    read = tile_widths, block_widths, matrix.itemsize, matrix.device, dims is not None
    splits = split is not None
    tiling = _tiling(table, lengths, read, in_group, splits)
    if gluon is not None and tiling.n_splits == 1 and not tiling.packs:
        widths = tile_widths + block_widths
        if streaming_heuristics.use_gluon(
            matrix.device, matrix.dtype, lengths, widths, gluon.is_gradient
        ):
            launches = importlib.import_module(".streaming_gluon", __package__)
            if launches.run(key, gluon, lengths, in_group, args):
                return
    rest = kernel, lengths, args, constants, split, blocks, dims, across
    if search:
        lines = (in_group or 1) * n_rows
        config = fastest(
            (table, lengths, in_group, *read),
            table.candidates(lines, *read),
            lambda config: _stages(
                _tiling(table, lengths, read, in_group, splits, config), *rest
            ),
            matrix.device,
        )
        tiling = _tiling(table, lengths, read, in_group, splits, config)
    stages = _stages(tiling, *rest)
    launched = key, kernel, stages, given, params, dims is not None
    if torch.compiler.is_compiling():
        _launch(*launched)
        return
    try:
        _launch(*launched)
    except OutOfResources as error:
        width = max(map(max, reads))
        raise ValueError(
            f"heads of {width} elements of {matrix.dtype} are wider than a tile in shared memory; scores are stored "
            "instead where the spec gives that axis a length of more than 1024, or has `fuse = false` in [schedule]"
        ) from error


def _launch(
    key: launch.Key | None,
    kernel: Any,
    stages: list[launch.Stage],
    given: tuple[Any, ...],
    params: tuple[Any, ...],
    is_described: bool,
) -> None:
    """Launch the stages of a call, which has its tensors first and its params last; with descriptors, if there are."""
    first = stages[0]
    # Between tensors and params: partial sums or descriptors, and sizes.
    between = first.args[len(given) : len(first.args) - len(params)]
    if len(stages) > 1 or is_described:
        by_name = {} if key is None else launch.named(kernel, (given, between, params))
        launch.run_stages(key, by_name, stages, tuple(by_name))
        return
    launch.run(key, kernel, first.grid, None, given, between, params, **first.options)


class _Tiling(NamedTuple):
    """How rows are divided, and what streams past them.

    Fields: the configuration, whether a tile has the rows of several heads of a group (None where a kernel knows of no
    groups), how many tiles there are, and how many programs share what streams past one.
    """

    config: triton.Config
    packs: bool | None
    tiles: int
    n_splits: int


def _tiling(
    table: streaming_heuristics.Streamed,
    lengths: tuple[int, int, int],
    read: tuple[Any, ...],
    in_group: int | None,
    splits: bool,
    config: triton.Config | None = None,
) -> _Tiling:
    """By a configuration, or else by what the table chooses for what is `read`."""
    n_heads, n_rows, n_cols = lengths
    chosen, packs = config or table.choose(n_rows, *read), None
    if in_group is not None:
        packed = config or table.choose(in_group * n_rows, *read)
        packs = streaming_heuristics.use_packed_heads(n_rows, in_group, packed)
        if packs:
            chosen, n_heads, n_rows = packed, n_heads // in_group, in_group * n_rows
    tiles = n_heads * tensors.cdiv(n_rows, chosen.kwargs["BLOCK_M"])
    n_splits = 1
    if splits:
        device = read[3]
        n_splits = streaming_heuristics.choose_stream_splits(
            tiles, n_cols, chosen, device, table.float8
        )
    return _Tiling(chosen, packs, tiles, n_splits)


def _stages(
    tiling: _Tiling,
    kernel: Any,
    lengths: tuple[int, int, int],
    args: launch.Args,
    constants: dict[str, Any],
    split: Split | None,
    blocks: streaming_tma.Blocks | None,
    dims: list[streaming_tma.Dims] | None,
    across: bool,
) -> list[launch.Stage]:
    """The launches of a call: a program for each tile, or several, and then one for each row that merges their sums."""
    config, packs, tiles, n_splits = tiling
    given, sizes, params = args
    n_heads, n_rows, n_cols = lengths
    options = constants | config.kwargs
    options |= {"num_warps": config.num_warps, "num_stages": config.num_stages}
    if packs is not None:
        options["PACK_HEADS"] = packs
    if split is not None and n_splits > 1:
        n_lines = n_heads * n_rows
        merged, merged_sizes, merged_params = split.args
        partial = torch.empty(
            (n_splits, n_lines, split.length),
            dtype=torch_dtype(constants.get("COMPUTE", tl.float32)),
            device=given[0].device,
        )
        first = (*given, partial, *sizes, *params)
        second = (partial, *merged, n_splits, *merged_sizes, *merged_params)
        reduced = {**split.constants, "BLOCK_SPLITS": BLOCK_SPLITS}
        return [
            launch.Stage(kernel, (tiles, n_splits), first, options),
            launch.Stage(split.kernel, (n_lines,), second, reduced),
        ]
    block: int = config.kwargs["BLOCK_N"]
    behind: list[Any] = []
    if split is not None:
        behind.append(None)  # No memory for partial sums.
    if blocks is not None and dims is not None:
        behind += streaming_tma.descriptors(given, blocks, dims, block)
    elif blocks is not None:
        behind += [None] * len(blocks.places)
    grid = (tiles, tensors.cdiv(n_cols, block)) if across else (tiles,)
    return [launch.Stage(kernel, grid, (*given, *behind, *sizes, *params), options)]


def padded(width: int) -> int:
    """The width of a tile that holds all of a matrix's."""
    return max(16, tensors.power_of_two(width))
