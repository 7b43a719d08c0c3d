"""Scatter-add: sums of the terms that an index assigns to each element, the gradient of a lookup."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from . import launch
from . import scatter_sums_kernels as kernels
from .launch import memoized
from .tensors import cdiv, compute_dtype, power_of_two, torch_dtype

TILE = 256  # elements per program of two warps


def scatter_sum(
    terms: torch.Tensor,
    positions: torch.Tensor,
    sums: torch.Tensor,
    *,
    deterministic: bool = True,
    wrap: Callable[[Any], Any] | None = None,
) -> None:
    """Add to each row of `sums`, which are zeros, the terms whose position it is.

    Positions are sorted once, so that the terms of a row are adjacent. Every program adds up the same number of terms,
    of one row or of many. Programs that share a row store partial sums, which are the terms of the next launch, until
    one program has them all. So one row with many terms takes no longer than many rows. Terms are added in float32, or
    float64, in an order that depends only on shapes and positions.

    Args:
        terms: [n_lines * n_positions, n_cols] with any strides, floats.
        positions: [n_lines, n_positions] with any strides, integers, counted within a line; those outside are ignored.
        sums: [n_lines * n_elements, n_cols], contiguous zeros, the output.
        deterministic: whether equal calls give equal bits. Otherwise atomics add up in any order, without sorting,
            where that is faster: in float32 and float64. Half precision would need additional wider sums.
        wrap: a wrapper that shows launches of kernels to torch, if it has to see them.
    """
    if positions.numel() == 0 or sums.numel() == 0:
        return
    if sums.shape[1] > 1 and terms.stride(1) > 1:
        terms = terms.contiguous()  # Programs read along rows.
    compute = compute_dtype(torch.promote_types(terms.dtype, sums.dtype))
    launches = _Launches((terms, positions, sums), deterministic, wrap)
    keys = _keys(positions, sums.shape[0], launches)
    if deterministic or torch_dtype(compute) != sums.dtype:
        _add_sorted(terms, keys, sums, compute, launches)
        return
    n_rows, n_cols = sums.shape
    launches.run_tiles(
        kernels.atomic_kernel,
        (keys.numel(), n_cols),
        (terms, keys, sums),
        (keys.numel(), n_rows, n_cols, *terms.stride()),
    )


def _keys(positions: torch.Tensor, n_rows: int, launches: "_Launches") -> torch.Tensor:
    """The rows of the sums for all positions, n_rows for those outside of a line."""
    n_lines, n_positions = positions.shape
    dtype = torch.int32 if n_rows < 2**31 else torch.int64
    keys = torch.empty(positions.numel(), dtype=dtype, device=positions.device)
    launches.run(
        kernels.keys_kernel,
        (cdiv(keys.numel(), TILE),),
        (positions, keys),
        (keys.numel(), n_positions, n_rows // n_lines, n_rows, *positions.stride()),
        BLOCK=TILE,
    )
    return keys


def _add_sorted(
    terms: torch.Tensor,
    keys: torch.Tensor,
    sums: torch.Tensor,
    compute: Any,
    launches: "_Launches",
) -> None:
    """Add terms up in the order of their keys."""
    n_rows, n_cols = sums.shape
    order: torch.Tensor | None
    keys, order = torch.sort(keys, stable=True)
    found = levels(keys.numel(), n_cols)
    n_partials = found[-1].first_partial  # All partial sums are in the same memory.
    partials = sums.new_empty((n_partials, n_cols), dtype=torch_dtype(compute))
    partial_keys = keys.new_empty(n_partials)
    for level in found:
        has_partials = level.n_chunks > 1
        launches.run_tiles(
            kernels.segments_kernel,
            (level.n_chunks, n_cols),
            (
                terms,
                order,
                keys,
                sums,
                *((partials, partial_keys) if has_partials else (None, None)),
            ),
            (*level[1:], n_rows, n_cols, *terms.stride()),
            COMPUTE=compute,
            CHUNK=level.chunk,
        )
        terms, order, keys = partials, None, partial_keys


class Level(NamedTuple):
    """A range of terms, their number per chunk, and the index of the first of their partial sums."""

    chunk: int
    first_term: int
    end_term: int
    first_partial: int

    @property
    def n_chunks(self) -> int:
        return cdiv(self.end_term - self.first_term, self.chunk)


@memoized
def levels(n_terms: int, n_cols: int) -> tuple[Level, ...]:
    """The terms, then their partial sums, two per chunk, then the partial sums of those, until there is one chunk.

    If there are few terms, chunks are short, so that there are programs for all SMs.
    """
    level = Level(64 if n_terms * n_cols > 2**24 else 16, 0, n_terms, 0)
    found = [level]
    while level.n_chunks > 1:
        first = level.first_partial
        end = first + 2 * level.n_chunks
        level = Level(16, first, end, end)
        found.append(level)
    return tuple(found)


class _Launches:
    """Launches kernels one after another, and repeats cached launches."""

    def __init__(
        self,
        tensors: tuple[torch.Tensor, ...],
        deterministic: bool,
        wrap: Callable[[Any], Any] | None,
    ) -> None:
        self.key, _ = launch.lookup("scatter_sum", tensors, deterministic)
        self.wrap, self.count = wrap, 0

    def run_tiles(
        self,
        kernel: Any,
        shape: tuple[int, int],
        tensors: tuple[torch.Tensor | None, ...],
        sizes: tuple[int, ...],
        **options: Any,
    ) -> None:
        """Launch a kernel on tiles of rows by columns; tiles of the same rows are adjacent."""
        width = min(TILE, power_of_two(shape[1]))
        height = TILE // width
        grid = (cdiv(shape[0], height) * cdiv(shape[1], width),)
        options |= {"BLOCK_M": height, "BLOCK_N": width}
        self.run(kernel, grid, tensors, sizes, **options)

    def run(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        tensors: tuple[torch.Tensor | None, ...],
        sizes: tuple[int, ...],
        **options: Any,
    ) -> None:
        key = None if self.key is None else (self.key, self.count)
        self.count += 1
        replay = None if key is None else launch.LAUNCHES.get(key)
        if replay is not None:
            replay(tensors)
            return
        if self.wrap is not None:
            kernel = self.wrap(kernel)
        launch.run(key, kernel, grid, None, tensors, sizes, **options, num_warps=2)
