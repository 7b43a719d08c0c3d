"""That grids are legal whatever the sizes, and that what goes on along their third axis is computed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

if torch.cuda.is_available():
    pytest.skip("launches are watched in Triton's interpreter", allow_module_level=True)
from triton.runtime.interpreter import InterpretedFunction

from tests.harness.importing import built, runtime_module, runtime_of
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
Shapes = tuple[tuple[int, ...], ...]
MANY = 70_000_001
LARGE: list[tuple[str, Shapes, dict[str, Any]]] = [
    ("specs/rms_norm", ((2, MANY), (MANY,)), {}),
    ("specs/rms_norm", ((2, 2**31 + 5), (2**31 + 5,)), {}),
    ("specs/outer", ((300,), (MANY,)), {}),
    ("specs/outer", ((MANY,), (300,)), {}),
    ("specs/add_bias", ((3, MANY), (MANY,)), {}),
    ("specs/sum", ((1, 2**32),), {}),
    ("specs/sum", ((2**31 + 1, 9),), {}),
    ("specs/mean", ((65_537, 65_537),), {}),
    ("specs/softmax", ((2**31 + 5, 3),), {}),
    ("specs/linear", ((2**24, 64), (64, 64), (64,)), {}),
    ("specs/vector_add", ((2**36,), (2**36,)), {}),
    (
        "examples/specs/attention_bias",
        ((1, 1, 64, 16), (1, 1, 2**22, 16), (1, 1, 2**22, 16), (1, 64, 2**22)),
        {"scale": 1.0},
    ),
]


def operator(path: str, folder: Path) -> Any:
    name = path.rpartition("/")[2]
    return built(read_spec(name, (ROOT / f"{path}.toml").read_text(encoding="utf-8")), folder)


@pytest.fixture
def grids(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...]]]:
    """What is launched, which nothing computes."""
    found: list[tuple[str, tuple[int, ...]]] = []

    def watched(kernel: Any, grid: Any) -> Any:
        return lambda *_, **options: found.append((kernel.fn.__name__, grid(options) if callable(grid) else grid))

    monkeypatch.setattr(InterpretedFunction, "__getitem__", watched)
    return found


@pytest.mark.parametrize(("path", "shapes", "params"), LARGE)
def test_large(
    path: str, shapes: Shapes, params: dict[str, Any], grids: list[tuple[str, tuple[int, ...]]], tmp_path: Path
) -> None:
    package = operator(path, tmp_path)
    inputs = [torch.empty(shape, dtype=torch.bfloat16, device="meta").requires_grad_() for shape in shapes]
    y = getattr(package, path.rpartition("/")[2])(*inputs, **params)
    y.backward(torch.empty_like(y))
    assert grids
    for kernel, (first, *others) in grids:
        assert 0 < first < 2**31, kernel
        assert all(0 < size <= 65_535 for size in others), kernel


def test_many_programs_along_the_second_axis() -> None:
    launch: Any = runtime_module("launch")
    assert launch.legal((7, 65_535)) == (7, 65_535)
    assert launch.legal((7, 65_536)) == (7, 32_768, 2)


@pytest.mark.parametrize(
    ("path", "shapes", "params"),
    [
        ("specs/rms_norm", ((2, 70_001), (70_001,)), {}),
        ("specs/outer", ((3,), (70_001,)), {}),
        (
            "examples/specs/attention_bias",
            ((1, 2, 20, 16), (1, 2, 300, 16), (1, 2, 300, 16), (2, 20, 300)),
            {"scale": 0.25},
        ),
    ],
)
def test_third_axis(
    path: str, shapes: Shapes, params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients are the same where the third axis begins after two programs of the second."""
    package = operator(path, tmp_path)
    launch: Any = runtime_of(package, "launch")
    torch.manual_seed(0)
    inputs = [torch.randn(shape).requires_grad_() for shape in shapes]
    seen: list[Any] = []
    legal = launch.legal

    def found() -> tuple[torch.Tensor, ...]:
        y = getattr(package, path.rpartition("/")[2])(*inputs, **params)
        return torch.autograd.grad(y.sin().sum(), inputs)

    monkeypatch.setattr(runtime_of(package, "heuristics"), "choose_splits", lambda *_, **__: 1)
    want = found()
    monkeypatch.setattr(launch, "MOST_SECOND", 2)
    monkeypatch.setattr(launch, "legal", lambda grid: seen.append(legal(grid)) or seen[-1])
    torch.testing.assert_close(found(), want, rtol=0, atol=0)
    assert any(len(grid) == 3 for grid in seen)
