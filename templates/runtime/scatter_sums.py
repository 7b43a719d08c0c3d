"""Sums over the positions that name an element: the gradient of a lookup."""

from collections.abc import Callable
from typing import Any

import torch

from . import launch
from . import scatter_sums_kernels as kernels
from .dtypes import compute_dtype, torch_dtype
from .tensors import cdiv, power_of_two

TILE = 1024  # elements to a program of four warps


def scatter_sum(
    terms: torch.Tensor,
    positions: torch.Tensor,
    sums: torch.Tensor,
    *,
    deterministic: bool = True,
    wrap: Callable[[Any], Any] | None = None,
) -> None:
    """Set each row of `sums` to the sum of the terms at its position.

    Positions are sorted, once, so that the terms of a row lie together. Programs add up as many terms each, whatever
    the rows are that these belong to: a row of many terms takes no longer than many rows. Parts of rows that programs
    share are the terms of the next launch, until one program has them all. Terms are added in float32, or float64, in
    an order that depends on the sizes alone.

    Args:
        terms: [n_lines * n_positions, n_cols] with any strides, floats.
        positions: [n_lines, n_positions] with any strides, integers, counted in a line; what is outside is left out.
        sums: [n_lines * n_elements, n_cols], contiguous, which is written.
        deterministic: whether equal calls give equal bits; otherwise atomics may add terms up in any order.
        wrap: what torch sees launches of kernels by, if it has to.
    """
    sums.zero_()
    n_terms, (n_rows, n_cols) = positions.numel(), sums.shape
    if n_terms == 0 or sums.numel() == 0:
        return
    launches = _Launches((terms, positions, sums), deterministic, wrap)
    keys = _keys(positions, n_rows, launches)
    compute = compute_dtype(torch.promote_types(terms.dtype, sums.dtype))
    dtype = torch_dtype(compute)
    width = min(TILE, power_of_two(n_cols))
    height, n_blocks = TILE // width, cdiv(n_cols, width)
    if n_cols > 1 and terms.stride(1) > 1:
        terms = terms.contiguous()  # Programs read whole rows.
    if use_atomics(n_terms, sums, dtype, deterministic):
        launches.run(
            kernels.atomic_kernel,
            (cdiv(n_terms, height) * n_blocks,),
            (terms, keys, sums),
            (n_terms, n_rows, n_cols, *terms.stride()),
            BLOCK_M=height,
            BLOCK_N=width,
        )
        return
    keys, order = torch.sort(keys, stable=True)
    chunk = choose_chunk(n_terms, n_cols)
    while True:
        n_chunks = cdiv(n_terms, chunk)
        parts = part_keys = None
        if n_chunks > 1:
            shape = (2 * n_chunks, n_cols)
            parts = torch.empty(shape, dtype=dtype, device=sums.device)
            part_keys = keys.new_empty(2 * n_chunks)
        launches.run(
            kernels.segments_kernel,
            (cdiv(n_chunks, height) * n_blocks,),
            (terms, order, keys, sums, parts, part_keys),
            (n_terms, n_rows, n_cols, *terms.stride()),
            COMPUTE=compute,
            CHUNK=chunk,
            BLOCK_M=height,
            BLOCK_N=width,
        )
        if parts is None or part_keys is None:
            return
        terms, order, keys, n_terms = parts, None, part_keys, 2 * n_chunks
        chunk = PARTS


PARTS = 64  # that a program adds up, of few


def choose_chunk(n_terms: int, n_cols: int) -> int:
    """How many terms are added one after another: few where there are few, so that there are programs for all SMs."""
    return 64 if n_terms * n_cols > 2**24 else 16


def use_atomics(n_terms: int, sums: torch.Tensor, dtype: torch.dtype, deterministic: bool) -> bool:
    """Whether atomics are faster: into sums that have the dtype of the computation."""
    return not deterministic and sums.dtype == dtype


def _keys(positions: torch.Tensor, n_rows: int, launches: "_Launches") -> torch.Tensor:
    """The rows of the sums that positions are, n_rows for those outside of a line."""
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


class _Launches:
    """Launches kernels one after another, as calls like this one have done before."""

    def __init__(
        self,
        tensors: tuple[torch.Tensor, ...],
        deterministic: bool,
        wrap: Callable[[Any], Any] | None,
    ) -> None:
        self.key, _ = launch.lookup("scatter_sum", tensors, deterministic)
        self.wrap, self.count = wrap, 0

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
        replay = None if key is None else launch.Launches.known.get(key)
        if replay is not None:
            replay(tensors)
        else:
            kernel = self.wrap(kernel) if self.wrap else kernel
            launch.run(key, kernel, grid, None, tensors, sizes, **options, num_warps=4)
