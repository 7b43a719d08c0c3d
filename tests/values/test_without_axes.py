"""Tensors without axes give way to those that have some, as torch's of no dimensions do."""

from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tritongen.spec.read import read_spec

SPEC = """
[op]
name = "scaled"
summary = "A scaled tensor, and one with an offset."

[inputs]
x = "{x}[M, N]"
t = "{t}[]"

[compute]
y = "x * t"
z = "x + sum(t * t * cast(x, t), M, N)"

[outputs]
y = "auto"
z = "auto"
"""


@pytest.mark.parametrize(
    ("x", "t"),
    [
        ("bfloat16", "float32"),
        ("float16", "float64"),
        ("float64", "float32"),
        ("int8", "int64"),
        ("bfloat16", "int32"),
        ("bool", "int16"),
        ("int16", "float16"),
        ("int64", "float64"),
    ],
)
def test_dtypes_are_those_of_torch(x: str, t: str, tmp_path: Path) -> None:
    scaled = built(read_spec("scaled.toml", SPEC.format(x=x, t=t)), tmp_path).scaled
    own, factor = torch.arange(6).reshape(2, 3).to(getattr(torch, x)), torch.tensor(2).to(getattr(torch, t))
    y, z = scaled(own, factor)
    torch.testing.assert_close(y, own * factor)
    torch.testing.assert_close(z, own + (factor * factor * own.to(factor.dtype)).sum())


def test_matmuls_of_a_gradient_keep_half_precision(tmp_path: Path) -> None:
    """A learned temperature is in float32, and what it scales is multiplied in float16."""
    text = """
    [op]
    name = "scores"
    summary = "Scores by a temperature."

    [inputs]
    q = "float16[M, K]"
    k = "float16[N, K]"
    t = "float32[]"

    [compute]
    y = "t * sum(q * k, K)"

    [outputs]
    y = "float32"

    [grad]
    wrt = ["q", "k", "t"]
    """
    scores = built(read_spec("scores.toml", text), tmp_path).scores
    gen = torch.Generator().manual_seed(0)
    q, k = (torch.randn(n, 16, generator=gen).half().requires_grad_() for n in (5, 7))
    t = torch.tensor(0.7, requires_grad=True)
    y = scores(q, k, t)
    dy = torch.randn(5, 7, generator=gen)
    wanted = torch.autograd.grad(t.double() * (q.double() @ k.double().T), (q, k, t), dy.double())
    found = torch.autograd.grad(y, (q, k, t), dy)
    torch.testing.assert_close(found, wanted, rtol=5e-3, atol=5e-3)
    assert "dy.to(dtypes.promote(ctx.q_dtype, ctx.k_dtype))" in (tmp_path / "scores" / "op.py").read_text()
