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


PADDED = """\
[op]
name = "padded"
summary = "Products with an element more in front."
[inputs]
x = "float[..., P]"
y = "float[..., Q]"
[compute]
z = "exp(take(x, index(Q) - 1, P{fill})) * y"
[outputs]
z = "x"
"""


def padded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (1, 0)).exp() * y


@pytest.mark.parametrize(("fill", "is_found"), [("", False), (", fill=1.0", False), (", fill=0.0", True)])
def test_what_is_taken_from_outside_is_compared(fill: str, is_found: bool, tmp_path: Path) -> None:
    path = tmp_path / "padded.toml"
    path.write_text(PADDED.format(fill=fill), encoding="utf-8")
    call = operator(path)
    made = patch(models.Called(padded), "x=f64[3,8] y=f64[3,9]", [str(path)], {"padded": call})
    assert any(node.target is call for node in made.graph.graph.nodes) == is_found


SPREAD = """\
[op]
name = "spread"
summary = "A variance."
[inputs]
x = "float[..., N]"
[compute]
v = "exp({variance})"
[outputs]
v = "x"
"""


@pytest.mark.parametrize("variance", ["var(x, N)", "var(x, N, correction=1)", "var(x, N, correction=0)"])
def test_options_are_as_they_are_where_they_are_left_out(variance: str, tmp_path: Path) -> None:
    path = tmp_path / "spread.toml"
    path.write_text(SPREAD.format(variance=variance), encoding="utf-8")
    call = operator(path)
    made = patch(models.Called(lambda x, y: x.var(-1).exp() + y), "x=f64[3,8] y=f64[3]", [str(path)], {"spread": call})
    assert any(node.target is call for node in made.graph.graph.nodes) == ("=0" not in variance)
