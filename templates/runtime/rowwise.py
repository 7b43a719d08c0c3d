"""Launches of kernels that reduce rows: which kernel, in which configuration, and how many programs share a row.

Each function called `run_…` launches its kind of kernel if that suits the rows, and says whether it did.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from . import heuristics, launch, tensors
from .sums_kernels import merge_sums_kernel


class Rows(NamedTuple):
    """A call on rows and columns, and the kernel that loops along each row.

    Fields:
        key: that of the call; calls with the same key repeat its launches.
        shape: the numbers of rows and columns.
        contiguous: whether columns are contiguous.
        table, kernel: the configurations of the loop, and its kernel.
        args: the tensors of kernels, their sizes and their params.
        constants: their constexprs, but for INDEX.
        vector: the tensor whose columns a thread reduces several at a time, if the loop does so.
        uniform: a `heuristics.Uniform`, where blocks read one element for many columns of some inputs.
        is_simple: whether the state of a row is one value, for which a loop is as good as rows in registers.
        search: whether @triton.autotune picks the configuration.
    """

    key: launch.Key | None
    shape: tuple[int, int]
    contiguous: bool
    table: heuristics.Loop
    kernel: Any
    args: launch.Args
    constants: dict[str, Any]
    vector: torch.Tensor | None = None
    uniform: Any = None
    is_simple: bool = False
    search: bool = False


class Split(NamedTuple):
    """For few long rows: a kernel that reduces a part of each row.

    It takes the states that it writes after its tensors, and the number of parts and their columns before its sizes. A
    state without a dtype is not computed.
    """

    states: tuple[torch.dtype | None, ...]
    kernel: Any
    args: launch.Args
    constants: dict[str, Any]


class Parts(NamedTuple):
    """The parts of each row: their number, the columns of each, memory for their states, and the options of kernels,
    tiles and what else follows from blocks of columns.
    """

    n_parts: int
    part_cols: int
    states: tuple[torch.Tensor | None, ...]
    tile: dict[str, Any]
    blocks: dict[str, Any]


def sizes(
    *,
    n_dims: int,
    rows: Sequence[int],
    n_cols: int,
    tiles: Sequence[torch.Tensor | None],
    by_col: Sequence[torch.Tensor | None] = (),
    by_row: Sequence[torch.Tensor | None] = (),
) -> tuple[int, ...] | None:
    """The sizes that kernels take for rows that are folded into `n_dims` dimensions; None if more remain.

    These are n_rows, n_cols, the lengths of all dimensions but the first, and strides: of `tiles` [*rows, n_cols] along
    the rows and columns, then of tensors [n_cols], then of tensors [*rows]. Those of an absent tensor are 0.
    """
    absent = (0,) * len(rows)
    folded = tensors.fold(
        n_dims,
        tuple(rows),
        (
            *(absent if tile is None else tile.stride()[:-1] for tile in tiles),
            *(absent if row is None else row.stride() for row in by_row),
        ),
    )
    if folded is None:
        return None
    row_sizes, steps = folded
    found = [math.prod(rows), n_cols, *row_sizes[1:]]
    for tile, step in zip(tiles, steps, strict=False):
        found += [*step, tensors.stride(tile, -1)]
    found += [tensors.stride(vector, -1) for vector in by_col]
    for step in steps[len(tiles) :]:
        found += step
    return tuple(found)


def run_registers(rows: Rows, table: heuristics.Registers, kernel: Any) -> bool:
    """Launch the kernel that holds rows in registers, if they are short enough."""
    n_rows, n_cols = rows.shape
    if rows.uniform is not None and rows.uniform.reads_once(n_cols):
        return False
    if not table.fits(n_rows, n_cols, rows.contiguous):
        return False
    config = table.choose(n_rows, n_cols, rows.contiguous)
    grid = (tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]),)
    options = rows.constants | _index(rows)
    if rows.search:  # The number of warps is left to that.
        options, config = options | config.kwargs, None
    launch.run(rows.key, kernel, grid, config, *rows.args, **options)
    return True


def run_loop(rows: Rows) -> None:
    """Launch the kernel that loops along each row."""
    n_rows, n_cols = rows.shape
    found = rows.table.choose(n_rows, n_cols, rows.contiguous, 32, rows.is_simple)
    config, blocks = _blocks(rows, found)
    options = blocks | rows.constants | _index(rows)

    def programs(meta: Mapping[str, Any]) -> tuple[int]:
        return (tensors.cdiv(n_rows, meta["BLOCK_M"]),)

    grid: Any = programs if rows.search else programs(config.kwargs)
    chosen = None if rows.search else config
    launch.run(rows.key, rows.kernel, grid, chosen, *rows.args, **options)


def _index(rows: Rows) -> dict[str, Any]:
    return {"INDEX": tensors.index_dtype(*rows.args[0])}


def _blocks(rows: Rows, config: triton.Config) -> tuple[triton.Config, dict[str, Any]]:
    """The configuration of a loop, and the constexprs that follow from its blocks of columns."""
    found: dict[str, Any] = {}
    if rows.uniform is not None:
        config, found["UNIFORM"] = rows.uniform.within(config, rows.search)
    if rows.vector is not None:
        size = rows.vector.element_size()
        found["VECTOR"] = heuristics.choose_vector(rows.shape[1], rows.contiguous, size)
    return config, found


def run_cooperative(
    rows: Rows,
    kernel: Any,
    held: tuple[torch.Tensor, ...],
    n_words: int,
    n_values: int,
    merges_moments: bool = False,
) -> bool:
    """Launch the kernel for long rows of which several CTAs, all resident (a cooperative launch), reduce a row
    together, if the device and the tensors allow it.

    Each CTA holds a part of the tensors `held`. They exchange `n_words` per row with `n_values` in these, which are
    means and squared distances from them if it `merges_moments`. After the mailbox, which is empty in each call, the
    kernel's arguments are among those of the loop, by name.
    """
    n_rows, n_cols = rows.shape
    given, _, params = rows.args
    device = launch.device_of(given)
    itemsize = max(one.element_size() for one in held)
    if (
        rows.key is None
        or not rows.contiguous
        or rows.constants.get("COMPUTE", tl.float32) != tl.float32
        or not heuristics.use_cooperative_rows(n_cols, itemsize, len(held), device)
    ):
        return False
    sizes = _sizes_by_name(rows, kernel)
    if not sizes:
        return False
    config = heuristics.choose_cooperative_rows(
        n_cols, len(held), n_values > n_words, merges_moments
    )
    ctas: int = config.kwargs["CTAS_PER_ROW"]
    grid = (heuristics.choose_groups(n_rows, config, device) * ctas,)
    options = rows.constants | _index(rows)
    options |= {"maxnreg": config.maxnreg, "launch_cooperative_grid": True}
    options.pop("ALIGN", None)  # 16 divides the lengths of such rows.

    def mailbox() -> torch.Tensor:
        return torch.zeros((n_rows, n_words, ctas), dtype=torch.int64, device=device)

    launch.run(rows.key, kernel, grid, config, given, sizes, params, mailbox, **options)
    return True


def _sizes_by_name(rows: Rows, kernel: Any) -> tuple[int | None, ...]:
    """The sizes of the loop that the cooperative kernel takes; () if rows do not fold into one dimension."""
    first, of_loop, params = rows.args
    names = rows.kernel.arg_names[len(first) : len(first) + len(of_loop)]
    known = dict(zip(names, of_loop, strict=True))
    compiled = {*rows.constants, "INDEX", "CTAS_PER_ROW", "BLOCK_M", "BLOCK_N"}
    names = [name for name in kernel.arg_names if name not in compiled]
    names = names[1 + len(first) : len(names) - len(params)]
    in_line = all(n == 1 for name, n in known.items() if name.startswith("size_"))
    return tuple(map(known.get, names)) if in_line and known.keys() >= {*names} else ()


def run_split_sums(
    rows: Rows,
    split: Split,
    results: tuple[torch.Tensor, ...],
    are_means: tuple[bool, ...],
    merge_kernel: Any = None,  # torch.compile does not trace a default that is a kernel
) -> bool:
    """Launch the kernel for parts of rows, and one of the runtime, wrapped for registered operators, that merges
    results that are plain sums or means; not if there are programs enough for whole rows.
    """
    parts = _parts_of(rows, split)
    if parts is None:
        return False
    first, *others = zip(parts.states, results, are_means, strict=True)
    other = others[0] if others else (None, None, False)
    options: dict[str, Any] = {"BLOCK_N": tensors.power_of_two(parts.n_parts)}
    options |= {"num_warps": 4, "IS_MEAN": first[2], "IS_OTHER_MEAN": other[2]}
    kernel = merge_sums_kernel if merge_kernel is None else merge_kernel
    args = (*first[:2], *other[:2], parts.n_parts, rows.shape[1])
    second = launch.Stage(kernel, rows.shape[:1], args, options)
    _launch_both(rows, split, parts, parts.blocks, second)
    return True


def run_split_merge(
    rows: Rows,
    split: Split,
    kernel: Any,
    args: launch.Args,
    constants: dict[str, Any],
    counted: bool = False,
) -> bool:
    """Launch the kernel for parts of rows, and the one that merges them; not if there are enough programs for rows.

    The second kernel takes the states of parts before its tensors and, before its sizes, the number of parts and, if
    `counted`, the columns of each.
    """
    parts = _parts_of(rows, split)
    if parts is None:
        return False
    given, sizes, params = args
    counts = (parts.n_parts, parts.part_cols) if counted else (parts.n_parts,)
    options = {"BLOCK_N": tensors.power_of_two(parts.n_parts), "num_warps": 4}
    options |= {"BLOCK_M": 1, **_index(rows), **constants}
    merged = (*parts.states, *given, *counts, *sizes, *params)
    second = launch.Stage(kernel, rows.shape[:1], merged, options)
    _launch_both(rows, split, parts, parts.blocks, second)
    return True


def run_split_map(
    rows: Rows,
    split: Split,
    kernel: Any,
    args: launch.Args,
    constants: dict[str, Any],
    first: tuple[str, ...] = (),
    own: tuple[str, ...] = (),
) -> bool:
    """Launch the kernel for parts of rows, and the one that maps a part of each row after merging the states of all of
    its parts; not if rows are enough to saturate memory.

    The second kernel takes the states before its tensors and, before its sizes, the number of parts and the columns of
    each. Of the constexprs that follow from blocks of columns, the `first` kernel takes some, and this one its `own`.
    """
    n_rows, n_cols = rows.shape
    config, blocks = _blocks(
        rows, rows.table.choose(n_rows, n_cols, rows.contiguous, 16)
    )
    device = launch.device_of(rows.args[0])
    count = heuristics.choose_mapped_splits(n_rows, n_cols, config, device)
    # The second stage reads the states of all parts like a block of columns.
    count = min(count, config.kwargs["BLOCK_N"])
    if count == 1:
        return False
    parts = _parts(rows, split, config, blocks, count)
    given, sizes, params = args
    mapped = (*parts.states, *given, parts.n_parts, parts.part_cols, *sizes, *params)
    options = constants | parts.tile | {name: blocks[name] for name in own}
    grid = (tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]), parts.n_parts)
    second = launch.Stage(kernel, grid, mapped, options)
    _launch_both(rows, split, parts, {name: blocks[name] for name in first}, second)
    return True


def _parts_of(rows: Rows, split: Split) -> Parts | None:
    """The parts of rows that are reduced alone; None if there are programs enough for whole rows."""
    n_rows, n_cols = rows.shape
    found = rows.table.choose(n_rows, n_cols, rows.contiguous, 32, rows.is_simple)
    config, blocks = _blocks(rows, found)
    device = launch.device_of(rows.args[0])
    count = heuristics.choose_splits(n_rows, n_cols, config, device)
    return None if count == 1 else _parts(rows, split, config, blocks, count)


def _parts(
    rows: Rows, split: Split, config: triton.Config, blocks: dict[str, Any], count: int
) -> Parts:
    """About so many parts of each row, in whole blocks."""
    n_rows, n_cols = rows.shape
    count, columns = even_parts(n_cols, count, config.kwargs["BLOCK_N"])
    device = launch.device_of(rows.args[0])
    states = tuple(
        (
            None
            if dtype is None
            else torch.empty((n_rows, count), dtype=dtype, device=device)
        )
        for dtype in split.states
    )
    tile = {**config.kwargs, "num_warps": config.num_warps, **_index(rows)}
    return Parts(count, columns, states, tile, blocks)


def _launch_both(
    rows: Rows,
    split: Split,
    parts: Parts,
    blocks: dict[str, Any],
    second: launch.Stage,
) -> None:
    """Launch the kernel for parts of rows, and the `second` one."""
    given, sizes, params = split.args
    counts = parts.n_parts, parts.part_cols
    args = (*given, *parts.states, *counts, *sizes, *params)
    grid = (tensors.cdiv(rows.shape[0], parts.tile["BLOCK_M"]), parts.n_parts)
    options = parts.tile | blocks | split.constants
    first = launch.Stage(split.kernel, grid, args, options)
    named = {} if rows.key is None else launch.named(rows.kernel, rows.args)
    launch.run_in_turn(rows.key, named, (first, second))


def even_parts(n_cols: int, n_splits: int, block_n: int) -> tuple[int, int]:
    """The number of parts of a row, in whole blocks, and the columns of each; fewer if blocks do not divide evenly."""
    split_cols = tensors.cdiv(tensors.cdiv(n_cols, n_splits), block_n) * block_n
    return tensors.cdiv(n_cols, split_cols), split_cols


def run_parts(
    shape: tuple[int, int],
    contiguous: bool,
    args: launch.Args,
    constants: dict[str, Any],
    tiles: tuple[heuristics.Tile, Any],
) -> None:
    """Launch a kernel whose programs each loop over a part of a few rows, whose length it takes after its sizes."""
    n_rows, n_cols = shape
    config = tiles[0].choose(n_rows, n_cols, contiguous)
    given, sizes, params = args
    device = launch.device_of(given)
    n_splits = heuristics.choose_splits(n_rows, n_cols, config, device)
    n_splits, split_cols = even_parts(n_cols, n_splits, config.kwargs["BLOCK_N"])
    grid = (tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]), n_splits)
    sizes = (*sizes, split_cols)
    launch.run(None, tiles[1], grid, config, given, sizes, params, **constants)
