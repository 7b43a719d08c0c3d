"""Gradients of matmuls, which the operator's forward computes, or the runtime's gemm, or kernels of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import triton

from tests.harness.importing import built, runtime_of
from tests.harness.oracles import DEVICE
from tritongen.emit.format import format_python
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

SPEC = """
[op]
name = "product"
summary = "A product."
{op}

[types]
T = "float"

[inputs]
a = "T[M, {k}]"
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
PLAIN = {"op": "", "k": "K", "b": "T", "c": "sum(a * b, K)", "wrt": '"a", "b"', "more": ""}


@pytest.mark.parametrize(
    ("differs", "calls"),
    [
        ({}, ["once(_product_forward, dc, b.mT)", "once(_product_forward, a.mT, dc)"]),
        ({"op": 'precision = "tf32"'}, ["once(_product_forward, dc, b.mT)", "once(_product_forward, a.mT, dc)"]),
        ({"wrt": '"b"'}, ["once(_product_forward, a.mT, dc)"]),
        ({"c": "sum(a * b, K) + 1"}, ["gemm.gemm(dc, b)", "gemm.gemm(a.mT, dc.mT)"]),
        (
            {"op": 'precision = "tf32"', "c": "sum(a * b, K) + 1"},
            ['gemm.gemm(dc, b, "tf32")', 'gemm.gemm(a.mT, dc.mT, "tf32")'],
        ),
        ({"k": "K=64"}, ["gemm.gemm(dc, b)", "gemm.gemm(a.mT, dc.mT)"]),
        ({"c": "sum(relu(a) * b, K)"}, []),
        ({"c": "2 * sum(a * b, K)"}, []),
        ({"b": "float"}, []),
        ({"more": '[torch]\nregister = "triton_op"\nnamespace = "of_tests"'}, []),
    ],
    ids=[
        "plain",
        "precision",
        "one",
        "added",
        "added, precision",
        "fixed",
        "prologue",
        "scaled",
        "dtypes",
        "registered",
    ],
)
def test_what_computes_gradients(differs: dict[str, str], calls: list[str]) -> None:
    """Plain matmuls have no kernels of their own: the forward computes them if it is one too, for any length."""
    files = generate(read_spec("product.toml", SPEC.format(**PLAIN | differs)))
    assert re.findall(r"(?:return |= autograd\.)(gemm\.gemm\(.*\)|once\(_product_forward.*\))", files["op.py"]) == calls
    own = set(re.findall(r"def product_backward_(\w+?)_(?:tma_|stream_k_|reduce_)?kernel\(", files["kernels.py"]))
    assert len(own) == (0 if calls else 2)
    assert len(set(re.findall(r"STRIDED_(\w+)", files["configs.py"]))) == len(own)


APART = """
[op]
name = "apart"
summary = "A matmul of axes that stand apart."

[types]
T = "float"

[inputs]
x = "T[{x}]"
w = "T[{w}]"

[compute]
y = "sum(x * w, {over})"

[outputs]
y = "x[{y}]"

[grad]
wrt = ["w"]

[reference]
torch = "torch.einsum('{einsum}', x, w)"
"""


@pytest.mark.parametrize(
    ("einsum", "over", "call"),
    [
        ("bcs,oc->bos", "C", "gemm.gemm(dy, x, sums_batch=True)"),
        ("bchs,oc->bohs", "C", "gemm.gemm(dy, x, sums_batch=True)"),
        ("akb,kn->abn", "K", "gemm.gemm(x, dy.mT, sums_batch=True)"),
        ("bmc,oc->bmo", "C", "gemm.gemm(dy.mT, x.mT)"),
        ("kbjm,nkj->bmn", "K, J", "gemm.gemm(dy.mT, x)"),
        ("cbs,oc->obs", "C", "gemm.gemm(dy, x)"),
    ],
)
def test_summed_axes_that_stand_apart_are_a_batch(einsum: str, over: str, call: str, tmp_path: Path) -> None:
    """Those before the free axes of both matrices, where one has summed ones behind, too."""
    axes = [", ".join(side.upper()) for side in einsum.replace("->", ",").split(",")]
    spec = read_spec("apart.toml", APART.format(**dict(zip("xwy", axes, strict=True)), over=over, einsum=einsum))
    assert re.findall(r"gemm\.gemm\(.*\)", generate(spec)["op.py"]) == [call]
    random = torch.Generator().manual_seed(0)
    sizes = dict(zip("abchjkmnos", (3, 2, 5, 3, 2, 4, 6, 7, 9, 8), strict=True))
    x, w = (
        torch.rand([sizes[axis] for axis in side], generator=random, dtype=torch.float64).to(DEVICE)
        for side in einsum.split("->")[0].split(",")
    )
    y = built(spec, tmp_path).apart(x, w.requires_grad_())
    want = torch.einsum(einsum, x, w)
    seed = torch.rand(want.shape, generator=random, dtype=torch.float64).to(DEVICE)
    for got, expected in ((y, want), (torch.autograd.grad(y, w, seed)[0], torch.autograd.grad(want, w, seed)[0])):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


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
    assert ("if replay is None and split_gemm.splits(" in generate(spec)["op.py"]) == splits
    if not splits:
        return
    module = built(spec, tmp_path)
    launched = []
    run = runtime_of(module, "launch").launched
    monkeypatch.setattr(
        runtime_of(module, "launch"),
        "launched",
        lambda kernel, *args: launched.append(kernel) or run(kernel, *args),
    )
    monkeypatch.setattr(runtime_of(module, "split_gemm"), "splits", lambda *_: True)
    small = triton.Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP": 2}, num_stages=2)
    monkeypatch.setattr(runtime_of(module, "split_gemm").TMA, "choose", lambda *_: small)
    random = torch.Generator().manual_seed(0)
    a, b = ((torch.rand(shape, generator=random) - 0.5).to(DEVICE) for shape in ((21, 45), (45, 69)))
    c = module.product(a.requires_grad_(), b.requires_grad_())
    want = a.double() @ b.double()
    torch.testing.assert_close(c.double(), want, rtol=0, atol=1e-6)
    seed = torch.ones_like(c)
    got = torch.autograd.grad(c, (a, b), seed)
    for one, other in zip(got, torch.autograd.grad(want, (a, b), seed.double()), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    split = [kernel.__name__ for kernel in launched if kernel.__name__ != "split_kernel"]
    assert split == ["gemm_split_kernel"] * 3


def test_gradients_with_kernels_of_their_own_have_the_precision_of_the_forward() -> None:
    text = SPEC.format(**PLAIN | {"op": 'precision = "tf32"', "c": "2 * sum(a * b, K)"})
    kernels = format_python(generate(read_spec("product.toml", text))["kernels.py"])
    assert set(re.findall(r"input_precision=(.+?)[,)]", kernels)) == {'"tf32"'}
    assert "product_backward_da_kernel" in kernels
