"""Rules in place of those of the same names in rules.py, where kernels have tables of their own."""

import functools

import torch
import triton

from .rules import _least, _suited

DESCRIPTORS: dict[str, tuple[triton.Config, ...]] = {}
POINTERS: dict[str, tuple[triton.Config, ...]] = {}
POINTERS_WIDE: dict[str, tuple[triton.Config, ...]] = {}


@functools.lru_cache(1024)  # It takes longer than a small kernel does.
def choose_descriptors(
    n_rows: int, n_cols: int, n_terms: int, kernels: str
) -> triton.Config:
    """The configuration for tiles that descriptors copy, in some of the kernels, whose sums of so many terms programs
    may share.
    """
    return _least(DESCRIPTORS[kernels], n_rows, n_cols, 400, n_terms)


@functools.lru_cache(1024)
def choose_pointers(
    n_rows: int, n_cols: int, dtype: torch.dtype, cols_last: bool, kernels: str
) -> triton.Config:
    """The configuration for tiles that are read by pointers, in some of the kernels."""
    tables = POINTERS if dtype.itemsize <= 2 else POINTERS_WIDE
    table = _suited(tables[kernels], n_rows, n_cols, dtype, cols_last)
    return _least(table, n_rows, n_cols, 64)
