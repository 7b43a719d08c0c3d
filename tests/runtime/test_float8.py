"""Rounding to float8 as results are: to the nearest, the largest for what is larger, and NaN for NaN."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import triton

from tests.harness.importing import module_of
from tests.harness.oracles import DEVICE

STORE = """
import triton
import triton.language as tl

from ._runtime import float8


@triton.jit
def store(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(y_ptr + at, float8.to_float8(x, y_ptr.dtype.element_ty), mask=at < n)
"""
FLOAT8S = [torch.float8_e4m3fn, torch.float8_e5m2]


def rounded(x: torch.Tensor, dtype: torch.dtype, folder: Path) -> torch.Tensor:
    y = torch.empty(x.shape, dtype=dtype, device=DEVICE)
    module_of(STORE, folder).store[(1,)](x.to(DEVICE), y, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return y.cpu().float()


@pytest.mark.parametrize("dtype", FLOAT8S, ids=str)
def test_rounds_to_the_nearest(dtype: torch.dtype, tmp_path: Path) -> None:
    """All that a float8 has, what lies midway between two, and what is next to that."""
    every = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    known = every[every.isfinite()].sort().values
    midway = (known[1:] + known[:-1]) / 2
    upwards, downwards = (torch.nextafter(midway, torch.tensor(end)) for end in (math.inf, -math.inf))
    numbers = torch.cat([known, midway, upwards, downwards, torch.randn(1000), torch.randn(1000) * 1e-3])
    assert torch.equal(rounded(numbers, dtype, tmp_path), numbers.to(dtype).float())


@pytest.mark.parametrize("dtype", FLOAT8S, ids=str)
def test_the_largest_stands_for_what_is_larger(dtype: torch.dtype, tmp_path: Path) -> None:
    largest = torch.finfo(dtype).max
    above = torch.tensor([largest * 1.01, largest * 1.2, largest * 2, 1e30, math.inf])
    assert rounded(above, dtype, tmp_path).tolist() == [largest] * 5
    assert rounded(-above, dtype, tmp_path).tolist() == [-largest] * 5


@pytest.mark.parametrize("dtype", FLOAT8S, ids=str)
def test_nan_stays(dtype: torch.dtype, tmp_path: Path) -> None:
    other = torch.tensor([0x7F800001, -0x7FFFFF], dtype=torch.int32).view(torch.float32)
    nan = torch.cat([torch.tensor([math.nan, -math.nan]), other])
    assert rounded(nan, dtype, tmp_path).isnan().all()


@pytest.mark.parametrize("source", [torch.float64, torch.float16, torch.int32], ids=str)
def test_from_other_dtypes(source: torch.dtype, tmp_path: Path) -> None:
    numbers = torch.tensor([0, 1, 17, 18, 449, -1000]).to(source)
    want = [0.0, 1.0, 16.0, 18.0, 448.0, -448.0]
    assert rounded(numbers, torch.float8_e4m3fn, tmp_path).tolist() == want
