"""bfloat16 in Triton's interpreter, called as docs/guide.md says: without the harness of emitted tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

if torch.cuda.is_available():
    pytest.skip("GPUs have bfloat16", allow_module_level=True)
ROOT = Path(__file__).parents[2]
CALLS = """
import torch
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
"""


@pytest.mark.sampled(4)
def test_calls() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
