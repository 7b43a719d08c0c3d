"""Weights of keys besides those of the softmax, in the Gluon kernel of attention."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gluon_cases import DEVICE, QKV, drawn, launching, spec_of


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
