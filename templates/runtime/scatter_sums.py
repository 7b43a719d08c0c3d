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

    Positions are sorted, once, so that the terms of a row lie together. Programs add up as many terms each, wherever
    the rows are that these belong to: rows of many terms take no longer than many rows. What is left are the parts of
    rows that several programs share; they are the terms of the next launch, until one program has them all. Terms
    are added in float32, or float64, in an order that is the same for every call.

    Args:
        terms: [n_lines * n_positions, n_cols] with any strides, floats.
        positions: [n_lines, n_positions] with any strides, integers, counted in a line; what is outside is left out.
        sums: [n_lines * n_elements, n_cols], contiguous, which is written.
        deterministic: whether equal calls give equal bits; otherwise terms are added by atomics, and nothing is sorted.
        wrap: what torch sees launches of kernels by, if it has to.
    """
    sums.zero_()
    n_terms, (n_rows, n_cols) = positions.numel(), sums.shape
    if n_terms == 0 or sums.numel() == 0:
        return
    wrap = wrap or _plain
    keys = _keys(positions, n_rows, wrap)
    if not deterministic:
        _add_atomically(terms, keys, sums, wrap)
        return
    compute = compute_dtype(torch.promote_types(terms.dtype, sums.dtype))
    if n_cols > 1 and terms.stride(1) > 1:
        terms = terms.contiguous()  # Programs read whole rows.
    keys, order = torch.sort(keys, stable=True)
    width = min(TILE, power_of_two(n_cols))
    height = TILE // width
    while True:
        # Short chunks where there are few, so that there are programs for all SMs.
        chunk = 64 if n_terms * n_cols > 2**24 else 16
        n_chunks = cdiv(n_terms, chunk)
        parts = part_keys = None
        if n_chunks > 1:
            shape = (2 * n_chunks, n_cols)
            dtype, device = torch_dtype(compute), terms.device
            parts = torch.empty(shape, dtype=dtype, device=device)
            part_keys = torch.empty(2 * n_chunks, dtype=keys.dtype, device=device)
        _launch(
            wrap(kernels.segments_kernel),
            (cdiv(n_chunks, height), cdiv(n_cols, width)),
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


def _keys(positions: torch.Tensor, n_rows: int, wrap: Callable[[Any], Any]) -> torch.Tensor:
    """The rows of the sums that positions are, n_rows for those outside of a line."""
    n_lines, n_positions = positions.shape
    dtype = torch.int32 if n_rows < 2**31 else torch.int64
    keys = torch.empty(positions.numel(), dtype=dtype, device=positions.device)
    _launch(
        wrap(kernels.keys_kernel),
        (cdiv(keys.numel(), TILE),),
        (positions, keys),
        (keys.numel(), n_positions, n_rows // n_lines, n_rows, *positions.stride()),
        BLOCK=TILE,
    )
    return keys


def _add_atomically(
    terms: torch.Tensor,
    keys: torch.Tensor,
    sums: torch.Tensor,
    wrap: Callable[[Any], Any],
) -> None:
    """Add terms to sums of zero, in float32 or float64."""
    dtype = torch_dtype(compute_dtype(torch.promote_types(terms.dtype, sums.dtype)))
    totals = sums if dtype == sums.dtype else torch.zeros_like(sums, dtype=dtype)
    n_rows, n_cols = sums.shape
    width = min(TILE, power_of_two(n_cols))
    height = TILE // width
    _launch(
        wrap(kernels.atomic_kernel),
        (cdiv(keys.numel(), height), cdiv(n_cols, width)),
        (terms, keys, totals),
        (keys.numel(), n_rows, n_cols, *terms.stride()),
        BLOCK_M=height,
        BLOCK_N=width,
    )
    if totals is not sums:
        sums.copy_(totals)


def _plain(kernel: Any) -> Any:
    return kernel


def _launch(
    kernel: Any,
    grid: tuple[int, ...],
    tensors: tuple[torch.Tensor | None, ...],
    sizes: tuple[int, ...],
    **options: Any,
) -> None:
    """Launch a kernel, as calls like this one have done before."""
    key, replay = launch.lookup("scatter_sums", tensors, sizes, *options.values())
    if replay is not None:
        replay(tensors)
    else:
        launch.run(key, kernel, grid, None, tensors, sizes, **options, num_warps=4)
