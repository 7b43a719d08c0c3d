"""Exponentials that a gradient computes again in half precision: they add up to the sum that the forward saved.

Otherwise a probability of 1 would be 1.6 where a score of 1,000 is rounded, and what cancels would be left.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.cases.step_cases import Case
from tests.harness.importing import built
from tests.harness.oracles import DEVICE
from tritongen.spec.read import read_spec

F = torch.nn.functional
Formula = Callable[..., object]


def _exp_lse(s: torch.Tensor) -> torch.Tensor:
    return (s - torch.logsumexp(s, 1, keepdim=True)).exp()


def _graph(x: torch.Tensor, w: torch.Tensor, a: torch.Tensor, b: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    s = F.leaky_relu((x @ w.T @ a)[:, None] + (z @ w.T @ b), 0.2)
    return torch.softmax(s, 1) @ (z @ w.T)


def _both(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, e: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    s = x * w + b * e
    return torch.logsumexp(s, 0), torch.logsumexp(s, 1)


SCORES = "s = leaky_relu(sum(hs * a, N) + sum(hd * b, N), 0.2)"
# Each with the lines to save, and the largest value of the inputs.
FORMULAS: dict[str, tuple[str, str, Formula, str, str, float]] = {
    "attention_of_a_graph": (
        "x:M, K; w:N, K; a:N; b:N; z:P, K",
        f"hs = sum(x * w, K)\nhd = sum(z * w, K)\n{SCORES}\np = softmax(s, P)\ny = sum(p * hd, P)",
        _graph,
        "y",
        "",
        4,
    ),
    "of_rows_and_columns": (
        "x:M, N; w:M, N; b:M, N; e:M, N",
        "s = x * w + b * e\ny = logsumexp(s, M)\nz = logsumexp(s, N)",
        _both,
        "y z",
        "",
        30,
    ),
    "of_columns_of_normed_rows": (
        "x:M, N; w:N; b:M, N",
        "h = x * rsqrt(mean(x * x, N) + 1e-3) * w + b\ny = logsumexp(h, M)",
        lambda x, w, b: torch.logsumexp(x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-3) * w + b, 0),
        "y",
        "",
        100,
    ),
    "of_columns_saved": (
        "q:M, D; k:N, D",
        "s = sum(q * k, D)\nl = logsumexp(s, M)\ny = sum(exp(s - l) * s, N)",
        lambda q, k: ((q @ k.T - torch.logsumexp(q @ k.T, 0)).exp() * (q @ k.T)).sum(1),
        "y",
        "save = ['l']",
        16,
    ),
    "of_rows_with_nothing_saved": (
        "x:M, N; w:N",
        "r = rsqrt(mean(x * x, N) + 1e-3)\ny = x * r * w",
        lambda x, w: x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-3) * w,
        "y",
        "save = []",
        3,
    ),
    "of_a_matmul_with_nothing_saved": (
        "x:M, K; w:N, K",
        "y = gelu(sum(x * w, K))",
        lambda x, w: F.gelu(x @ w.T),
        "y",
        "save = []",
        1,
    ),
    "of_an_attention_with_nothing_saved": (
        "q:M, D; k:N, D; v:N, E",
        "s = sum(q * k, D)\no = sum(softmax(s, N) * v, N)",
        lambda q, k, v: torch.softmax(q @ k.T, 1) @ v,
        "o",
        "save = []",
        1,
    ),
    "of_vectors_saved": (
        "x:M, N; u:N; z:P, N; v:N; d:P, E",
        "s = leaky_relu(sum(x * u, N) + sum(z * v, N), 0.2)\nl = logsumexp(s, P)\np = exp(s - l)\ny = sum(p * d, P)",
        lambda x, u, z, v, d: _exp_lse(F.leaky_relu((x @ u)[:, None] + (z @ v), 0.2)) @ d,
        "y",
        "save = ['l']",
        3,
    ),
}


def _computed(function: Formula, given: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    """Results, and gradients where those of the results are random."""
    inputs = [tensor.to(dtype).requires_grad_() for tensor in given]
    results = function(*inputs)
    outputs = results if isinstance(results, tuple) else (results,)
    random = torch.Generator().manual_seed(1)
    seeds = [torch.rand(one.shape, generator=random).half().to(one) for one in outputs]
    return [one.detach().cpu().double() for one in (*outputs, *torch.autograd.grad(outputs, inputs, seeds))]


@pytest.mark.parametrize("name", FORMULAS)
def test_errors_are_like_torchs_own(name: str, tmp_path: Path) -> None:
    inputs, compute, formula, outputs, save, largest = FORMULAS[name]
    case = Case(inputs, compute, formula, outputs)
    operator = built(read_spec("steps.toml", case.text().replace("[schedule]", f"{save}\n[schedule]")), tmp_path).steps
    random = torch.Generator().manual_seed(0)
    shapes = [tensor.shape for tensor in case.tensors(torch.float16)]
    given = [(torch.rand(shape, generator=random) * 2 - 1).mul(largest).half() for shape in shapes]
    placed = [one.to(DEVICE) for one in given]
    exact, torchs = _computed(formula, given, torch.float64), _computed(formula, given, torch.float16)
    for own, other, true in zip(_computed(operator, placed, torch.float16), torchs, exact, strict=True):
        allowed = max(float((other - true).abs().max()), float(true.abs().max()) * 2e-3, 1e-6)
        torch.testing.assert_close(own, true, rtol=0, atol=3 * allowed)
