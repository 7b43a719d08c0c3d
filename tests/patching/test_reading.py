"""Every spec that is right has forms, or is none of a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from tests.patching import models
from tests.patching.test_patch import operator
from tritongen.patching.reading import operators
from tritongen.patching.run import patch
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
SPECS = [
    path for folder in ("specs", "examples/specs", "tests/specs") for path in sorted((ROOT / folder).glob("*.toml"))
]
NONE = {"recurrence", "router"}


def test_specs_have_forms() -> None:
    for path in SPECS:
        found = list(operators(read_spec(path.stem, path.read_text(encoding="utf-8"))))
        assert not (found and path.stem in NONE), path


def squares(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * x).sum((0, 2)) + y


def test_sums_over_leading_axes_are_found() -> None:
    path = ROOT / "tests" / "specs" / "sum_batch_and_axis.toml"
    model = models.Called(squares)
    call = operator(path)
    made = patch(model, "x=f64[3,5,8] y=f64[5]", [str(path)], {"sum_batch_and_axis": call})
    assert any(node.target is call for node in made.graph.graph.nodes)
    x, y = torch.randn(3, 5, 8, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    torch.testing.assert_close(made(x=x, y=y), model(x, y))
