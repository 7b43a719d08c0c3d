"""Launches of kernels that map rows and sum over them: programs write partial sums, which a second kernel adds up."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from . import heuristics, launch, tensors
from .dtypes import torch_dtype
from .sums_kernels import add_parts_kernel


class Call(NamedTuple):
    """A call on rows and columns.

    Fields:
        key: that of the call; calls with the same key repeat its launches on their own tensors, followed by their sums.
        shape: the numbers of rows and columns.
        compute: the dtype to add up in.
        sums: the results [n_cols] that are wanted, None for others.
        args: the tensors of kernels, their sizes and their params. Partial sums follow the tensors.
        constants: their constexprs, but for INDEX.
        contiguous: whether columns are contiguous, in all tensors.
        add_parts_kernel: the kernel that adds up partial sums, if torch has to see its launch.
    """

    key: launch.Key | None
    shape: tuple[int, int]
    compute: tl.dtype
    sums: Sequence[torch.Tensor | None]
    args: launch.Args
    constants: dict[str, Any]
    contiguous: bool = True
    add_parts_kernel: Any = (
        None  # torch.compile does not trace a default that is a kernel
    )


def run_whole(
    call: Call,
    table: heuristics.Whole,
    kernel: Any,
    reads: Sequence[torch.Tensor | None],
) -> bool:
    """Launch the kernel whose programs hold whole rows, if these are short enough, and say whether.

    In each step it reads some tensors along the columns.
    """
    n_rows, n_cols = call.shape
    if not table.fits(n_cols, call.contiguous):
        return False
    device = launch.device_of(call.args[0])
    config = table.choose(n_cols, _column_bytes(reads), device, call.contiguous)
    n_programs = heuristics.choose_whole_programs(n_rows, config, table, device)
    _run(call.key, call, kernel, config, (n_programs,), call.args, n_programs)
    return True


def run_cooperative(
    call: Call, kernel: Any, reads: Sequence[torch.Tensor | None], n_words: int
) -> bool:
    """Launch the kernel of which several CTAs, all resident (a cooperative launch), hold a row together, if the device
    and the tensors allow it, and say whether.

    In each step it reads some tensors along the columns. CTAs exchange `n_words` per row by a mailbox for each,
    which it takes before its tensors.
    """
    n_rows, n_cols = call.shape
    device = launch.device_of(call.args[0])
    is_single = call.compute == tl.float32
    if not (
        call.contiguous
        and is_single
        and heuristics.use_cooperative_sums(n_cols, device)
    ):
        return False
    config = heuristics.choose_cooperative_sums(n_cols, _column_bytes(reads))
    n_programs = heuristics.choose_groups(n_rows, config, device)
    members: int = config.kwargs["CTAS_PER_ROW"]
    words = torch.zeros((n_words, n_rows, members), dtype=torch.int64, device=device)
    given, sizes, params = call.args
    options = {"maxnreg": config.maxnreg, "launch_cooperative_grid": True}
    grid = (n_programs * members,)
    args = (*words.unbind(), *given), sizes, params
    key = None  # Repeated calls would need mailboxes of their own.
    _run(key, call, kernel, config, grid, args, n_programs, options)
    return True


def run_tiles(
    call: Call,
    table: heuristics.Sums,
    kernel: Any,
    rows: Any = (),
    args: launch.Args | None = None,
    constants: dict[str, Any] | None = None,
) -> None:
    """Launch the kernel for tiles of rows and columns. It takes what another one has computed of each of the `rows`
    before its tensors, and other `args` and `constants` than those of the call, if any.
    """
    if constants is not None:
        call = call._replace(constants=constants)
    n_rows, n_cols = call.shape
    device = launch.device_of(call.args[0])
    config = table.choose(n_rows, n_cols, call.contiguous)
    n_tiles = tensors.cdiv(n_cols, config.kwargs["BLOCK_N"])
    n_programs = heuristics.choose_programs(n_rows, n_tiles, config, device)
    given, sizes, params = args or call.args
    first = rows if isinstance(rows, tuple) else (rows,)
    key = None if first else call.key  # Repeated calls would need their own.
    grid = launch.legal((n_programs, n_tiles))
    every = (*first, *given), sizes, params
    _run(key, call, kernel, config, grid, every, n_programs)


def _run(
    key: launch.Key | None,
    call: Call,
    kernel: Any,
    config: triton.Config,
    grid: tuple[int, ...],
    args: launch.Args,
    n_programs: int,
    options: dict[str, Any] | None = None,
) -> None:
    """Launch a kernel whose programs write so many partial sums, and then what adds them up, two sums in a launch."""
    n_cols = call.shape[1]
    given, sizes, params = args
    dtype, device = torch_dtype(call.compute), launch.device_of(given)
    parts = [
        (
            None
            if one is None
            else torch.empty((n_programs, n_cols), dtype=dtype, device=device)
        )
        for one in call.sums
    ]
    tile = {**config.kwargs, "num_warps": config.num_warps, **call.constants}
    tile["INDEX"] = tensors.index_dtype(*given, *call.sums)
    every = (*given, *parts, *sizes, *params)
    stages = [launch.Stage(kernel, grid, every, tile | (options or {}))]
    named: dict[str, Any] = {}
    if key is not None:
        # The kernel has partial sums where calls have sums.
        found = launch.named(kernel, ((*given, *call.sums), sizes, params))
        ends = len(given), len(given) + len(call.sums)
        named = {
            f"sum of {name}" if ends[0] <= place < ends[1] else name: one
            for place, (name, one) in enumerate(found.items())
        }
    asked = [
        one
        for pair in zip(parts, call.sums, strict=True)
        for one in (pair if pair[0] is not None else ())
    ]
    add_up = {"COMPUTE": call.compute, "BLOCK_M": 128, "BLOCK_N": 32, "num_warps": 8}
    added = call.add_parts_kernel
    added = add_parts_kernel if added is None else added
    for start in range(0, len(asked), 4):
        two = (*asked[start : start + 4], None, None)[:4]
        grid = (tensors.cdiv(n_cols, 32),)
        stages.append(launch.Stage(added, grid, (*two, n_programs, n_cols), add_up))
    launch.run_in_turn(key, named, stages)


def zero(*sums: torch.Tensor | None) -> None:
    """Set empty sums to 0."""
    for one in sums:
        if one is not None:
            one.zero_()


def _column_bytes(reads: Sequence[torch.Tensor | None]) -> int:
    """The bytes per column of the tensors that are read."""
    return sum(0 if tensor is None else tensor.element_size() for tensor in reads)
