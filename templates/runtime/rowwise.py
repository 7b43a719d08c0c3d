"""Launches of kernels that reduce rows: which kernel, in which configuration, and how many programs share a row."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from . import heuristics, launch, sums, tensors


class Rows(NamedTuple):
    """A call on rows and columns, and the kernel that loops along each row.

    Fields:
        key: that of the call; calls with the same key repeat its launches.
        contiguous: whether columns are contiguous.
        table, kernel: the configurations of the loop, and its kernel.
        args: the tensors of kernels; their sizes, first the numbers of rows and columns; and their params.
        constants: their constexprs, but for INDEX.
        vector: the tensor whose columns a thread reduces several at a time, if the loop does so.
        shape: the numbers of rows and columns, where kernels do not take both.
    """

    key: launch.Key | None
    contiguous: bool
    table: heuristics.Loop
    kernel: Any
    args: launch.Args
    constants: dict[str, Any]
    vector: torch.Tensor | None = None
    shape: tuple[int, int] | None = None


class Split(NamedTuple):
    """For few long rows: a kernel that reduces one chunk of each row. It takes the states that it writes after its
    tensors, and the number of splits and their columns before its sizes. A state without a dtype is not computed.
    """

    states: tuple[torch.dtype | None, ...]
    kernel: Any
    args: launch.Args
    constants: dict[str, Any]


class Splits(NamedTuple):
    """The splits of each row: their number, the columns of each, memory for their states, and options of kernels."""

    n_splits: int
    split_cols: int
    states: tuple[torch.Tensor | None, ...]
    options: dict[str, Any]


def sizes(
    *,
    n_dims: int,
    rows: Sequence[int],
    n_cols: int,
    tiles: Sequence[torch.Tensor | None],
    by_col: Sequence[torch.Tensor | None] = (),
    by_row: Sequence[torch.Tensor | None] = (),
) -> tuple[int, ...] | None:
    """The sizes that kernels take for rows folded into `n_dims` dimensions; None if more remain.

    These are n_rows, n_cols, the lengths of all dimensions but the first, and strides: of `tiles` [*rows, n_cols]
    along the rows and columns, then of tensors [n_cols], then of tensors [*rows]; 0 for absent tensors.
    """
    n = len(rows)
    given = (*tiles, *by_row)
    own = [(0,) * (n + 1) if one is None else one.stride() for one in given]
    folded = tensors.fold(n_dims, tuple(rows), tuple(step[:n] for step in own))
    if folded is None:
        return None
    row_sizes, steps = folded
    found = [math.prod(rows), n_cols, *row_sizes[1:]]
    for step, (*_, along_cols) in zip(steps[: len(tiles)], own, strict=False):
        found += [*step, along_cols]
    found += [0 if one is None else one.stride(-1) for one in by_col]
    for step in steps[len(tiles) :]:
        found += step
    return tuple(found)


def run(rows: Rows, table: heuristics.Registers, kernel: Any) -> None:
    """Launch the kernel that holds rows in registers if they are short enough, otherwise the loop."""
    n_rows, n_cols = _shape(rows)
    if table.fits(n_rows, n_cols, rows.contiguous):
        _run(rows, kernel, table.choose(n_rows, n_cols, rows.contiguous))
    else:
        run_loop(rows)


def run_registers(rows: Rows, table: heuristics.Registers, kernel: Any) -> bool:
    """Launch the kernel that holds rows in registers, if they are short enough, and say whether."""
    n_rows, n_cols = _shape(rows)
    fits = table.fits(n_rows, n_cols, rows.contiguous)
    if fits:
        run(rows, table, kernel)
    return fits


def run_loop(rows: Rows) -> None:
    """Launch the kernel that loops along each row."""
    config = rows.table.choose(*_shape(rows), rows.contiguous)
    _run(rows, rows.kernel, config, **_vector(rows))


def _shape(rows: Rows) -> tuple[Any, ...]:
    """The shape: rows, columns."""
    return rows.args[1][:2] if rows.shape is None else rows.shape


def _tile(rows: Rows) -> triton.Config:
    return rows.table.choose(*_shape(rows), rows.contiguous)


def _vector(rows: Rows) -> dict[str, int]:
    """The constexpr of loops whose threads reduce the columns that they load at once, 16 bytes if the row allows it."""
    if rows.vector is None:
        return {}
    is_wide = rows.contiguous and _shape(rows)[1] % 16 == 0
    return {"VECTOR": 16 // rows.vector.element_size() if is_wide else 1}


def _run(rows: Rows, kernel: Any, config: triton.Config, **vector: int) -> None:
    """Launch a kernel whose programs hold full rows."""
    grid = (tensors.cdiv(_shape(rows)[0], config.kwargs["BLOCK_M"]),)
    options = rows.constants | vector | _index(rows)
    launch.run(rows.key, kernel, grid, config, *rows.args, **options)


def search_registers(rows: Rows, table: heuristics.Registers, kernel: Any) -> bool:
    """`run_registers` of a kernel whose number of warps @triton.autotune picks."""
    n_rows, n_cols = _shape(rows)
    if not table.fits(n_rows, n_cols, rows.contiguous):
        return False
    tile = table.choose(n_rows, n_cols, rows.contiguous).kwargs
    grid = (tensors.cdiv(n_rows, tile["BLOCK_M"]),)
    options = rows.constants | tile | _index(rows)
    launch.run(rows.key, kernel, grid, None, *rows.args, **options)
    return True


def search_loop(rows: Rows, **of_blocks: bool) -> None:
    """`run_loop` of a kernel whose configuration @triton.autotune picks. It takes some more constexprs."""

    def programs(meta: Mapping[str, Any]) -> tuple[int]:
        return (tensors.cdiv(_shape(rows)[0], meta["BLOCK_M"]),)

    options = rows.constants | _vector(rows) | of_blocks | _index(rows)
    launch.run(rows.key, rows.kernel, programs, None, *rows.args, **options)


def _index(rows: Rows) -> dict[str, Any]:
    return {"INDEX": tensors.index_dtype(*rows.args[0])}


def run_cooperative(
    rows: Rows, kernel: Any, held: tuple[torch.Tensor, ...], n_words: int, merges: str
) -> bool:
    """Launch the cooperative kernel for long rows, in which several resident CTAs reduce a row together, if the
    device and the tensors allow it. Returns whether it was launched.

    Each CTA holds a chunk of the tensors `held`. They exchange `n_words` per row: "sums", maxima and the like;
    "pairs" of which one rescales the other; or "moments", means and squared distances from them. The kernel takes a
    mailbox, empty in each call, before the arguments of the loop.
    """
    n_rows, n_cols = _shape(rows)
    config = heuristics.choose_cooperative_rows(n_cols, held, merges)
    is_single = rows.constants.get("COMPUTE", tl.float32) == tl.float32
    if config is None or not (rows.contiguous and is_single):
        return False
    device, ctas = held[0].device, config.kwargs["CTAS_PER_ROW"]
    grid = (heuristics.choose_groups(n_rows, config, device) * ctas,)

    def mailbox() -> tuple[torch.Tensor]:
        size = (n_rows, n_words, ctas)
        return (torch.zeros(size, dtype=torch.int64, device=device),)

    options = {"maxnreg": config.maxnreg, "launch_cooperative_grid": True}
    options |= rows.constants | _index(rows)
    launch.run(rows.key, kernel, grid, config, *rows.args, mailbox, **options)
    return True


def run_sums(
    rows: Rows, states: tuple[torch.dtype, ...], add_kernel: Any = None
) -> None:
    """Launch the kernel that adds up rows, one or two sums or means of each, the last ones of its tensors.

    Programs share rows if these are few and long: each adds up a split of a row, in the dtypes of `states`, which are
    added up as by `sums.run`. The kernel takes the columns of a split before its sizes.
    """
    given, sizes, params = rows.args
    n_rows, n_cols = _shape(rows)
    config = _tile(rows)
    n_splits = heuristics.choose_splits(n_rows, n_cols, config, launch.device_of(given))
    # At least as wide that Triton sees that the first column of a split is aligned.
    block_n = max(16, config.kwargs["BLOCK_N"])
    n_splits, split_cols = even_splits(max(1, n_cols), n_splits, block_n)
    args = given, (split_cols, *sizes), params
    if n_splits == 1:
        unsplit = rows._replace(args=args, shape=(n_rows, n_cols))
        _run(unsplit, rows.kernel, config, **_vector(rows))
        return
    grid = (tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]), n_splits)
    options = {**config.kwargs, "num_warps": config.num_warps, **_index(rows)}
    options |= rows.constants | _vector(rows)
    given, results = given[: -len(states)], given[-len(states) :]
    args = given, args[1], params
    of_sums = results, states, n_splits, add_kernel
    sums.run(rows.key, rows.kernel, grid, args, *of_sums, **options)


def run_split_merge(
    rows: Rows,
    split: Split,
    kernel: Any,
    args: launch.Args,
    constants: dict[str, Any],
    counted: bool = False,
) -> bool:
    """Launch the kernel for splits of rows, and the one that merges them, and say whether: not if there are enough
    programs for rows.

    The second kernel takes the states of splits before its tensors and, before its sizes, the number of splits and, if
    `counted`, the columns of each.
    """
    splits = _splits_of(rows, split)
    if splits is None:
        return False
    given, sizes, params = args
    counts = (splits.n_splits, splits.split_cols) if counted else (splits.n_splits,)
    options = {"BLOCK_N": tensors.power_of_two(splits.n_splits), "num_warps": 4}
    options |= {"BLOCK_M": 1, **_index(rows), **constants}
    merged = (*splits.states, *given, *counts, *sizes, *params)
    second = launch.Stage(kernel, _shape(rows)[:1], merged, options)
    _launch_both(rows, split, splits, splits.options, second)
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
    """Launch the kernel for splits of rows, and the one that maps a split of each row after merging the states of all
    its splits, and say whether: not if rows are enough to saturate memory.

    The second kernel takes the states before its tensors and, before its sizes, the number of splits and the columns of
    each. Of the constexprs that follow from blocks of columns, the `first` kernel takes some, and this one its `own`.
    """
    n_rows, n_cols = _shape(rows)
    config = _tile(rows)
    if config.num_warps > 16:
        tile = config.kwargs | {"BLOCK_N": config.kwargs["BLOCK_N"] // 2}
        config = triton.Config(tile, num_warps=16)
    device = launch.device_of(rows.args[0])
    count = heuristics.choose_mapped_splits(n_rows, n_cols, config, device)
    # The second stage reads the states of all splits like a block of columns.
    count = min(count, config.kwargs["BLOCK_N"])
    if count == 1:
        return False
    splits = _splits(rows, split, config, count)
    given, sizes, params = args
    mapped = (
        *splits.states,
        *given,
        splits.n_splits,
        splits.split_cols,
        *sizes,
        *params,
    )
    blocks = {name: splits.options.pop(name) for name in {*first, *own}}
    options = constants | splits.options | {name: blocks[name] for name in own}
    grid = (tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]), splits.n_splits)
    second = launch.Stage(kernel, grid, mapped, options)
    options = splits.options | {name: blocks[name] for name in first}
    _launch_both(rows, split, splits, options, second)
    return True


def _splits_of(rows: Rows, split: Split) -> Splits | None:
    """The split of rows for partial reductions; None if there are enough programs without it."""
    n_rows, n_cols = _shape(rows)
    config, device = _tile(rows), launch.device_of(rows.args[0])
    count = heuristics.choose_splits(n_rows, n_cols, config, device)
    return None if count == 1 else _splits(rows, split, config, count)


def _splits(rows: Rows, split: Split, config: triton.Config, count: int) -> Splits:
    """Split each row into about `count` chunks of full blocks."""
    n_rows, n_cols = _shape(rows)
    count, columns = even_splits(n_cols, count, config.kwargs["BLOCK_N"])
    device = launch.device_of(rows.args[0])
    states = tuple(
        (
            None
            if dtype is None
            else torch.empty((n_rows, count), dtype=dtype, device=device)
        )
        for dtype in split.states
    )
    options = {**config.kwargs, "num_warps": config.num_warps, **_index(rows)}
    return Splits(count, columns, states, options | _vector(rows))


def _launch_both(
    rows: Rows,
    split: Split,
    splits: Splits,
    options: dict[str, Any],
    second: launch.Stage,
) -> None:
    """Launch the kernel for splits of rows, by some options, and the `second` one."""
    given, sizes, params = split.args
    counts = splits.n_splits, splits.split_cols
    args = (*given, *splits.states, *counts, *sizes, *params)
    grid = (tensors.cdiv(_shape(rows)[0], options["BLOCK_M"]), splits.n_splits)
    first = launch.Stage(split.kernel, grid, args, options | split.constants)
    named = {} if rows.key is None else launch.named(rows.kernel, rows.args)
    launch.run_in_turn(rows.key, named, (first, second))


def even_splits(n_cols: int, n_splits: int, block_n: int) -> tuple[int, int]:
    """The number of chunks of a row, and the columns of each, a multiple of blocks; fewer if that does not divide."""
    split_cols = tensors.cdiv(tensors.cdiv(n_cols, n_splits), block_n) * block_n
    return tensors.cdiv(n_cols, split_cols), split_cols


def run_splits(
    shape: tuple[int, int],
    contiguous: bool,
    args: launch.Args,
    constants: dict[str, Any],
    tiles: tuple[heuristics.Tile, Any],
) -> None:
    """Launch a kernel whose programs loop over a chunk of a few rows; its length follows the sizes."""
    n_rows, n_cols = shape
    config = tiles[0].choose(n_rows, n_cols, contiguous)
    given, sizes, params = args
    device = launch.device_of(given)
    n_splits = heuristics.choose_splits(n_rows, n_cols, config, device)
    n_splits, split_cols = even_splits(n_cols, n_splits, config.kwargs["BLOCK_N"])
    grid = (tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]), n_splits)
    sizes = (*sizes, split_cols)
    launch.run(None, tiles[1], grid, config, given, sizes, params, **constants)
