"""Matrices for the runtime's gemm, as they may lie, beside a float64 oracle."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton

from tests.harness.importing import runtime_module
from tests.harness.oracles import DEVICE

SPLIT = runtime_module("split_gemm")
GEMM = SPLIT.gemm
# Relative to the largest result. Triton's interpreter computes tl.dot of bfloat16 incorrectly.
TOLERANCES = {torch.float16: 1e-3, torch.float32: 1e-6, torch.float64: 1e-14}
if DEVICE == "cuda":
    TOLERANCES[torch.bfloat16] = 8e-3
ERRORS = {"bf16x3": 6e-5, "bf16x6": 3e-7}  # Where the interpreter rounds to bfloat16, it cuts off.
BATCHES = [(), (2,)]
RAGGED = (21, 69, 45)  # rows, columns, inner
SMALL = triton.Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP": 2}, num_stages=2)
needs_tma = pytest.mark.skipif(
    DEVICE == "cuda" and torch.cuda.get_device_capability() < (9, 0), reason="needs TMA, or the interpreter"
)


def make(
    batch: tuple[int, ...], shape: tuple[int, int, int] = RAGGED, dtype: torch.dtype = torch.float16, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """A left and a right matrix for (rows, columns, inner)."""
    n_rows, n_cols, n_inner = shape
    random = torch.Generator().manual_seed(seed)
    sizes = (*batch, n_rows, n_inner), (*batch, n_cols, n_inner)
    left, right = (torch.rand(size, generator=random, dtype=torch.float64) - 0.5 for size in sizes)
    return left.to(DEVICE, dtype), right.to(DEVICE, dtype)


def check(left: torch.Tensor, right: torch.Tensor, precision: str = "ieee", sums_batch: bool = False) -> None:
    multiply = SPLIT.multiply if precision in ERRORS else GEMM.gemm
    got = multiply(left, right, precision, sums_batch)
    want = left.double() @ right.double().mT
    want = want.sum(0) if sums_batch else want
    assert (got.dtype, got.shape, got.is_contiguous()) == (left.dtype, want.shape, True)
    atol = ERRORS.get(precision, TOLERANCES[left.dtype]) * max(1.0, want.abs().max().item() if want.numel() else 0.0)
    torch.testing.assert_close(got.double(), want, rtol=0, atol=atol)


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.mT.contiguous().mT


def batch_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.movedim(0, -1).contiguous().movedim(-1, 0)


def sliced(tensor: torch.Tensor) -> torch.Tensor:
    """Every second element of a larger tensor, along each axis."""
    large = tensor.new_zeros([2 * size for size in tensor.shape])
    return large[(slice(None, None, 2),) * tensor.ndim].copy_(tensor)


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """One element past an aligned address."""
    return torch.cat((tensor.new_zeros(1), tensor.flatten()))[1:].view(tensor.shape)


def same_rows(tensor: torch.Tensor) -> torch.Tensor:
    """One row for all, by a stride of zero."""
    return tensor[..., :1, :].expand_as(tensor)


LAYOUTS = [torch.clone, transposed, batch_last, sliced, misaligned, same_rows]


Layout = Callable[[torch.Tensor], torch.Tensor]
