"""Gluon kernels of attention whose heads share keys in other layouts, and whose masked probabilities are 0."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.cases.gluon import CAUSAL, DEVICE, HALF, drawn, launching, masked_scores, spec_of


@pytest.mark.parametrize("heads", ["(H=2 D)", "H, D"])
def test_positions_before_heads_that_share_keys(heads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heads are those of one group, and come before rows in what the kernel reads."""
    inputs = f'q = "T[B, M, {heads}]"\nk = "T[B, N, D]"\nv = "T[B, N, E]"'
    outputs = f'o = "q[B, M, {heads.replace("D", "E").replace("=2", "")}]"'
    operator, names = launching(spec_of(CAUSAL, inputs, outputs), tmp_path, monkeypatch)
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(size, generator=random).to(DEVICE, HALF) for size in ((2, 200, 2, 64), *((2, 130, 64),) * 2))
    o = operator.attend(q.flatten(-2) if "(" in heads else q, k, v, scale=0.125).reshape(q.shape)
    s, exact = masked_scores(q.transpose(1, 2), k[:, None], v[:, None], 0.125)
    torch.testing.assert_close(o.transpose(1, 2).double(), torch.softmax(s, -1) @ exact, rtol=3e-3, atol=3e-3)
    assert {*names} == {"attend_gluon_kernel"}


def test_probabilities_that_are_masked_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Are 0 where the spec chooses them by the mask of scores, which leaves nothing to choose in the loop."""
    compute = 'of = "index(N) <= index(M) - 30"\ns = "where(of, sum(q * k, D) * scale, -inf)"\n'
    compute += 'p = "where(of, softmax(s, N), 0.0)"\no = "sum(p * v, N)"'
    operator, names = launching(spec_of(compute), tmp_path, monkeypatch)
    q, k, v = drawn((200, 64), (130, 64), (130, 96))
    o = operator.attend(q, k, v, scale=0.125)
    mask = torch.arange(130, device=DEVICE) <= torch.arange(200, device=DEVICE)[:, None] - 30
    s = (q.double() @ k.double().mT * 0.125).masked_fill(~mask, -torch.inf)
    wanted = torch.where(mask, torch.softmax(s, -1), 0.0) @ v.double()
    torch.testing.assert_close(o.double(), wanted, rtol=3e-3, atol=3e-3)
    assert {*names} == {"attend_gluon_kernel"}
