"""That grids are legal whatever the sizes, and that what goes on along their third axis is computed once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
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
# One of each family, with gradients: x and other inputs, and their math.
MATH: dict[str, tuple[str, str]] = {
    "elementwise": ("x: float[M, N]; w: float[N]", "gelu(x + w)"),
    "rows": ("x: float[M, N]; w: float[N]", "x * rsqrt(mean(x * x, N) + 1e-5) * w"),
    "columns": ("x: float[M, N]; w: float[N]", "x * rsqrt(mean(x * x, M) + 1e-5) * w"),
    "windows": ("x: float[B, (P K)]; w: float[P]", "mean(x, K) * w"),
    "scan": ("x: float[M, N]; w: float[N]", "cumsum(x * w, N)"),
    "taps": ("x: float[B, C, N]; w: float[C, K=3]", "sum(take(x, index(N) - index(K), N) * w, K)"),
    "gather": ("x: float[V, D]; i: int64[T]", "take(x, i, V)"),
    "matmul": ("x: float[B, M, K]; w: float[N, K]", "gelu(sum(x * w, K))"),
    "stream": (
        "x: float[B, M, D=16]; w: float[B, N, D=16]; b: float[M, N]",
        "sum(softmax(sum(x * w, D) + b, N) * w, N)",
    ),
}
MEMORY = 2**35  # elements of the longest tensor


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


def lengths_of(axes: list[str], shapes: list[list[str]], fixed: dict[str, int]) -> Iterator[dict[str, int]]:
    """Each axis and each pair of axes as long as memory allows, even and odd."""
    for some, odd in itertools.product([*itertools.combinations(axes, 1), *itertools.combinations(axes, 2)], (0, 5)):
        for power in range(35, 0, -1):
            lengths = {axis: 2 ** (power // len(some)) + odd if axis in some else 3 for axis in axes} | fixed
            if max(math.prod(lengths[axis] for axis in shape) for shape in shapes) <= MEMORY:
                break
        yield lengths


@pytest.mark.parametrize("name", MATH)
def test_any_axis_may_be_long(name: str, grids: list[tuple[str, tuple[int, ...]]], tmp_path: Path) -> None:
    entries = [entry.split(": ") for entry in MATH[name][0].split("; ")]
    inputs = "".join(f'{own} = "{declared}"\n' for own, declared in entries)
    text = f'[op]\nname = "it"\nsummary = "It."\n[inputs]\n{inputs}[compute]\ny = "{MATH[name][1]}"\n'
    wrt = [own for own, declared in entries if declared.startswith("float")]
    spec = read_spec("it.toml", text + f'[outputs]\ny = "auto"\n[grad]\nwrt = {wrt}\n'.replace("'", '"'))
    it = built(spec, tmp_path).it
    terms = [[(one.names, one.sizes) for one in tensor.type.shape] for tensor in spec.inputs]
    pairs = [(axis, size) for shape in terms for names, sizes in shape for axis, size in zip(names, sizes, strict=True)]
    fixed = {axis: size for axis, size in pairs if size is not None}
    axes = [axis for axis in dict(pairs) if axis not in fixed]
    for lengths in lengths_of(axes, [[axis for names, _ in shape for axis in names] for shape in terms], fixed):
        shapes = [[math.prod(lengths[axis] for axis in names) for names, _ in shape] for shape in terms]
        dtypes = [torch.bfloat16 if tensor.name in wrt else torch.int64 for tensor in spec.inputs]
        given = [torch.empty(shape, dtype=one, device="meta") for shape, one in zip(shapes, dtypes, strict=True)]
        y = it(*(one.requires_grad_(one.is_floating_point()) for one in given))
        if y.numel() <= MEMORY:
            y.backward(torch.empty_like(y))
        else:
            grids.clear()
        for kernel, (first, *others) in grids:
            assert 0 < first < 2**31, (kernel, lengths)
            assert all(0 < size <= 65_535 for size in others), (kernel, lengths)


def test_many_programs_along_the_second_axis() -> None:
    launch: Any = runtime_module("launch")
    assert launch.legal((7, 65_535)) == (7, 65_535)
    assert launch.legal((7, 65_536)) == (7, 32_768, 2)


@pytest.mark.sampled(3)
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
