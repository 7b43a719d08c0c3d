"""Launches of kernels that map rows and sum over them: programs write partial sums, which a second kernel adds up."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton.language as tl

from . import heuristics, launch, tensors
from .dtypes import torch_dtype
from .sums_kernels import add_parts_kernel


class Whole(NamedTuple):
    """The kernel whose programs hold whole rows, and the tensors that a step reads along the columns."""

    table: heuristics.Whole
    kernel: Any
    reads: Sequence[torch.Tensor | None]


class Cooperative(NamedTuple):
    """The kernel of which several CTAs, all resident (a cooperative launch), hold a row together, the tensors that a
    step reads along the columns, and the number of words that CTAs exchange per row. It takes the mailbox of those
    before its tensors.
    """

    kernel: Any
    reads: Sequence[torch.Tensor | None]
    n_words: int


class Rows(NamedTuple):
    """The function that only reduces rows, and its arguments. The kernel for tiles takes its results before its own
    tensors.
    """

    function: Callable[..., Any]
    args: Sequence[Any]


def run(
    key: launch.Key | None,
    *,
    shape: tuple[int, int],
    compute: tl.dtype,
    sums: Sequence[torch.Tensor | None],
    args: launch.Args,
    constants: dict[str, Any],
    tiles: tuple[heuristics.Sums, Any],
    whole: Whole | None = None,
    cooperative: Cooperative | None = None,
    rows: Rows | None = None,
    tiles_args: launch.Args | None = None,
    contiguous: bool = True,
    add_parts_kernel: Any = add_parts_kernel,
) -> None:
    """Launch the kernel for rows and columns of a `shape`: whole rows, rows that several CTAs hold, or tiles of them.

    Args:
        key: that of the call; calls with the same key repeat its launches on their own tensors, followed by their sums.
        shape: the numbers of rows and columns.
        compute: the dtype to add up in.
        sums: the results [n_cols] that are wanted, None for others.
        args: the tensors of the kernels, their sizes and their params. Partial sums follow the tensors.
        constants: their constexprs, but for INDEX.
        tiles: the table and the kernel for tiles, before which another kernel reduces the rows.
        whole: the kernel for rows that one program holds.
        cooperative: the kernel for rows that several CTAs hold together.
        rows: what reduces the rows before the kernel for tiles.
        tiles_args: the arguments of the kernel for tiles, if they are not `args`.
        contiguous: whether columns are contiguous, in all tensors.
        add_parts_kernel: the kernel that adds up partial sums, if torch has to see its launch.
    """
    n_rows, n_cols = shape
    device = launch.device_of(args[0])
    first: tuple[torch.Tensor, ...] = ()  # of the tensors of the kernel
    options: dict[str, Any] = {}
    if whole is not None and whole.table.fits(n_cols, contiguous):
        table, kernel, reads = whole
        config = table.choose(n_cols, _column_bytes(reads), device, contiguous)
        n_programs = heuristics.choose_whole_programs(n_rows, config, table, device)
        grid: tuple[int, ...] = (n_programs,)
    elif (
        cooperative is not None
        and contiguous
        and compute == tl.float32
        and heuristics.use_shared(n_cols, device)
    ):
        kernel, reads, n_words = cooperative
        config = heuristics.choose_shared(n_cols, _column_bytes(reads))
        n_programs = heuristics.choose_groups(n_rows, config, device)
        members = config.kwargs["CTAS_PER_ROW"]
        words = (n_words, n_rows, members)
        first = torch.zeros(words, dtype=torch.int64, device=device).unbind()
        grid = (n_programs * members,)
        options = {"maxnreg": config.maxnreg, "launch_cooperative_grid": True}
    else:
        if rows is not None:
            found = rows.function(*rows.args)
            first = found if isinstance(found, tuple) else (found,)
        kernel, args = tiles[1], tiles_args or args
        config = tiles[0].choose(n_rows, n_cols, contiguous)
        n_tiles = tensors.cdiv(n_cols, config.kwargs["BLOCK_N"])
        n_programs = heuristics.choose_programs(n_rows, n_tiles, config, device)
        grid = (n_programs, n_tiles)
    dtype = torch_dtype(compute)
    parts = [
        (
            None
            if one is None
            else torch.empty((n_programs, n_cols), dtype=dtype, device=device)
        )
        for one in sums
    ]
    given, sizes, params = args
    tile = {**config.kwargs, "num_warps": config.num_warps, **constants, **options}
    tile["INDEX"] = tensors.index_dtype(*args[0], *sums)
    stages = [
        launch.Stage(kernel, grid, (*first, *given, *parts, *sizes, *params), tile)
    ]
    if first:  # Repeated calls would need their own.
        key = None
    by_name: dict[str, Any] = {}
    names = [""] * len(parts)
    if key is not None:
        # The kernel has partial sums where calls have sums.
        called = launch.named(kernel, ((*given, *sums), sizes, params))
        names = [*called][len(given) :][: len(sums)]
        by_name = {_sum_of(n) if n in names else n: one for n, one in called.items()}
    asked = [
        pair for pair in zip(names, parts, sums, strict=True) if pair[2] is not None
    ]
    for start in range(0, len(asked), 2):
        pairs = asked[start : start + 2]
        added = [one for _, part, whole in pairs for one in (part, whole)]
        added += [None] * (4 - len(added))
        stages.append(
            launch.Stage(
                add_parts_kernel,
                (tensors.cdiv(n_cols, 32),),
                (*added, n_programs, n_cols),
                {"COMPUTE": compute, "BLOCK_M": 128, "BLOCK_N": 32, "num_warps": 8},
                [one for name, *_ in pairs for one in (name, _sum_of(name))],
            )
        )
    launch.run_stages(key, by_name, stages, tuple(by_name))


def _sum_of(part: str) -> str:
    return f"sum of {part}"


def zero(*sums: torch.Tensor | None) -> None:
    """Set empty sums to 0."""
    for one in sums:
        if one is not None:
            one.zero_()


def _column_bytes(reads: Sequence[torch.Tensor | None]) -> int:
    """The bytes per column of the tensors that are read."""
    return sum(0 if tensor is None else tensor.element_size() for tensor in reads)
