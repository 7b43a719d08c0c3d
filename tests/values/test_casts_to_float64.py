"""A cast to float64 has the math around it computed in float64, though no input is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tests.random.evaluated import Evaluated
from tritongen.spec.read import read_spec

LENGTHS = {"M": 3, "N": 300, "K": 40, "E": 4}
# The dtypes of inputs, the math, and its axes: of elements, rows, columns, scans, matmuls and what streams.
MATH = [
    ("x = int64[N]", "cast(x, float64)", "N"),
    ("x = int32[N]", "exp(cast(x, float64) / 3e8)", "N"),
    ("x = float32[M, N]", "sum(cast(x, float64), N)", "M"),
    ("x = float32[M, N]", "sum(cast(x, float64), M)", "N"),
    ("x = bool[M, N]", "mean(cast(x, float64), N)", "M"),
    ("x = float32[M, N]", "cumsum(cast(x, float64), N)", "M N"),
    ("x = float32[M, N]", "softmax(cast(x, float64), N) - softmax(cast(x, float64), M)", "M N"),
    ("x = float32[N]", "cast(index(N), float64) / 7 + x", "N"),
    ("x = float32[M, K]; w = float32[N, K]", "sum(cast(x, float64) * w, K)", "M N"),
    (
        "x = float32[M, K]; w = float32[N, K]; v = float32[N, E]",
        "sum(softmax(sum(cast(x, float64) * w, K), N) * v, N)",
        "M E",
    ),
]


@pytest.mark.parametrize(("inputs", "math", "axes"), MATH)
def test_all_digits_are_there(inputs: str, math: str, axes: str, tmp_path: Path) -> None:
    pairs = [pair.split(" = ") for pair in inputs.split("; ")]
    by = [name for name, kind in pairs if "float" in kind]
    text = '[op]\nname = "it"\nsummary = "It."\n[inputs]\n' + "".join(f'{name} = "{kind}"\n' for name, kind in pairs)
    text += f'[compute]\ny = "{math}"\n[outputs]\ny = "auto[{", ".join(axes.split())}]"\n'
    text += f"[grad]\nwrt = {by}\n".replace("'", '"') if by else ""
    it, oracle, gen = built(read_spec("it.toml", text), tmp_path).it, Evaluated(text), torch.Generator().manual_seed(0)
    given = []
    for one, (_, kind) in zip(oracle.inputs, pairs, strict=True):
        dtype = getattr(torch, kind.split("[")[0])
        drawn = torch.randn(oracle.shape(one, LENGTHS), generator=gen)
        given.append(
            (drawn if dtype.is_floating_point else drawn > 0 if dtype == torch.bool else drawn * 4e8).to(dtype)
        )
    own = [one.clone().requires_grad_(one.is_floating_point()) for one in given]
    exact = [one.double().requires_grad_() if one.is_floating_point() else one for one in given]
    found, (wanted,) = it(*own), oracle(LENGTHS, exact, {})
    torch.testing.assert_close(found, wanted, rtol=1e-13, atol=1e-15)
    if by:
        dy = torch.randn(wanted.shape, generator=gen, dtype=torch.float64)
        gradients = torch.autograd.grad(wanted, exact, dy)
        torch.testing.assert_close(torch.autograd.grad(found, own, dy), tuple(one.float() for one in gradients))


def test_emitted_tests_ask_for_all_digits(tmp_path: Path) -> None:
    text = '[op]\nname = "it"\nsummary = "It."\n[inputs]\nx = "float32[M, N]"\n[compute]\ny = "sum({x}, N)"\n'
    for x, is_looser in (("x", True), ("cast(x, float64)", False)):
        built(read_spec("it.toml", text.replace("{x}", x) + '[outputs]\ny = "float64"\n'), tmp_path / f"{is_looser}")
        emitted = (tmp_path / f"{is_looser}" / "it" / "test_it.py").read_text()
        assert ("torch.float64: 1e-4" in emitted) == is_looser
