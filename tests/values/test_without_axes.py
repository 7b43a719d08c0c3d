"""Tensors without axes give way to those that have some, as torch's of no dimensions do."""

from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tests.harness.written import Written
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
    assert "dy.to(tensors.promote(ctx.q_dtype, ctx.k_dtype))" in (tmp_path / "scores" / "op.py").read_text()


ABSENT = """
[op]
name = "shifted"
summary = "Values without axes beside inputs that may be absent."

[inputs]
x = "{x}[]"
m = "int8[M, N]"
b = "{b}[M] = 0"
c = "{b}[M] = 1"

[compute]
z = "x + b"
o = "(x * b) * c"
rows = "sum(m, N) + z"

[outputs]
z = "auto"
o = "auto"
rows = "auto"
"""


@pytest.mark.parametrize(
    ("x", "b"), [("float64", "float32"), ("float32", "bfloat16"), ("int64", "int8"), ("float64", "float16")]
)
def test_absent_inputs_have_no_dtype(x: str, b: str, tmp_path: Path) -> None:
    """What is absent is a number, which gives way to tensors without axes as these do to what is there."""
    kind = "int" if x == "int64" else "float"
    shifted = built(read_spec("shifted.toml", ABSENT.format(x=kind, b=kind)), tmp_path).shifted
    own, m = torch.tensor(3).to(getattr(torch, x)), torch.ones(2, 3, dtype=torch.int8)
    given = torch.tensor([1, 2]).to(getattr(torch, b))
    for one, other in ((None, None), (given, None), (None, given), (given, given)):
        first, second = 0 if one is None else one, 1 if other is None else other
        z = own + first
        wanted = z, (own * first) * second, z + torch.tensor([3])
        for found, tensor in zip(shifted(own, m, one, other), wanted, strict=True):
            torch.testing.assert_close(found, tensor.expand(2))


def test_the_gradient_of_what_meets_absent_inputs(tmp_path: Path) -> None:
    text = ABSENT.format(x="float", b="float") + '[grad]\nwrt = ["x", "b", "c"]\n'
    shifted = built(read_spec("shifted.toml", text), tmp_path).shifted
    x, m = torch.tensor(0.1, dtype=torch.float64, requires_grad=True), torch.ones(2, 3, dtype=torch.int8)
    _, _, rows = shifted(x, m)
    (dx,) = torch.autograd.grad((rows / 3).sum(), x)
    torch.testing.assert_close(dx, torch.tensor(2 / 3, dtype=torch.float64), rtol=1e-15, atol=0)


def test_what_the_backward_stores_has_the_dtype_of_a_gradient(tmp_path: Path) -> None:
    """That of a result that has the dtype of an input, which is there with the input alone."""
    text = """
    [inputs]
    t = "float[]"
    x = "float[M, N]"
    w = "float[N, K]"
    b = "float[M, N] = 0"

    [compute]
    h = "maximum(t, b)"
    z = "where(x > 0, h, 0.5)"
    y = "sum(cast(z, w) * w, N)"

    [outputs]
    h = "auto[M, N]"
    z = "auto[M, N]"
    y = "auto[M, K]"

    [grad]
    wrt = ["t", "b"]
    """
    written, lengths = Written(text, tmp_path), {"M": 7, "N": 2, "K": 3}
    for missing in ({}, {"b": None}):
        written.compare(lengths, written.drawn(lengths) | missing)
