"""Arithmetic of params alone is Python's, in float64, in kernels of every family and in their gradients."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built, runtime_module
from tests.random.evaluated import Evaluated
from tritongen.spec.read import read_spec

LENGTHS = {"M": 5, "N": 7, "K": 6, "E": 4}
# What is near 1, where the digits of float32 are far apart.
MATH = {
    "elementwise": ("x * (1 - p) * log(p)", "M N"),
    "row_wise": ("x * (1 - p) - mean(x * (1 - p), N)", "M N"),
    "columns": ("sum(x * (1 - p), M)", "N"),
    "scan": ("cumsum(x * (1 - p ** 2), N)", "M N"),
    "contraction": ("(1 - p) * sum(a * b, K) / (1 - p * p)", "M N"),
    "prologue": ("sum(a * (1 - p) * b, K)", "M N"),
    "streaming": ("sum(softmax((1 - p) * 1000 * sum(a * b, K), N) * v, N) * log(p)", "M E"),
    "by_a_line": ("x * share", "M N"),
}


def spec_of(name: str, dtype: str) -> str:
    text, axes = MATH[name]
    shapes = {"x": "M, N", "a": "M, K", "b": "N, K", "v": "N, E"}
    read = [one for one in shapes if one in {word.strip("(),") for word in text.replace("(", " ").split()}]
    inputs = "\n".join(f'{one} = "{dtype}[{shapes[one]}]"' for one in read)
    share = 'share = "(1 - p) / k"\n' if "share" in text else ""
    param = "k = 3\n" if share else ""
    spec = (
        f'[op]\nname = "it"\nsummary = "It."\n[inputs]\n{inputs}\n[params]\np = 0.5\n{param}'
        f'[compute]\n{share}y = "{text}"\n[outputs]\ny = "auto[{", ".join(axes.split())}]"\n[grad]\nwrt = {read}\n'
    )
    return spec.replace("'", '"')


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MATH)
def test_digits_are_kept(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    text = spec_of(name, str(dtype).removeprefix("torch."))
    it = built(read_spec("it.toml", text), tmp_path).it
    oracle = Evaluated(text)
    gen = torch.Generator().manual_seed(0)
    shapes = [oracle.shape(one, LENGTHS) for one in oracle.inputs]
    exact = [torch.randn(shape, generator=gen, dtype=dtype).double().requires_grad_() for shape in shapes]
    own = [one.detach().to(dtype).requires_grad_() for one in exact]
    p = 0.9999999
    (wanted,) = oracle(LENGTHS, exact, {"p": p})
    found = it(*own, p=p)
    dy = torch.randn(wanted.shape, generator=gen, dtype=torch.float64)
    gradients = torch.autograd.grad(found, own, dy.to(dtype)), torch.autograd.grad(wanted, exact, dy)
    for one, other in [(found, wanted), *zip(*gradients, strict=True)]:
        error = (one.double() - other).norm() / other.norm()
        assert error < (1e-6 if dtype == torch.float32 else 1e-14)


def test_functions_of_params_never_raise() -> None:
    scalars = runtime_module("scalars")
    numbers = [-math.inf, -1e200, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 800.0, 1e200, math.inf, math.nan]
    for name in ("exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "sigmoid"):
        own, of_torch = getattr(scalars, name), getattr(torch, name)
        found = torch.tensor([own(number) for number in numbers], dtype=torch.float64)
        torch.testing.assert_close(
            found, of_torch(torch.tensor(numbers, dtype=torch.float64)), equal_nan=True, msg=name
        )
    for name, of_torch in {"divide": torch.div, "power": torch.pow}.items():
        x, y = (
            one.flatten() for one in torch.meshgrid(*[torch.tensor(numbers, dtype=torch.float64)] * 2, indexing="ij")
        )
        found = torch.tensor(
            [getattr(scalars, name)(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)], dtype=torch.float64
        )
        torch.testing.assert_close(found, of_torch(x, y), equal_nan=True, msg=name)
