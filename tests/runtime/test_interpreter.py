"""Triton's interpreter as the runtime mends it, called as docs/guide.md says: without emitted tests' harness."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from tests.harness.processes import python

if torch.cuda.is_available():
    pytest.skip("GPUs need no interpreter", allow_module_level=True)
ROOT = Path(__file__).parents[2]
CALLS = """
import torch
import triton
import triton.language as tl
from generated import attention, linear, matmul, rms_norm, softmax

torch.manual_seed(0)
F, randn = torch.nn.functional, torch.randn


def check(call, reference, *shapes):
    given = [randn(shape).bfloat16().requires_grad_() for shape in shapes]
    wide = [one.detach().double().requires_grad_() for one in given]
    y, want = call(*given), reference(*wide)
    dy = randn(y.shape).bfloat16()
    pairs = zip([y, *torch.autograd.grad(y, given, dy)], [want, *torch.autograd.grad(want, wide, dy.double())])
    for got, want in pairs:
        assert (got.double() - want).norm() < 4e-3 * want.norm(), (call, got, want)


check(linear, F.linear, (20, 24), (16, 24), (16,))
check(matmul, torch.matmul, (20, 24), (24, 16))
heads = (1, 2, 20, 16)
check(
    lambda q, k, v: attention(q, k, v, scale=0.25),
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.25),
    heads, heads, heads,
)
check(softmax, lambda x: x.softmax(-1), (5, 100))
check(rms_norm, lambda x, w: F.rms_norm(x, (100,), w, 1e-6), (5, 100), (100,))


@triton.jit
def chosen(x_ptr, t_ptr, y_ptr):
    x, t = tl.load(x_ptr + tl.arange(0, 4)), tl.load(t_ptr)
    tl.store(y_ptr + tl.arange(0, 4), tl.where((x > 0) & (t > 0), x, t))


x, y = torch.tensor([-1.0, 0.0, 1.0, 2.0]), torch.empty(4)
chosen[(1,)](x, torch.tensor(0.5), y)
assert y.tolist() == [0.5, 0.5, 1.0, 2.0]
"""


@pytest.mark.sampled(4)
def test_calls(tmp_path: Path) -> None:
    """With bfloat16, and conditions of scalars beside those of blocks."""
    (script := tmp_path / "calls.py").write_text(CALLS)
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = python(str(script), env=environment)
    assert done.returncode == 0, done.stderr
