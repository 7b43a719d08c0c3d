"""Gradients that are zero though a derivative is infinite: as torch's are, or as docs/spec.md promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tritongen.spec.read import read_spec


def operator(folder: Path, inputs: str, compute: str, outputs: str = "y", params: str = "") -> Callable[..., object]:
    """An operator of `;`-separated entries, with gradients by all inputs that are floats."""
    tables = {"inputs": inputs, "params": params, "compute": compute}
    text = '[op]\nname = "it"\nsummary = "It."\n'
    for name, entries in tables.items():
        pairs = [entry.split(" = ", 1) for entry in entries.split("; ") if entry]
        text += (
            f"[{name}]\n" + "".join(f'{own} = "{value}"\n' for own, value in pairs).replace('"0"', "0") if pairs else ""
        )
    text += "[outputs]\n" + "".join(f'{name} = "auto"\n' for name in outputs.split())
    floats = [entry.split(" = ")[0] for entry in inputs.split("; ") if "float" in entry]
    text += f"[grad]\nwrt = {floats}\n".replace("'", '"')
    return built(read_spec("it.toml", text), folder).it


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("correction", ["1", "0", "param"])
def test_deviation_of_equal_elements(dim: int, correction: str, tmp_path: Path) -> None:
    option = {"1": "", "0": ", correction=0", "param": ", correction=c"}[correction]
    params = "c = 0" if correction == "param" else ""
    std = operator(tmp_path, "x = float[M, N]", f"y = std(x, {'MN'[dim]}{option})", params=params)
    x = torch.tensor([[2.0, 2.0, 2.0], [2.0, 3.0, 5.0], [2.0, -1.0, 0.5]], dtype=torch.float64)
    x, own = x.requires_grad_(), x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(x.std(dim, correction=int(correction == "1")).sum(), x)
    (found,) = torch.autograd.grad(std(own).sum(), own)
    torch.testing.assert_close(found, wanted)


ONES, ZERO_ROW = torch.ones(2, 3), torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
ROW, ROWS = torch.tensor([True, False]), torch.tensor([[True] * 3, [False] * 3])
OVERFLOW, DECAY = torch.tensor([0.0, 100.0]), -200.0 * torch.arange(4.0)[:, None].expand(4, 3)
# The inputs, the math, and the values of inputs: branches that are not chosen have infinite derivatives.
CHOICES = {
    "rows": ("x = float[M, N]", "s = sum(x * x, N); y = where(s > 0, x * rsqrt(s), 0.0)", [ZERO_ROW]),
    "columns": ("x = float[M, N]", "s = sum(x * x, M); y = where(s > 0, x * rsqrt(s), 0.0)", [ZERO_ROW.T.contiguous()]),
    "mean": ("x = float[M, N]; m = bool[M]", "y = where(m, mean(exp(x), N), 0.0)", [100 * (1 - ZERO_ROW), ROW]),
    "factor": (
        "x = float[M, D]; m = bool[M, D]; g = float[M]",
        "y = sum(where(m, x * exp(g), 0.0), D)",
        [ONES, ROWS, OVERFLOW],
    ),
    "number": (
        "x = float[M, N]; m = bool[M, N]; g = float[]",
        "y = where(m, x * exp(g), 0.0)",
        [ONES, torch.zeros(2, 3, dtype=torch.bool), torch.tensor(100.0)],
    ),
    "divisor": (
        "x = float[M, N]; m = bool[M, N]; g = float[]",
        "y = where(m, x / (g - 100), 0.0)",
        [ONES, torch.zeros(2, 3, dtype=torch.bool), torch.tensor(100.0)],
    ),
    "batch": (
        "x = float[B, M]; w = float[B, M]; m = bool[M]; g = float[M]",
        "y = sum(where(m, x * w * exp(g), 0.0), M)",
        [torch.ones(3, 2), torch.ones(3, 2), ROW, OVERFLOW],
    ),
    "named": (
        "x = float[M]; g = float[M]; w = float[D]; m = bool[M, D]",
        "t = x * exp(g); y = sum(where(m, t * w, 0.0), D)",
        [torch.ones(2), OVERFLOW, torch.ones(3), ROWS],
    ),
    "steps": (
        "x = float[M, N]; m = bool[M, N]; g = float[M]",
        "t = where(m, x * exp(g), 0.0); y = softmax(t, N) - softmax(t, M)",
        [ONES, ROWS, OVERFLOW],
    ),
    "scan": ("x = float[M, N]; m = bool[M]", "y = where(m, sqrt(cumsum(x, N)), 0.0)", [ZERO_ROW, ROW]),
    "epilogue": (
        "x = float[M, K]; w = float[N, K]; m = bool[M]; g = float[M]",
        "y = where(m, sum(x * w, K) * exp(g), 0.0)",
        [ONES, ONES, ROW, OVERFLOW],
    ),
    "prologue": (
        "x = float[M, K]; w = float[N, K]; m = bool[M, K]; g = float[M]",
        "y = sum(where(m, x * exp(g) * w, 0.0), K)",
        [ONES, ONES, ROWS, OVERFLOW],
    ),
    "root of a factor": (
        "x = float[M, K]; w = float[K, N]; m = bool[M]",
        "y = where(m, sum(sqrt(x) * w, K), 0.0)",
        [ZERO_ROW, torch.ones(3, 2), ROW],
    ),
    "factor of columns": (
        "x = float[M, K]; w = float[K, N]; m = bool[N]",
        "e = exp(w); y = where(m, sum(x * e, K), 0.0)",
        [ONES, OVERFLOW.expand(3, 2).contiguous(), ROW],
    ),
    "factor of rows": (
        "x = float[M, K]; w = float[N, K]; m = bool[M]",
        "y = where(m, sum(log(100 - x) * w, K), 0.0)",
        [100 - 99 * ZERO_ROW, ONES, ROW],
    ),
    "factor of elements": (
        "x = int32[M, K]; w = float[K, N]; m = bool[M, N]",
        "e = exp(w); y = where(m, sum(x * e, K), 0.0)",
        [ONES.int(), OVERFLOW.expand(3, 2).contiguous(), ROW.expand(2, 2).contiguous()],
    ),
    "factor in steps": (
        "x = float[M, K]; w = float[N, K]; v = float[N, L]; m = bool[M]",
        "t = where(m, sum(log(100 - x) * w, K), 0.0); y = sum(gelu(t) * v, N)",
        [100 - 99 * ZERO_ROW, ONES, ONES, ROW],
    ),
    "queries": (
        "x = float[M, D]; k = float[N, D]; v = float[N, E]; m = bool[M]",
        "y = where(m, sum(softmax(sum(sqrt(x) * k, D), N) * v, N), 0.0)",
        [ZERO_ROW, torch.ones(4, 3), torch.ones(4, 2), ROW],
    ),
    "queries without a softmax": (
        "x = float[M, D]; k = float[N, D]; v = float[N, E]; m = bool[M]",
        "y = where(m, sum(sigmoid(sum(sqrt(x) * k, D)) * v, N), 0.0)",
        [ZERO_ROW, torch.ones(4, 3), torch.ones(4, 2), ROW],
    ),
    "queries of a matmul": (
        "x = float[M, D]; w = float[D, F]; k = float[N, F]; v = float[N, E]; m = bool[M]",
        "q = sum(sqrt(x) * w, D); y = where(m, sum(softmax(sum(q * k, F), N) * v, N), 0.0)",
        [ZERO_ROW, torch.ones(3, 3), torch.ones(4, 3), torch.ones(4, 2), ROW],
    ),
    "queries of an attention": (
        "x = float[M, D]; k = float[N, D]; v = float[N, E]; k2 = float[N, E]; m = bool[M]",
        "q = sum(softmax(sum(sqrt(x) * k, D), N) * v, N); y = where(m, sum(softmax(sum(q * k2, E), N) * v, N), 0.0)",
        [ZERO_ROW, torch.ones(4, 3), torch.ones(4, 2), torch.ones(4, 2), ROW],
    ),
    "pole": (
        "x = float[M]; m = bool[M]; b = float[M]",
        "y = where(m, maximum(b / (100 + -x), -2.0), 0.0)",
        [OVERFLOW, ROW, torch.ones(2)],
    ),
    "pole of a maximum": (
        "x = float[M]; m = bool[M]; b = float[M]",
        "y = where(m, maximum(b / maximum(100 - x, -1.0), -2.0), 0.0)",
        [OVERFLOW, ROW, torch.ones(2)],
    ),
    "below the largest": (
        "x = float[M, N]; m = bool[M]; b = float[M]",
        "y = where(m, max(exp(max(x, N) - x) * b, N), 0.0)",
        [torch.tensor([[1.0, 1.0], [100.0, 0.0]]), ROW, torch.ones(2)],
    ),
    "sine": (
        "x = float[M]; m = bool[M]; b = float[M]",
        "y = where(m, maximum(sin(exp(x) * b), -2.0), 0.0)",
        [OVERFLOW, ROW, torch.ones(2)],
    ),
    "largest": (
        "x = float[M, N]; m = bool[M]; b = float[M]",
        "y = where(m, max(exp(x) * b, N), 0.0)",
        [100 * (1 - ZERO_ROW), ROW, torch.ones(2)],
    ),
    "variance": ("x = float[M, N]; m = bool[M]", "y = where(m, var(exp(x), N), 0.0)", [100 * (1 - ZERO_ROW), ROW]),
    "recurrence": (
        "x = float[M, N]; m = bool[M]; d = float[M, N]",
        "y = where(m, recurrence(x, exp(d), N), 0.0)",
        [ONES, ROW, 100 * (1 - ZERO_ROW)],
    ),
    "decay": (
        "q = float[M, D]; k = float[N, D]; v = float[N, E]; b = float[M, D]; c = float[N, D]",
        "s = where(index(M) >= index(N), sum(q * k * exp(b - c), D), 0.0); y = sum(s * v, N)",
        [torch.ones(4, 3), torch.ones(4, 3), torch.ones(4, 2), DECAY.contiguous(), DECAY.contiguous()],
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_is_not_chosen_has_no_gradient(name: str, tmp_path: Path) -> None:
    """The oracle changes what is not chosen into ordinary numbers: no gradient may depend on these."""
    inputs, compute, given = CHOICES[name]
    it = operator(tmp_path, inputs, compute)

    def gradients(tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        own = [one.clone().requires_grad_(one.is_floating_point()) for one in tensors]
        return torch.autograd.grad(it(*own).sum(), [one for one in own if one.requires_grad])  # type: ignore[attr-defined]

    found = gradients(given)
    assert all(one.isfinite().all() for one in found)
    if name != "decay":  # of which no row is left out
        tame = [torch.where(one == 100, 1.0, one) if one.is_floating_point() else one for one in given]
        if name in ("rows", "columns", "scan", "root of a factor") or name.startswith("queries"):
            return  # Of zeros.
        torch.testing.assert_close(found, gradients(tame))


UNUSED = {
    "queries": (
        "x = float[M, D]; k = float[N, D]; v = float[N, E]",
        "y = sum(sigmoid(sum(x * k, D)) * v, N); s = sum(softmax(sum(sqrt(x) * k, D), N) * v, N)",
        [torch.zeros(2, 3), torch.ones(4, 3), torch.ones(4, 2)],
    ),
    "factor": (
        "x = float[M, K]; w = float[K, N]",
        "y = sum(x * w, K); s = sum(sqrt(x) * w, K)",
        [torch.zeros(2, 3), torch.ones(3, 2)],
    ),
    "elements": ("x = float[M, N]", "y = 2 * x; s = sqrt(x)", [torch.zeros(2, 3)]),
    "overflow": ("x = float[M, N]", "y = 2 * x; s = exp(x)", [torch.full((2, 3), 1000.0)]),
    "rows": ("x = float[M, N]", "y = 2 * x; s = log(sum(x, N))", [torch.zeros(2, 3)]),
    "columns": ("x = float[M, N]", "y = 2 * x; s = log(sum(x, M))", [torch.zeros(2, 3)]),
    "scan": ("x = float[M, N]", "y = 2 * x; s = sqrt(cumsum(x, N))", [torch.zeros(2, 3)]),
    "matmul": (
        "x = float[M, K]; w = float[N, K]",
        "t = sum(x * w, K); y = 2 * t; s = sqrt(t)",
        [torch.zeros(2, 3), ONES],
    ),
    "steps": ("x = float[M, N]", "y = softmax(x, N) - softmax(x, M); s = sqrt(sum(x, N))", [torch.zeros(2, 3)]),
}


@pytest.mark.parametrize("name", UNUSED)
def test_a_result_that_is_not_used_has_no_gradient(name: str, tmp_path: Path) -> None:
    inputs, compute, given = UNUSED[name]
    both, alone = (
        operator(tmp_path / "both", inputs, compute, "y s"),
        operator(tmp_path / "y", inputs, compute.rpartition(";")[0]),
    )
    found = []
    for it in (both, alone):
        own = [one.clone().requires_grad_() for one in given]
        results = it(*own)
        y = results[0] if isinstance(results, tuple) else results
        found.append(torch.autograd.grad(y.sum(), own))  # type: ignore[attr-defined]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("line", ["t / (1 + square(b))", "sin(t + b)", "sigmoid(t * b)"])
def test_positions_outside_that_are_not_chosen_have_no_gradient(line: str, tmp_path: Path) -> None:
    """Not by another operand, either, where a maximum is between the choice and the function."""
    here = "(index(M) - 1 >= 0) & (index(M) - 1 < size(K))"
    compute = f"t = take(x, index(M) - 1, K); h = maximum({line}, -2.0); y = where({here}, h * w, 0.0)"
    it = operator(tmp_path, "x = float[K]; b = float[]; w = float[M]", compute)
    own = [one.requires_grad_() for one in (torch.rand(3), torch.tensor(0.5), torch.ones(5))]
    found = torch.autograd.grad(it(*own).sum(), own)  # type: ignore[attr-defined]
    t, b = (one.detach().requires_grad_() for one in own[:2])
    formula = {"t": t, "b": b, "square": torch.square, "sin": torch.sin, "sigmoid": torch.sigmoid}
    wanted = torch.autograd.grad(eval(line, formula).sum(), (t, b))
    torch.testing.assert_close(list(found[:2]), list(wanted))


@pytest.mark.parametrize("count", [1, 5])
def test_positions_outside_of_a_softmax_of_nothing_have_no_gradient(count: int, tmp_path: Path) -> None:
    it = operator(tmp_path, "x = float[K]; j = int64[N]; i = int64[P]", "y = take(softmax(take(x, j, K), N), i, N)")
    x = torch.ones(3, requires_grad=True)
    y = it(x, torch.zeros(0, dtype=torch.int64), torch.zeros(count, dtype=torch.int64))
    assert y.isnan().all()  # type: ignore[attr-defined]
    (found,) = torch.autograd.grad(y.sum(), x)  # type: ignore[attr-defined]
    torch.testing.assert_close(found, torch.zeros(3))


@pytest.mark.parametrize(
    ("inputs", "compute", "given"),
    [
        ("x = float[M]; q = float[]; i = int64[]", "t = q * x; y = take(t, i, M)", [torch.ones(3), torch.tensor(2.0)]),
        ("x = float[M, N]; q = float[N]; i = int64[]", "t = q * x; y = sum(take(t, i, M), N)", [ONES, torch.ones(3)]),
        (
            "x = float[M]; i = int64[]",
            "h = x * rsqrt(mean(x * x, M)); y = where((i >= 0) & (i < size(M)), take(h, i, M), 0.5)",
            [torch.ones(3)],
        ),
    ],
)
def test_one_position_outside_has_no_gradient(
    inputs: str, compute: str, given: list[torch.Tensor], tmp_path: Path
) -> None:
    it = operator(tmp_path, inputs, compute)
    own = [one.clone().requires_grad_() for one in given]
    found = torch.autograd.grad(it(*own, torch.tensor(7)).sum(), own)  # type: ignore[attr-defined]
    torch.testing.assert_close(list(found), [torch.zeros_like(one) for one in own])


@pytest.mark.parametrize("line", ["norm(s, K, M)", "norm(s, K, M, p=3)", "std(s, K, M)"])
def test_norm_of_zeros_that_steps_sum(line: str, tmp_path: Path) -> None:
    """Zeros, as torch has it: whichever steps sum the squares."""
    inputs = "c = float[M, X]; a = float[N, M]; b = float[N, K, X]"
    o = "v = sum(a * b, N); o = sum(v * softmax(c, X), X); s = o * rsqrt(mean(square(o), M) + 0.1)"
    it = operator(tmp_path, inputs, f"{o}; y = {line}")
    own = [
        torch.randn(2, 4).requires_grad_(),
        torch.zeros(5, 2).requires_grad_(),
        torch.zeros(5, 3, 4).requires_grad_(),
    ]
    found = torch.autograd.grad(it(*own), own)  # type: ignore[call-overload]
    torch.testing.assert_close(list(found), [torch.zeros_like(one) for one in own])
