"""Weights and finite masks of keys, in the Gluon kernel of attention."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.cases.gluon import BIAS, DEVICE, GRADIENT, LOG, OF_HEADS, QKV, drawn, launching, masked_scores, some, spec_of


@pytest.mark.parametrize("weight", ["weight", "1 / weight"])
def test_weights_of_keys(weight: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the last key, too, where a number is read as 0, and what it divides is infinite."""
    compute = f's = "sum(q * k, D) * scale"\no = "sum(softmax(s, N) * ({weight}) * v, N)"'
    operator, names = launching(spec_of(compute, f'{QKV}\nweight = "float32[..., N]"'), tmp_path, monkeypatch)
    q, k, v = drawn((200, 32), (333, 32), (333, 64))
    weights = 0.5 + torch.rand((2, 3, 333), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    exact = weights.double() if weight == "weight" else 1 / weights.double()
    wanted = torch.softmax(q.double() @ k.double().mT * 0.125, -1) @ (exact[..., None] * v.double())
    found = operator.attend(q, k, v, weights, scale=0.125)
    torch.testing.assert_close(found.double(), wanted, rtol=2e-2, atol=3e-3)
    assert names == ["attend_gluon_kernel"]


LARGE = some([-1e9, -1e30, torch.finfo(torch.float32).min], 2)
OF_KEYS = f'{OF_HEADS}\nbias = "float32[..., N]"'


def masked_by(number: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The bias of keys that masks full rows by a number, and these: all of one sequence, of the other the first."""
    bias = torch.zeros(2, 333, device=DEVICE)
    bias[0], bias[1, :70] = number, number
    return bias, torch.arange(200, device=DEVICE) < torch.tensor([[[200]], [[70]]], device=DEVICE)


def scores_of(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Scores in float64, in which keys of masked rows have equal parts."""
    s, _ = masked_scores(q, k, k, 0.125)
    hidden = s.detach().isinf() | ((bias != 0)[:, None, None, :] & ~rows[..., None])
    return torch.where(rows[..., None], 0.0, s).masked_fill(hidden, -torch.inf)


@pytest.mark.parametrize("number", LARGE)
def test_a_finite_number_masks_whole_rows(number: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator, names = launching(spec_of(BIAS + LOG, OF_KEYS, 'o = "q"\nlse = "float32"'), tmp_path, monkeypatch)
    q, k, v = drawn((200, 64), (333, 64), (333, 64))
    bias, rows = masked_by(number)
    s = scores_of(q, k, bias, rows)
    o, lse = operator.attend(q, k, v, bias, scale=0.125)
    torch.testing.assert_close(o.double(), torch.softmax(s, -1) @ v.double(), rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(lse.double(), torch.where(rows, number, torch.logsumexp(s, -1)), rtol=1e-4, atol=1e-4)
    assert names == ["attend_gluon_kernel"]


@pytest.mark.parametrize("number", LARGE)
def test_rows_that_a_finite_number_masks_have_no_part_in_gradients(
    number: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, names = launching(spec_of(BIAS, OF_KEYS, more=GRADIENT), tmp_path, monkeypatch)
    q, k, v = (one.requires_grad_() for one in drawn((200, 96), (333, 96), (333, 96)))
    bias, rows = masked_by(number)
    o = operator.attend(q, k, v, bias, scale=0.125)
    do = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).to(o)
    found = torch.autograd.grad(o, (q, k, v), do)
    wide = [one.detach().double().requires_grad_() for one in (q, k, v)]
    wanted = torch.softmax(scores_of(wide[0], wide[1], bias, rows), -1) @ wide[2]
    exact = torch.autograd.grad(wanted, wide, do.double() * ~rows[..., None])
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=2e-2)
    assert all(name.endswith("_gluon_kernel") for name in names)
