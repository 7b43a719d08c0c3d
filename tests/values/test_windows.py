"""Reductions over short axes of fixed lengths, which elementwise kernels go through one by one, beside torch's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tritongen.operator.compile import forward_of, generate
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

# Inputs and lines, shapes of tensors, and what torch computes of them.
CASES: dict[str, tuple[str, str, list[tuple[int, ...]], Callable[..., torch.Tensor]]] = {
    "weighted": (
        'x = "T[B, H=3, N]"\nw = "T[H=3]"',
        'h = "x * w"\ny = "sum(h, H)"',
        [(5, 3, 37), (3,)],
        lambda x, w: (x * w[:, None]).sum(1),
    ),
    "of_two_reductions": (
        'x = "T[B, (M R=2), (N S=2)]"\nb = "T[N]"',
        'm = "max(x, R, S)"\nh = "b * 2"\ny = "m * mean(x - h, R, S) + b"',
        [(3, 10, 38), (19,)],
        lambda x, b: x.unflatten(1, (5, 2)).unflatten(3, (19, 2)).amax((2, 4)) * ((_mean(x)) - b * 2) + b,
    ),
    "shared": (
        'x = "T[B, (M R=2), (N S=3)]"',
        'y = "mean(x, R, S)"',
        [(3, 10, 57)],
        lambda x: x.unflatten(1, (5, 2)).unflatten(3, (19, 3)).mean((2, 4)),
    ),
    "depthwise_convolution": (
        'x = "T[B, S, C]"\nw = "T[C, K=4]"',
        'at = "index(S) + index(K) - 3"\ny = "sum(where(at >= 0, take(x, at, S), 0) * w, K)"',
        [(2, 19, 37), (37, 4)],
        lambda x, w: torch.nn.functional.conv1d(torch.nn.functional.pad(x.mT, (3, 0)), w[:, None], groups=len(w)).mT,
    ),
    "depthwise_convolution_of_images": (
        'x = "T[B, C, H, W]"\nw = "T[C, R=3, S=3]"',
        'i = "index(H) + index(R) - 1"\nj = "index(W) + index(S) - 1"\n'
        'inside = "(i >= 0) & (i < size(H)) & (j >= 0) & (j < size(W))"\n'
        'y = "sum(where(inside, take(take(x, i, H), j, W), 0) * w, R, S)"',
        [(2, 3, 9, 21), (3, 3, 3)],
        lambda x, w: torch.nn.functional.conv2d(x, w[:, None], padding=1, groups=3),
    ),
    "padded_with_ones": (
        'x = "T[B, S, C]"\nw = "T[C, K=4]"',
        'at = "index(S) + index(K) - 3"\ny = "sum(where(at >= 0, take(x, at, S), 1) * w, K)"',
        [(2, 19, 37), (37, 4)],
        lambda x, w: _shifted(torch.nn.functional.pad(x, (0, 0, 3, 0), value=1.0), w),
    ),
    "past_the_end": (
        'x = "T[B, S, C]"\nw = "T[C, K=4]"',
        'at = "index(S) + index(K) - 2"\ny = "sum(where(at >= 0, take(x, at, S), 0) * w, K)"',
        [(2, 19, 37), (37, 4)],
        lambda x, w: _shifted(torch.nn.functional.pad(_padded(x, 2), (0, 0, 0, 1), value=torch.nan), w),
    ),
    "in_a_line": ('x = "T[N, R=4]"', 'y = "prod(x, R)"', [(130, 4)], lambda x: x.prod(1)),
    "mapped_back": (
        'x = "T[B, (M R=2), (N S=3)]"\nb = "T[N]"',
        'h = "x * b"\nm = "mean(h * h, R, S) + 1"\ny = "(h - x) / m + b"',
        [(3, 10, 57), (19,)],
        lambda x, b: _mapped(x.unflatten(1, (5, 2)).unflatten(3, (19, 3)), b[:, None]),
    ),
    "without_the_axis": (
        'x = "T[M, N]"\nw = "T[K=5, N]"',
        'y = "x * sum(w * w, K)"',
        [(7, 33), (5, 33)],
        lambda x, w: x * (w * w).sum(0),
    ),
}


def _padded(x: torch.Tensor, before: int) -> torch.Tensor:
    return torch.nn.functional.pad(x, (0, 0, before, 0))


def _shifted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Sums of the taps of w [C, K] along the middle axis of x, which is padded."""
    return (x.unfold(1, w.shape[1], 1) * w).sum(-1)


def _mapped(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    h = x * b
    y = (h - x) / (h.square().mean((2, 4), keepdim=True) + 1) + b
    return y.flatten(3).flatten(1, 2)


def _mean(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.avg_pool2d(x[None], 2)[0]


def _spec(inputs: str, lines: str) -> Spec:
    wrt = ", ".join(f'"{line.partition(" ")[0]}"' for line in inputs.splitlines())
    head = '[op]\nname = "windows"\nsummary = "Windows."\n[types]\nT = "float"\n'
    text = f'{head}[inputs]\n{inputs}\n[compute]\n{lines}\n[outputs]\ny = "auto"\n[grad]\nwrt = [{wrt}]\n'
    return read_spec("windows.toml", text)


def _title(inputs: str, lines: str) -> str:
    return forward_of(_spec(inputs, lines)).family.title


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, tmp_path: Path) -> None:
    inputs, lines, shapes, formula = CASES[name]
    assert _title(inputs, lines) == "windowed"
    function = built(_spec(inputs, lines), tmp_path).windows
    random = torch.Generator().manual_seed(0)
    exact = [torch.randn(shape, generator=random, dtype=torch.float64).requires_grad_() for shape in shapes]
    # Columns apart, and rows that are not whole multiples of them.
    leaves = [one.detach().repeat_interleave(2, -1)[..., ::2].requires_grad_() for one in exact]
    want, got = formula(*exact), function(*leaves)
    torch.testing.assert_close(got, want, equal_nan=True)
    seed = torch.randn(want.shape, generator=random, dtype=torch.float64)
    wanted = torch.autograd.grad(want, exact, seed)
    torch.testing.assert_close(torch.autograd.grad(got, leaves, seed), wanted, equal_nan=True)


@pytest.mark.parametrize("line", ["mean(x, R, S)", "max(x, R, S)"])
def test_gradients_of_pools_go_through_the_window(line: str) -> None:
    kernels = generate(_spec('x = "T[B, (M R=2), (N S=3)]"', f'y = "{line}"'))["kernels.py"]
    backward = kernels[kernels.index("def windows_backward") :]
    assert "i_n = cols // 3" in backward  # Columns are elements next to one another, each of which has its window,
    assert "for i_r in tl.static_range(2):" in backward  # and those above one another share it.
    assert "size_r" not in backward  # Lengths are literals.


def test_nan_is_the_largest(tmp_path: Path) -> None:
    function = built(_spec('x = "T[M, N, R=3]"', 'y = "max(x, R)"'), tmp_path).windows
    x = torch.randn(3, 40, 3)
    x[1, 7, 2] = torch.nan
    torch.testing.assert_close(function(x), x.amax(-1), equal_nan=True)


@pytest.mark.parametrize(
    ("inputs", "line"),
    [
        ('x = "T[M, N, R=4]"', 'y = "var(x, R)"'),
        ('x = "T[M, N, R=32]"', 'y = "sum(x, R)"'),
        ('x = "T[M, N, R=4]"', 'y = "x - mean(x, R)"'),
        ('x = "T[B, M, R=2, N, S=3]"', 'y = "x - mean(x, R, S)"'),
        ('x = "T[B, (M R=2), (N S=3)]"\nw = "T[R, S]"', 'y = "x - mean(x * w, R, S)"'),
        ('x = "T[M, (A R=2), (N S=2)]"', 'm = "max(x, R, S)"\ny = "sum(exp(x - m), R, S)"'),
        ('x = "T[M, N, R=4]"', 'y = "sum(exp(x - max(x, R)), R)"'),
        ('x = "T[..., R=4]"', 'y = "sum(x, R)"'),
    ],
)
def test_what_is_reduced_by_rows(inputs: str, line: str) -> None:
    assert _title(inputs, line) == "row-wise"
