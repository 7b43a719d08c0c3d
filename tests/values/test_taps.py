"""Sums for the taps of a window, as gradients of the weights of convolutions are, beside torch's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built, runtime_of
from tritongen.operator.compile import backward_of, forward_of, generate
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

conv1d, conv2d, pad = torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.pad

IMAGE = """\
i = "index(P) + index(R) - 1"
j = "index(Q) + index(S) - 1"
inside = "(i >= 0) & (i < size(P)) & (j >= 0) & (j < size(Q))"
y = "sum(where(inside, take(take(x, i, P), j, Q), 0) * w, R, S)"
"""
CAUSAL = """\
at = "index(S) + index(K) - 3"
y = "sum(where(at >= 0, take(x, at, S), 0) * w, K)"
"""


def _image(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return conv2d(x, w[:, None], padding=1, groups=len(w))


def _causal(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return conv1d(pad(x, (3, 0)), w[:, None], groups=len(w))


# Inputs, of which w has the taps, lines, shapes of inputs, and what torch computes of them.
CASES: dict[str, tuple[str, str, list[tuple[int, ...]], Callable[..., torch.Tensor]]] = {
    "images": ('x = "T[B, C, P, Q]"\nw = "T[C, R=3, S=3]"', IMAGE, [(3, 5, 9, 37), (5, 3, 3)], _image),
    "images_of_channels_last": (
        'x = "T[B, P, Q, C]"\nw = "T[C, R=3, S=3]"',
        IMAGE,
        [(3, 7, 6, 70), (70, 3, 3)],
        lambda x, w: _image(x.movedim(3, 1), w).movedim(1, 3),
    ),
    "large_windows": (
        'x = "T[B, C, P, Q]"\nw = "T[C, R=5, S=5]"',
        IMAGE.replace(" - 1", " - 2"),
        [(2, 3, 9, 13), (3, 5, 5)],
        lambda x, w: conv2d(x, w[:, None], padding=2, groups=3),
    ),
    "one_window_for_all_channels": (
        'x = "T[B, C, P, Q]"\nw = "T[R=3, S=3]"',
        IMAGE,
        [(2, 3, 9, 21), (3, 3)],
        lambda x, w: _image(x, w.expand(3, 3, 3)),
    ),
    "rows_of_two_axes": (
        'x = "T[B, G, C, P, Q]"\nscale = "T[B]"\nw = "T[G, C, R=3, S=3]"',
        IMAGE.replace(" * w,", " * w * scale,"),
        [(2, 3, 2, 4, 11), (2,), (3, 2, 3, 3)],
        lambda x, scale, w: _image((x * scale[:, None, None, None, None]).flatten(1, 2), w.flatten(0, 1)).view_as(x),
    ),
    "sequences": (
        'x = "T[B, S, C]"\nw = "T[C, K=4]"',
        CAUSAL,
        [(2, 45, 70), (70, 4)],
        lambda x, w: _causal(x.mT, w).mT,
    ),
    "of_any_leading_axes": (
        'x = "T[..., C, S]"\nw = "T[C, K=4]"',
        CAUSAL,
        [(2, 3, 5, 19), (5, 4)],
        lambda x, w: _causal(x.flatten(0, 1), w).view_as(x),
    ),
    "without_an_outer_axis": ('x = "T[C, S]"\nw = "T[C, K=4]"', CAUSAL, [(3, 600), (3, 4)], _causal),
    "along_an_axis_that_is_not_the_last": (
        'x = "T[B, C, S, Q]"\nw = "T[C, K=4]"',
        CAUSAL,
        [(2, 3, 9, 20), (3, 4)],
        lambda x, w: _causal(x.movedim(3, 1).flatten(0, 1), w).unflatten(0, (2, 20)).movedim(1, 3),
    ),
    "dilated_and_biased": (
        'x = "T[B, C, S]"\nw = "T[C, K=3]"\nb = "T[C] = 0"',
        'at = "index(S) + 2 * index(K) - 4"\ny = "silu(sum(where(at >= 0, take(x, at, S), 0) * w, K) + b)"',
        [(2, 3, 29), (3, 3), (3,)],
        lambda x, w, b: torch.nn.functional.silu(conv1d(pad(x, (4, 0)), w[:, None], b, dilation=2, groups=3)),
    ),
    "past_the_end": (  # where NaN is read
        'x = "T[B, C, S]"\nw = "T[C, K=2]"',
        'y = "sum(take(x, index(S) + index(K), S) * w, K)"',
        [(2, 3, 9), (3, 2)],
        lambda x, w: conv1d(pad(x, (0, 1), value=torch.nan), w[:, None], groups=3),
    ),
}


def _spec(inputs: str, lines: str, more: str = "") -> Spec:
    text = f'[op]\nname = "taps"\nsummary = "Taps."\n[types]\nT = "float"\n[inputs]\n{inputs}\n[compute]\n{lines}\n'
    return read_spec("taps.toml", f'{text}[outputs]\ny = "T"\n[grad]\nwrt = ["x", "w"]\n{more}')


def _titles(spec: Spec) -> list[str]:
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    return [step.family.title for step in backward.plan.steps]


@pytest.mark.parametrize("parts", [0, 1, 2])  # among how many programs axes are divided; 0 for as many as there may be
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, lines, shapes, formula = CASES[name]
    spec = _spec(inputs, lines)
    assert "sums for taps" in _titles(spec)
    operator = built(spec, tmp_path)
    if parts:
        monkeypatch.setattr(
            runtime_of(operator, "heuristics"),
            "choose_tap_splits",
            lambda rows, cols, outer, *_: (parts, min(parts, outer)),
        )
    random = torch.Generator().manual_seed(0)
    exact = [torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes]
    order = [line.partition(" ")[0] for line in inputs.splitlines()].index("w")
    leaf = exact[order].clone().requires_grad_()
    y = formula(*exact[:order], leaf, *exact[order + 1 :])
    seed = torch.randn(y.shape, generator=random, dtype=torch.float64)
    (wanted,) = torch.autograd.grad(y, leaf, seed)
    apart = [one.repeat_interleave(2, -1)[..., ::2] for one in exact]  # Columns of which neighbours lie apart.
    single = [one.float() for one in exact]
    for given in (exact, apart, single):
        given[order] = w = given[order].detach().requires_grad_()
        (found,) = torch.autograd.grad(operator.taps(*given), w, seed.to(w.dtype))
        accuracy = {"rtol": 1e-4, "atol": 1e-4} if w.dtype == torch.float32 else {}
        torch.testing.assert_close(found, wanted.to(w.dtype), equal_nan=True, **accuracy)


@pytest.mark.parametrize("register", ["custom_op", "triton_op"])
def test_registered(register: str, tmp_path: Path) -> None:
    inputs, lines, (shape, taps), formula = CASES["images"]
    registered = f'[torch]\nregister = "{register}"\nnamespace = "taps_{tmp_path.name}"\n'
    operator = built(_spec(inputs, lines, registered), tmp_path)
    x, w = torch.randn(shape), torch.randn(taps, requires_grad=True)
    (found,) = torch.autograd.grad(operator.taps(x, w).square().sum(), w)
    wide = w.detach().double().requires_grad_()
    (wanted,) = torch.autograd.grad(formula(x.double(), wide).square().sum(), wide)
    torch.testing.assert_close(found, wanted.float(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape", [(0, 5, 9, 3), (3, 0, 9, 3), (3, 5, 0, 3)])
def test_nothing_to_sum(shape: tuple[int, ...], tmp_path: Path) -> None:
    inputs, lines, *_ = CASES["images"]
    operator = built(_spec(inputs, lines), tmp_path)
    w = torch.randn(shape[1], 3, 3, requires_grad=True)
    operator.taps(torch.randn(shape), w).sum().backward()
    assert w.grad is not None
    torch.testing.assert_close(w.grad, torch.zeros_like(w))


def test_each_element_is_read_once() -> None:
    inputs, lines, *_ = CASES["images"]
    text = generate(_spec(inputs, lines))["kernels.py"]
    kernel = text[text.index("def taps_backward_dw") :]
    assert kernel.index("i_p = cols // size_q") < kernel.index("for i_b in range") < kernel.index("dy = tl.load")
    assert kernel.index("dy = tl.load") < kernel.index("for i_r in tl.static_range(3)")
    assert "tl.where" not in kernel  # What is masked is 0.


@pytest.mark.parametrize(
    ("inputs", "lines"),
    [
        ('x = "T[B, S, C]"\nw = "T[K=4, C]"', CAUSAL),  # whose rows are not in the order of the weights
        ('x = "T[B, S, C]"\nw = "T[C, K=40]"', CAUSAL),
        ('x = "T[B, S, C]"\nw = "T[C, K]"', CAUSAL),
        ('x = "T[B, S, C]"\nw = "T[C, K=4]"\nm = "T[S, K=4]"', CAUSAL.replace(" * w", " * w * m")),
    ],
)
def test_what_is_summed_by_rows(inputs: str, lines: str) -> None:
    assert "sums for taps" not in _titles(_spec(inputs, lines))
