"""Launches of kernels that reduce rows: which kernel, in which configuration, and how many programs share a row."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton.language as tl

from . import heuristics, launch, tensors
from .sums_kernels import merge_sums_kernel


class Merge(NamedTuple):
    """The kernel that merges the parts of each row. It takes their states before its tensors and, before its sizes, the
    number of parts and, if `counted`, the columns of each.
    """

    kernel: Any
    args: launch.Args
    constants: dict[str, Any]
    counted: bool = False


class Sums(NamedTuple):
    """Results that are plain sums or means, and are merged by a kernel of the runtime, which is wrapped for registered
    operators.
    """

    results: tuple[torch.Tensor, ...]
    are_means: tuple[bool, ...]
    wrapped: Any = None  # torch.compile does not trace a default that is a kernel


class Map(NamedTuple):
    """The kernel that maps a part of each row after merging the states of all of its parts. It takes these before its
    tensors and, before its sizes, the number of parts and the columns of each.

    Of the constexprs that follow from blocks of columns, the `first` kernel takes some, and this one its `own`.
    """

    kernel: Any
    args: launch.Args
    constants: dict[str, Any]
    first: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


class Cooperative(NamedTuple):
    """For long rows: a kernel of which several CTAs, all resident (a cooperative launch), reduce a row together.

    Each CTA holds a part of the tensors `held`. They exchange `n_words` per row with `n_values` in these, which are
    means and squared distances from them if it `merges_moments`. After the mailbox, the kernel's arguments are among
    those of the loop, by name.
    """

    kernel: Any
    held: tuple[torch.Tensor, ...]
    n_words: int
    n_values: int
    merges_moments: bool = False


class Split(NamedTuple):
    """For few long rows: a kernel that reduces a part of each row, and how parts are merged.

    The kernel takes the states that it writes after its tensors, and the number of parts and their columns before its
    sizes. A state without a dtype is not computed.
    """

    states: tuple[torch.dtype | None, ...]
    kernel: Any
    args: launch.Args
    constants: dict[str, Any]
    merge: Merge | Sums | Map


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


def run(
    key: launch.Key | None,
    *,
    shape: tuple[int, int],
    contiguous: bool,
    args: launch.Args,
    constants: dict[str, Any],
    loop: tuple[heuristics.Loop, Any],
    registers: tuple[heuristics.Registers, Any] | None = None,
    split: Split | None = None,
    vector: torch.Tensor | None = None,
    uniform: int | None = None,
    search: bool = False,
    cooperative: Cooperative | None = None,
) -> None:
    """Launch the kernel for rows and columns of a `shape`: rows in registers, a loop along each, or two stages.

    Args:
        key: that of the call; calls with the same key repeat its launches.
        shape: the numbers of rows and columns.
        contiguous: whether columns are contiguous.
        args: the tensors of the kernels, their sizes and their params.
        constants: their constexprs, but for INDEX.
        loop, registers: tables of configurations, each with its kernel; no registers if the state of a row is one
            value, for which a loop is as good.
        split: the two stages, if the rows can be split.
        vector: the tensor whose columns a thread reduces several at a time, if the loop does so.
        uniform: how many adjacent columns share an element that blocks read once, if any.
        search: whether @triton.autotune picks the configuration.
        cooperative: the kernel of which several CTAs reduce a row together.
    """
    n_rows, n_cols = shape
    constants = {**constants, "INDEX": tensors.index_dtype(*args[0])}
    loops = uniform is not None and heuristics.reads_once(n_cols, uniform)
    if not loops and registers and registers[0].fits(n_rows, n_cols, contiguous):
        config = registers[0].choose(n_rows, n_cols, contiguous)
        grid: Any = (tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]),)
        if search:
            constants = {**constants, **config.kwargs}
            config = None
        launch.run(key, registers[1], grid, config, *args, **constants)
        return
    device = launch.device_of(args[0])
    if cooperative is not None and key is not None and contiguous:
        sizes = _shared_sizes(cooperative.kernel, loop[1], args, constants)
        is_single = constants.get("COMPUTE", tl.float32) == tl.float32
        itemsize = max(held.element_size() for held in cooperative.held)
        if (
            sizes
            and is_single
            and heuristics.use_shared_rows(
                n_cols, itemsize, len(cooperative.held), device
            )
        ):
            _run_cooperative(
                key, cooperative, shape, (args[0], sizes, args[2]), constants
            )
            return
    config = loop[0].choose(n_rows, n_cols, contiguous, 32, registers is None)
    n_splits = 1
    if split is not None and isinstance(split.merge, Map):
        part = loop[0].choose(n_rows, n_cols, contiguous, 16)
        part, _ = heuristics.within(part, uniform or 1)
        n_splits = heuristics.choose_mapped_splits(n_rows, n_cols, part, device)
        # The second stage reads the states of all parts like a block of columns.
        n_splits = min(n_splits, part.kwargs["BLOCK_N"])
        config = part if n_splits > 1 else config
    vectors: dict[str, Any] = {}
    if uniform is not None:
        config, vectors["UNIFORM"] = heuristics.within(config, 1 if search else uniform)
    if vector is not None:
        size = vector.element_size()
        vectors["VECTOR"] = heuristics.choose_vector(n_cols, contiguous, size)
    if split is not None and not isinstance(split.merge, Map):
        n_splits = heuristics.choose_splits(n_rows, n_cols, config, device)
    if split is not None and n_splits > 1:
        tile = {**config.kwargs, "num_warps": config.num_warps}
        tile["INDEX"] = constants["INDEX"]
        _run_split(key, split, shape, n_splits, tile, vectors, (loop[1], args))
        return
    grid = (tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]),)
    if search:
        grid = lambda meta: (tensors.cdiv(n_rows, meta["BLOCK_M"]),)  # noqa: E731
        config = None
    launch.run(key, loop[1], grid, config, *args, **(vectors | constants))


def _shared_sizes(
    kernel: Any, loop: Any, args: launch.Args, constants: dict[str, Any]
) -> tuple[int | None, ...]:
    """The sizes of the loop that the cooperative kernel takes; () if rows do not fold into one dimension."""
    first, of_loop, params = args
    names = loop.arg_names[len(first) : len(first) + len(of_loop)]
    told = dict(zip(names, of_loop, strict=True))
    compiled = {*constants, "CTAS_PER_ROW", "BLOCK_M", "BLOCK_N"}
    names = [name for name in kernel.arg_names if name not in compiled]
    names = names[1 + len(first) : len(names) - len(params)]
    in_line = all(n == 1 for name, n in told.items() if name.startswith("size_"))
    return tuple(map(told.get, names)) if in_line and told.keys() >= {*names} else ()


def _run_cooperative(
    key: launch.Key,
    cooperative: Cooperative,
    shape: tuple[int, int],
    args: launch.Args,
    constants: dict[str, Any],
) -> None:
    """Launch the kernel for rows that CTAs share, with as many CTAs as run at once, and an empty mailbox."""
    n_rows, n_cols = shape
    device = launch.device_of(args[0])
    pairs = cooperative.n_values > cooperative.n_words
    config = heuristics.choose_shared_rows(
        n_cols, len(cooperative.held), pairs, cooperative.merges_moments
    )
    ctas: int = config.kwargs["CTAS_PER_ROW"]
    grid = (heuristics.choose_groups(n_rows, config, device) * ctas,)
    options = {"maxnreg": config.maxnreg, "launch_cooperative_grid": True, **constants}
    options.pop("ALIGN", None)  # 16 divides the lengths of such rows.
    words = (n_rows, cooperative.n_words, ctas)

    def mailbox() -> torch.Tensor:
        return torch.zeros(words, dtype=torch.int64, device=device)

    launch.run(key, cooperative.kernel, grid, config, *args, mailbox, **options)


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
    n_splits, split_cols = _parts(n_cols, n_splits, config.kwargs["BLOCK_N"])
    grid = (tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]), n_splits)
    sizes = (*sizes, split_cols)
    launch.run(None, tiles[1], grid, config, given, sizes, params, **constants)


def run_taps(
    key: launch.Key | None,
    shape: tuple[int, int, int],
    contiguous: bool,
    args: launch.Args,
    constants: dict[str, Any],
    tiles: tuple[heuristics.Loop, Any],
    dtype: torch.dtype,
    merge: Sums,
) -> None:
    """Launch a kernel that sums parts of rows for several taps, in a dtype, and the one that merges the parts.

    The `shape` is that of rows, columns and an outer axis. The kernel takes parts and their columns before its sizes.
    """
    given, sizes, params = args
    n_rows, n_cols, n_outer = shape
    (total,), device = merge.results, launch.device_of(given)
    config = tiles[0].choose(n_rows, n_cols, contiguous)
    splits, outer = heuristics.choose_parts(n_rows, n_cols, n_outer, config, device)
    splits, split_cols = _parts(max(1, n_cols), splits, config.kwargs["BLOCK_N"])
    part = torch.empty((total.numel(), splits * outer), dtype=dtype, device=device)
    by_name: dict[str, Any] = {}
    merged: list[str] = []
    if key is not None:
        # The kernel has parts where calls have their sum.
        called = launch.named(tiles[1], ((*given, total), (0, *sizes), params))
        merged = [[*called][len(given)], "sum of parts"]
        by_name = {merged[1] if n == merged[0] else n: t for n, t in called.items()}
    tile = {**config.kwargs, "num_warps": config.num_warps, **constants}
    tile["INDEX"] = tensors.index_dtype(*given)
    grid = (tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]), splits, outer)
    first = (*given, part, split_cols, *sizes, *params)
    of_parts = (splits * outer, split_cols, (n_rows, n_cols), tile["INDEX"])
    kernel, second, options = _merging(merge, (part,), *of_parts)
    stages = (
        launch.Stage(tiles[1], grid, first, tile),
        launch.Stage(kernel, (total.numel(),), second, options, merged),
    )
    launch.run_stages(key, by_name, stages, tuple(by_name))


def _parts(n_cols: int, n_splits: int, block_n: int) -> tuple[int, int]:
    """The number of parts of a row, in whole blocks, and the columns of each; fewer if blocks do not divide evenly."""
    split_cols = tensors.cdiv(tensors.cdiv(n_cols, n_splits), block_n) * block_n
    return tensors.cdiv(n_cols, split_cols), split_cols


def _run_split(
    key: launch.Key | None,
    split: Split,
    shape: tuple[int, int],
    n_splits: int,
    tile: dict[str, Any],
    vectors: dict[str, Any],
    called: tuple[Any, launch.Args],
) -> None:
    """Launch both stages, with about so many programs per row, in place of the one kernel that would be `called`."""
    n_rows, n_cols = shape
    n_splits, split_cols = _parts(n_cols, n_splits, tile["BLOCK_N"])
    device = launch.device_of(called[1][0])
    parts = tuple(
        (
            None
            if dtype is None
            else torch.empty((n_rows, n_splits), dtype=dtype, device=device)
        )
        for dtype in split.states
    )
    given, sizes, params = split.args
    first = (*given, *parts, n_splits, split_cols, *sizes, *params)
    grid = (tensors.cdiv(n_rows, tile["BLOCK_M"]), n_splits)
    second_grid: tuple[int, ...] = (n_rows,)
    if isinstance(split.merge, Map):
        merge, (given, sizes, params), constants, of_first, of_map = split.merge
        second = (*parts, *given, n_splits, split_cols, *sizes, *params)
        constants = constants | tile | {name: vectors[name] for name in of_map}
        vectors = {name: vectors[name] for name in of_first}
        second_grid = grid
    else:
        merge, second, constants = _merging(
            split.merge, parts, n_splits, split_cols, shape, tile["INDEX"]
        )
    by_name = {} if key is None else launch.named(*called)
    merged: list[str] = []
    if by_name and isinstance(split.merge, Sums):
        own = [name.removesuffix("_ptr") for name in split.kernel.arg_names]
        for part, result in zip(own[len(given) :], split.merge.results, strict=False):
            merged += [part, *(name for name, one in by_name.items() if one is result)]
    stages = (
        launch.Stage(split.kernel, grid, first, tile | vectors | split.constants),
        launch.Stage(merge, second_grid, second, constants, merged),
    )
    launch.run_stages(key, by_name, stages, tuple(by_name))


def _merging(
    merge: Merge | Sums,
    parts: tuple[torch.Tensor | None, ...],
    n_splits: int,
    split_cols: int,
    shape: tuple[int, int],
    index: tl.dtype,
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The kernel of the second stage, its arguments and its constants."""
    tile: dict[str, Any] = {"BLOCK_N": tensors.power_of_two(n_splits), "num_warps": 4}
    if isinstance(merge, Merge):
        given, sizes, params = merge.args
        told = (n_splits, split_cols) if merge.counted else (n_splits,)
        args = (*parts, *given, *told, *sizes, *params)
        constants = {"BLOCK_M": 1, "INDEX": index, **tile, **merge.constants}
        return merge.kernel, args, constants
    first, *others = zip(parts, merge.results, merge.are_means, strict=True)
    other = others[0] if others else (None, None, False)
    tile |= {"IS_MEAN": first[2], "IS_OTHER_MEAN": other[2]}
    kernel = merge_sums_kernel if merge.wrapped is None else merge.wrapped
    return kernel, (*first[:2], *other[:2], n_splits, shape[1]), tile
