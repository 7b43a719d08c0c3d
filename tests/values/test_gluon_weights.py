"""Weights and finite masks of keys, in the Gluon kernel of attention."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gluon_cases import BIAS, DEVICE, LOG, OF_HEADS, QKV, drawn, launching, masked_scores, some, spec_of


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


@pytest.mark.parametrize("number", some([-1e9, -1e30, torch.finfo(torch.float32).min], 2))
def test_a_finite_number_masks_whole_rows(number: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of one sequence, and the first of the other, which see no other keys: those have equal parts."""
    spec = spec_of(BIAS + LOG, f'{OF_HEADS}\nbias = "float32[..., N]"', 'o = "q"\nlse = "float32"')
    operator, names = launching(spec, tmp_path, monkeypatch)
    q, k, v = drawn((200, 64), (333, 64), (333, 64))
    bias = torch.zeros(2, 333, device=DEVICE)
    bias[0], bias[1, :70] = number, number
    o, lse = operator.attend(q, k, v, bias, scale=0.125)
    s, every_v = masked_scores(q, k, v, 0.125)
    low = torch.arange(200, device=DEVICE) < torch.tensor([[[200]], [[70]]], device=DEVICE)
    s = torch.where(low[..., None] & s.isfinite(), 0.0, s)
    s[1, :, 70:, :70] = -torch.inf
    torch.testing.assert_close(o.double(), torch.softmax(s, -1) @ every_v, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(lse.double(), torch.where(low, number, torch.logsumexp(s, -1)), rtol=1e-4, atol=1e-4)
    assert {*names} == {"attend_gluon_kernel"}
