"""Launches of kernels that hold a tile of rows and stream another axis, like attention."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources

from . import launch, streaming_heuristics, streaming_tma, tensors
from .search import fastest

BLOCK_SPLITS = 16  # splits of a row that the reduction loads at once


class Split(NamedTuple):
    """How programs split the streamed axis: the kernel that merges their partial sums, and the number of values in the
    partial sums of a row. The kernel takes these before its tensors, and the number of splits before its sizes.
    """

    kernel: Any
    length: int
    args: launch.Args
    constants: dict[str, Any]


class Gluon(NamedTuple):
    """The Gluon kernel that replaces a plain one on Hopper.

    Fields: the name of a module in the package of `gluon_kernels`, the operator's name, the number of scores of a block
    and of matmuls that it adds to sums, the number of dimensions that the batch is folded into, for each tensor how it
    is read (in tiles of "rows", in blocks of "cols" or of "scores", or of scores "across", whose rows are streamed; as
    a value per row, column or head: ""), its number of axes besides the batch, None for one without a batch, and the
    positions of the tensors from which a kernel before it finds the bounds of tiles, if one does.
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

    def launch(
        self,
        key: launch.Key | None,
        matrix: torch.Tensor,
        widths: tuple[int, ...],
        lengths: tuple[int, int, int],
        in_group: int | None,
        args: launch.Args,
    ) -> bool:
        """Launch it in place of the plain kernel; False if the device or the tensors do not allow it."""
        if not streaming_heuristics.use_gluon(
            matrix.device, matrix.dtype, lengths, widths, self.is_gradient
        ):
            return False
        from . import streaming_gluon  # Gluon is imported where it is launched.

        return streaming_gluon.run(key, self, lengths, in_group, args)


def sizes(
    *,
    n_dims: int,
    batch: Sequence[int],
    lengths: tuple[int, ...],
    operands: Sequence[torch.Tensor | None],
    n_own: Sequence[int],
) -> tuple[int, ...] | None:
    """The sizes that kernels take for a batch folded into `n_dims` dimensions; None if more remain.

    These are the numbers of rows and, if needed, of columns, the lengths of all dimensions but the first, and the
    strides of each tensor along the dimensions and its `n_own` other axes, which come last; 0 for absent tensors.
    """
    absent = (0,) * len(batch)
    folded = tensors.fold(
        n_dims,
        tuple(batch),
        tuple(
            absent if one is None else one.stride()[: len(batch)] for one in operands
        ),
    )
    if folded is None:
        return None
    head_sizes, steps = folded
    found = [*lengths, *head_sizes[1:]]
    for one, own, step in zip(operands, n_own, steps, strict=True):
        found += [*step, *((0,) * own if one is None else one.stride()[len(batch) :])]
    return tuple(found)


class Kernel(NamedTuple):
    """The plain kernel, which streams an axis.

    Fields:
        table: its configurations.
        kernel: the kernel.
        constants: its constexprs other than tile sizes.
        across: whether a program takes a single block of the axis that is streamed otherwise.
        search: whether tiles are timed at the first call of a size, rather than chosen by rule.
    """

    table: streaming_heuristics.Streamed
    kernel: Any
    constants: dict[str, Any]
    across: bool = False
    search: bool = False


def run(
    key: launch.Key | None,
    plain: Kernel,
    *,
    lengths: tuple[int, int, int],
    tile_widths: tuple[int, ...],
    block_widths: tuple[int, ...],
    args: launch.Args,
    split: Split | None = None,
    in_group: int | None = None,
    blocks: streaming_tma.Blocks | None = None,
    gluon: Any = None,
) -> None:
    """Launch one program per tile of rows of each head, or several that split the streamed axis.

    Args:
        key: that of the call; calls with the same key repeat its launches.
        plain: the kernel that is launched unless another one is.
        lengths: the number of heads, the rows of each, and the length of the streamed axis.
        tile_widths: those of the matrices of a tile.
        block_widths: those of the matrices of a streamed block.
        args: the tensors of the kernel, its sizes and its params.
        split: how programs split the streamed axis, if they can.
        in_group: the number of adjacent heads that share the streamed matrices, and whose rows may share a tile; None
            for kernels without groups.
        blocks: the streamed matrices whose blocks are read by TMA if the device and the tensors allow it.
        gluon: a `Gluon`, which is launched instead if the device and the tensors allow it.
    """
    table, (n_heads, n_rows, n_cols) = plain.table, lengths
    tile_widths, block_widths = (
        tuple(map(padded, one)) for one in (tile_widths, block_widths)
    )
    matrix, *_ = [one for one in args[0] if one is not None]
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
        if gluon.launch(key, matrix, widths, lengths, in_group, args):
            return
    rest = plain, lengths, args, split, blocks, dims
    if plain.search:
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
    launched = key, plain.kernel, stages, given, params, dims is not None
    if launch.is_traced():
        _launch(*launched)
        return
    try:
        _launch(*launched)
    except OutOfResources as error:
        width = max(tile_widths + block_widths)
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
        named = {} if key is None else launch.named(kernel, (given, between, params))
        launch.run_stages(key, named, stages)
        return
    launch.mend_dots()
    launch.run(key, kernel, first.grid, None, given, between, params, **first.options)


class _Tiling(NamedTuple):
    """How the rows and the streamed axis are divided.

    Fields: the configuration, whether a tile has the rows of several heads of a group (None for kernels without
    groups), the number of tiles, and the number of programs that split the streamed axis of one.
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
    """The tiling by a given configuration, or by the one that the table chooses for the matrices that are `read`."""
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
    plain: Kernel,
    lengths: tuple[int, int, int],
    args: launch.Args,
    split: Split | None,
    blocks: streaming_tma.Blocks | None,
    dims: list[streaming_tma.Dims] | None,
) -> list[launch.Stage]:
    """The launches of a call: one program per tile, or several, and then one per row that merges their partial sums."""
    config, packs, tiles, n_splits = tiling
    given, sizes, params = args
    n_heads, n_rows, n_cols = lengths
    kernel, constants = plain.kernel, plain.constants
    options = constants | config.kwargs
    options |= {"num_warps": config.num_warps, "num_stages": config.num_stages}
    if packs is not None:
        options["PACK_HEADS"] = packs
    if split is not None and n_splits > 1:
        n_lines = n_heads * n_rows
        merged, merged_sizes, merged_params = split.args
        partial = torch.empty(
            (n_splits, n_lines, split.length),
            dtype=tensors.torch_dtype(constants.get("COMPUTE", tl.float32)),
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
    grid: tuple[int, ...] = (tiles,)
    if plain.across:
        grid = launch.legal((tiles, tensors.cdiv(n_cols, block)))
    return [launch.Stage(kernel, grid, (*given, *behind, *sizes, *params), options)]


def padded(width: int) -> int:
    """The width of a tile that holds full rows of a matrix."""
    return max(16, tensors.power_of_two(width))
