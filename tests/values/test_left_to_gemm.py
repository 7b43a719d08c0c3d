"""Operators that the runtime's gemm computes, or gradients of which it does."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from importing import built, runtime_of

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import triton

from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SPEC = """
[op]
name = "product"
summary = "A product."
{op}

[types]
T = "float"

[inputs]
a = "T[M, K]"
b = "{b}[K, N]"

[compute]
c = "{c}"

[outputs]
c = "a"

[grad]
wrt = [{wrt}]

[reference]
torch = "a @ b"
{more}
"""
PLAIN = {"op": "", "b": "T", "c": "sum(a * b, K)", "wrt": '"a", "b"', "more": ""}


@pytest.mark.parametrize(
    ("differs", "calls"),
    [
        ({}, ["gemm.gemm(dc, b)", "gemm.gemm(a.mT, dc.mT)"]),
        ({"op": 'precision = "tf32"'}, ['gemm.gemm(dc, b, "tf32")', 'gemm.gemm(a.mT, dc.mT, "tf32")']),
        ({"wrt": '"b"'}, ["gemm.gemm(a.mT, dc.mT)"]),
        ({"c": "sum(relu(a) * b, K)"}, []),
        ({"c": "2 * sum(a * b, K)"}, []),
        ({"b": "float"}, []),
        ({"more": '[torch]\nregister = "triton_op"\nnamespace = "of_tests"'}, []),
    ],
    ids=["plain", "precision", "one", "prologue", "scaled", "dtypes", "registered"],
)
def test_what_is_left_to_gemm(differs: dict[str, str], calls: list[str]) -> None:
    """Gradients that are matmuls of two matrices of one dtype and nothing else, which have no kernels of their own."""
    files = generate(read_spec("product.toml", SPEC.format(**PLAIN | differs)))
    assert re.findall(r"gemm\.gemm\(.*\)", files["op.py"]) == calls
    own = set(re.findall(r"def product_backward_(\w+?)_(?:tma_|stream_k_|reduce_)?kernel\(", files["kernels.py"]))
    assert len(own) == (0 if calls else 2)
    assert len(set(re.findall(r"STRIDED_(\w+)", files["configs.py"]))) == len(own)


@pytest.mark.parametrize(
    ("differs", "splits"),
    [
        ({}, True),
        ({"op": 'precision = "tf32x3"'}, False),
        ({"c": "2 * sum(a * b, K)"}, False),
        ({"more": '[torch]\nregister = "triton_op"\nnamespace = "of_tests"'}, False),
    ],
    ids=["plain", "precision", "scaled", "registered"],
)
def test_what_is_split_beforehand(
    differs: dict[str, str], splits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operators that are a matmul and nothing else, in a precision of bfloat16s, forward and backward."""
    spec = read_spec("product.toml", SPEC.format(**PLAIN | {"op": 'precision = "bf16x6"'} | differs))
    assert ("if replay is None and gemm.splits(" in generate(spec)["op.py"]) == splits
    if not splits:
        return
    module = built(spec, tmp_path)
    launched = []
    run = runtime_of(module, "launch").run_named
    monkeypatch.setattr(
        runtime_of(module, "launch"),
        "run_named",
        lambda kernel, *a, **k: launched.append(kernel) or run(kernel, *a, **k),
    )
    monkeypatch.setattr(runtime_of(module, "gemm"), "splits", lambda *_: True)
    small = triton.Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP": 2}, num_stages=2)
    monkeypatch.setattr(runtime_of(module, "gemm").SPLIT_TMA, "choose", lambda *_: small)
    random = torch.Generator().manual_seed(0)
    a, b = ((torch.rand(shape, generator=random) - 0.5).to(DEVICE) for shape in ((21, 45), (45, 69)))
    c = module.product(a.requires_grad_(), b.requires_grad_())
    want = a.double() @ b.double()
    torch.testing.assert_close(c.double(), want, rtol=0, atol=1e-6)
    seed = torch.ones_like(c)
    got = torch.autograd.grad(c, (a, b), seed)
    for one, other in zip(got, torch.autograd.grad(want, (a, b), seed.double()), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    assert [kernel.__name__ for kernel in launched] == ["gemm_split_kernel"] * 3


def test_gradients_with_kernels_of_their_own_have_the_precision_of_the_forward() -> None:
    text = SPEC.format(**PLAIN | {"op": 'precision = "tf32"', "c": "2 * sum(a * b, K)"})
    kernels = generate(read_spec("product.toml", text))["kernels.py"]
    assert set(re.findall(r"input_precision=(.+?)[,)]", kernels)) == {'"tf32"'}
    assert "product_backward_da_kernel" in kernels
