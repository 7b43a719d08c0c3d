# mypy: allow-untyped-defs, allow-untyped-decorators
"""Compensated running sums: as exact as if each sum were rounded once, for any number of terms."""

from __future__ import annotations

import functools
import math

import pytest
import torch
import triton
import triton.language as tl

from tests.harness.importing import runtime_module
from tests.harness.oracles import DEVICE

kahan_add = runtime_module("reduce").kahan_add


@triton.jit
def _sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([1, BLOCK // 4], tl.float32)
    lost = tl.zeros([1, BLOCK // 4], tl.float32)
    for start in range(0, n, BLOCK):
        total, lost = kahan_add(total, lost, tl.load(x_ptr + start + cols))
    tl.store(y_ptr + tl.arange(0, BLOCK // 4)[None, :], total)


def summed(x: torch.Tensor) -> torch.Tensor:
    """The sums of every fourth block of 4."""
    y = torch.empty(4, device=DEVICE)
    _sum_kernel[(1,)](x.to(DEVICE), y, len(x), 16)
    return y.cpu()


@pytest.mark.parametrize("scale", [1.0, -1e30, 1e-30])
def test_sums_of_many_terms(scale: float) -> None:
    """What a step of the loop adds is rounded below the last digit of the sum, again and again."""
    x = scale * (1 + 0.1 * torch.rand(400, 16, generator=torch.Generator().manual_seed(0)))
    in_groups = x.view(400, 4, 4).sum(-1)  # Each of them is rounded as in the kernel, but for the order of four.
    wanted = in_groups.double().sum(0)
    error = (summed(x.flatten()).double() - wanted).abs() / wanted.abs()
    plain = functools.reduce(torch.add, in_groups).double()
    assert float(error.max()) < 1.5e-7
    assert float(((plain - wanted).abs() / wanted.abs()).max()) > 2e-7


@pytest.mark.parametrize(("first", "second", "wanted"), [
    (math.inf, 1.0, math.inf), (-math.inf, 1.0, -math.inf), (math.inf, -math.inf, math.nan), (math.nan, 1.0, math.nan),
])  # fmt: skip
def test_sums_of_infinities(first: float, second: float, wanted: float) -> None:
    x = torch.ones(64)
    x[0], x[32] = first, second
    found = summed(x)
    torch.testing.assert_close(found, torch.tensor([wanted, 16.0, 16.0, 16.0]), equal_nan=True)
