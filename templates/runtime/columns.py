"""Launches of kernels that map rows and sum over them: programs write partial sums, which a second kernel adds up."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from . import heuristics, launch, sums, tensors


class Call(NamedTuple):
    """A call on rows and columns.

    Fields:
        key: that of the call; calls with the same key repeat its launches on their own tensors, followed by their sums.
        compute: the dtype to add up in.
        sums: the results [n_cols] that are wanted, None for others.
        args: the tensors of kernels, which partial sums follow; their sizes, n_rows and n_cols first; and
            their params.
        constants: their constexprs, but for INDEX.
        contiguous: whether columns are contiguous, in all tensors.
        add_kernel: the kernel that adds up partial sums, if torch has to see its launch.
    """

    key: launch.Key | None
    compute: tl.dtype
    sums: Sequence[torch.Tensor | None]
    args: launch.Args
    constants: dict[str, Any]
    contiguous: bool = True
    add_kernel: Any = None


def run_full(
    call: Call,
    table: heuristics.Whole,
    kernel: Any,
    reads: Sequence[torch.Tensor | None],
) -> bool:
    """Launch the kernel whose programs hold full rows, if these are short enough. Returns whether it did.

    In each step it reads some tensors along the columns.
    """
    n_rows, n_cols = call.args[1][:2]
    if not table.fits(n_cols, call.contiguous):
        return False
    device = launch.device_of(call.args[0])
    config = table.choose(n_cols, _column_bytes(reads), device, call.contiguous)
    n_programs = heuristics.choose_full_programs(n_rows, config, table, device)
    _run(call, kernel, config, (n_programs,), n_programs)
    return True


def run_cooperative(
    call: Call, kernel: Any, reads: Sequence[torch.Tensor | None], n_words: int
) -> bool:
    """Launch the cooperative kernel, in which several resident CTAs hold a row together, if the device and the
    tensors allow it. Returns whether it was launched.

    Each iteration reads the tensors `reads` along the columns. CTAs exchange `n_words` per row through mailboxes,
    which the kernel takes before its tensors.
    """
    n_rows, n_cols = call.args[1][:2]
    device = launch.device_of(call.args[0])
    config = heuristics.choose_cooperative_sums(n_cols, _column_bytes(reads), device)
    if config is None or not (call.contiguous and call.compute == tl.float32):
        return False
    n_programs = heuristics.choose_groups(n_rows, config, device)
    members: int = config.kwargs["CTAS_PER_ROW"]
    options = {"maxnreg": config.maxnreg, "launch_cooperative_grid": True}

    def mailboxes() -> tuple[torch.Tensor, ...]:
        size = (n_words, n_rows, members)
        return torch.zeros(size, dtype=torch.int64, device=device).unbind()

    grid = (n_programs * members,)
    _run(call, kernel, config, grid, n_programs, mailboxes, **options)
    return True


def run_tiles(call: Call, table: heuristics.Sums, kernel: Any, rows: Any = ()) -> None:
    """Launch the kernel for tiles of rows and columns. It takes the precomputed per-row values `rows` before its
    tensors.
    """
    n_rows, n_cols = call.args[1][:2]
    device = launch.device_of(call.args[0])
    config = table.choose(n_rows, n_cols, call.contiguous)
    n_tiles = tensors.cdiv(n_cols, config.kwargs["BLOCK_N"])
    n_programs = heuristics.choose_programs(n_rows, n_tiles, config, device)
    first = rows if isinstance(rows, tuple) else (rows,)
    if first:
        call = call._replace(key=None)  # Repeated calls would need their own.
    grid = launch.legal((n_programs, n_tiles))
    _run(call, kernel, config, grid, n_programs, lambda: first)


def _run(
    call: Call,
    kernel: Any,
    config: triton.Config,
    grid: tuple[int, ...],
    n_programs: int,
    made: Callable[[], tuple[Any, ...]] = tuple,
    **options: Any,
) -> None:
    """Launch a kernel whose `n_programs` programs each write partial sums, then the kernel that adds these up."""
    options |= {**config.kwargs, "num_warps": config.num_warps, **call.constants}
    options["INDEX"] = tensors.index_dtype(*call.args[0], *call.sums)
    dtypes = (tensors.torch_dtype(call.compute),) * len(call.sums)
    of_sums = call.sums, dtypes, n_programs, call.add_kernel, made
    sums.run(call.key, kernel, grid, call.args, *of_sums, **options)


def zero(*sums: torch.Tensor | None) -> None:
    """Set empty sums to 0."""
    for one in sums:
        if one is not None:
            one.zero_()


def _column_bytes(reads: Sequence[torch.Tensor | None]) -> int:
    """The bytes per column of the tensors that are read."""
    return sum(0 if tensor is None else tensor.element_size() for tensor in reads)
