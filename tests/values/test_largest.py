"""Gradients of largest elements in half precision: they are looked for among numbers as exact as the forward had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.cases.step_cases import Case
from tests.harness.importing import built
from tests.harness.oracles import compare
from tritongen.spec.read import read_spec

F = torch.nn.functional


def _norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 0.1)


X = "x:M, N; w:N"
FORMULAS: dict[str, tuple[str, str, Callable[..., tuple[torch.Tensor, ...]]]] = {
    "beside_its_terms": (
        "x:M, N; w:N; b:M, N",
        "h = x * w + b\ny = max(h, N)",
        lambda x, w, b: (x * w + b, (x * w + b).amax(1)),
    ),
    "mapped_back": (X, "h = x * w\ny = h - min(h, N)", lambda x, w: (x * w, x * w - (x * w).amin(1, keepdim=True))),
    "of_columns": (X, "h = sin(x) * w\ny = max(h, M) * 2", lambda x, w: (x.sin() * w, (x.sin() * w).amax(0) * 2)),
    "of_columns_of_norms": (
        X,
        "h = x * rsqrt(mean(x * x, N) + 0.1) * w\ny = max(h, M)",
        lambda x, w: (_norm(x) * w, (_norm(x) * w).amax(0)),
    ),
    "of_all_of_norms": (
        X,
        "h = x * rsqrt(mean(x * x, N) + 0.1) * w\ny = min(h + w, M, N)",
        lambda x, w: (_norm(x) * w, (_norm(x) * w + w).amin()),
    ),
    "of_rows_that_are_taken": (
        "x:M, N; w:N; at:int64[M]",
        "h = x * rsqrt(mean(x * x, N) + 0.1) * w\ny = max(take(h, at, M) * 2 - 1, N)",
        lambda x, w, at: (_norm(x) * w, ((_norm(x) * w)[at] * 2 - 1).amax(1)),
    ),
    "of_a_matmul": (
        "x:M, K; w:N, K; b:N",
        "h = gelu(sum(x * w, K) + b)\ny = max(h, M)",
        lambda x, w, b: (F.gelu(x @ w.T + b), F.gelu(x @ w.T + b).amax(0)),
    ),
    "of_what_is_multiplied": (
        "x:M, N; w:N; v:P, N",
        "h = x * rsqrt(mean(x * x, N) + 0.1) * w\ny = max(h, N)\nz = sum(h * v, N) + y",
        lambda x, w, v: ((_norm(x) * w).amax(1), (_norm(x) * w) @ v.T + (_norm(x) * w).amax(1)[:, None]),
    ),
}


@pytest.mark.parametrize("count", [2, 1])
@pytest.mark.parametrize("name", FORMULAS)
def test_gradients(name: str, count: int, tmp_path: Path) -> None:
    """Of both results, and of the last alone."""
    inputs, compute, formula = FORMULAS[name]
    names = [line.split(" = ")[0] for line in compute.split("\n")]
    case = Case(inputs, compute, formula, " ".join(names[-count:]))

    def of_results(*tensors: torch.Tensor) -> object:
        return formula(*tensors) if count == 2 else formula(*tensors)[-1]

    given = case.tensors(torch.float16)
    by = [place for place, one in enumerate(given) if one.is_floating_point()]
    compare(built(case.spec(), tmp_path).steps, of_results, given, by, 1e-2)


def test_results_that_are_to_be_saved(tmp_path: Path) -> None:
    """They are saved as exact as they are computed, besides."""
    case = Case("x:M, N; w:N", "h = x * w\ny = max(h, N)", torch.amax, "h y")
    text = case.text().replace("[schedule]\n", "save = ['h', 'y']\n")
    operator = built(read_spec("steps.toml", text), tmp_path).steps
    compare(operator, lambda x, w: (x * w, (x * w).amax(1)), case.tensors(torch.float16), (0, 1), 1e-2)


def test_results_that_are_saved_are_stored_once(tmp_path: Path) -> None:
    """A step that computes what it would read of another's leaves no copy behind, which building looks for."""
    case = Case("x:B, C, D", "h = x - mean(x, B, C)\ns = any(h > 1, B)\ny = max(h, B, C)", torch.amax, "s y")

    def formula(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x - x.mean((0, 1))
        return (h > 1).any(0), h.amax((0, 1))

    compare(built(case.spec(), tmp_path).steps, formula, case.tensors(torch.float64), [0], 1e-9)
