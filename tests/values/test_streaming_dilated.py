"""Attention by dilated masks, whose remainders are compared in each block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.cases.streaming_cases import GROUPED, MEAN, QKV, Case
from tests.cases.streaming_formulas import full
from tests.harness.importing import built, runtime_of


@dataclass(frozen=True)
class Form:
    """A condition on `rb` and `cb`, the numbers of blocks of `block` rows and columns, and what torch computes."""

    condition: str
    torch: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
    block: int
    params: str = ""

    def case(self, inputs: str = QKV) -> Case:
        block = "block" if self.params else str(self.block)
        condition = self.condition.replace("rb", f"index(M) // {block}").replace("cb", f"index(N) // {block}")
        return Case(inputs, f"s = where({condition}, sum(q * k, D) * 0.25, -inf){MEAN}", full, params=self.params)

    def mask(self, n_rows: int, n_cols: int) -> torch.Tensor:
        return self.torch(torch.arange(n_rows)[:, None], torch.arange(n_cols)[None, :], self.block)


def dilated(m: torch.Tensor, n: torch.Tensor, block: int) -> torch.Tensor:
    return (m // block >= n // block) & ((m // block - n // block) % 2 == 0)


def of_params(block: int) -> str:
    return f"block = {{ default = {block}, min = 1 }}"


DILATED = "(rb >= cb) & ((rb - cb) % 2 == 0)"
FORMS = {
    **{f"block_{block}": Form(DILATED, dilated, block) for block in (16, 24, 64)},
    **{f"param_{block}": Form(DILATED, dilated, block, of_params(block)) for block in (16, 24, 40)},
    "rests": Form("rb % 3 == cb % 3", lambda m, n, b: m // b % 3 == n // b % 3, 16),
    "columns": Form("cb % 2 == 0", lambda m, n, b: n // b % 2 + 0 * m == 0, 32),
    "several": Form("(cb - rb) % 5 < 2", lambda m, n, b: (n // b - m // b) % 5 < 2, 16),
    "at_the_end": Form("(rb - cb) % 4 >= 2", lambda m, n, b: (m // b - n // b) % 4 >= 2, 16),
    "by_distance": Form("(index(M) - index(N)) // 64 % 2 == 0", lambda m, n, _: (m - n) // 64 % 2 == 0, 64),
    "of_distance": Form("(index(M) - index(N)) % 96 < 20", lambda m, n, _: (m - n) % 96 < 20, 96),
    "window": Form(
        "(rb >= cb) & (index(M) - index(N) < 70) & ((rb - cb) % 2 == 0)",
        lambda m, n, b: dilated(m, n, b) & (m - n < 70),
        16,
    ),
}


def compare(operator: object, form: Form, lengths: tuple[int, int], **given: int) -> None:
    """Values and gradients, in float64, of rows that have keys."""
    random = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, 2, length, 16, generator=random, dtype=torch.float64, requires_grad=True)
        for length in (lengths[0], lengths[1], lengths[1])
    )
    mask = form.mask(*lengths)
    some = mask.any(-1)
    assert some.any()
    wanted = torch.softmax((q @ k.mT * 0.25).masked_fill(~mask, -torch.inf)[:, :, some], -1) @ v
    found = operator.attend(q, k, v, **given)
    seed = torch.randn(wanted.shape, generator=random, dtype=torch.float64)
    pairs = zip(
        (found[:, :, some], *torch.autograd.grad(found[:, :, some], (q, k, v), seed)),
        (wanted, *torch.autograd.grad(wanted, (q, k, v), seed)),
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FORMS)
def test_values(name: str, tmp_path: Path, small: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lengths that blocks do not divide, also where programs split the blocks among themselves."""
    form = FORMS[name]
    operator = built(form.case().spec(), tmp_path)
    small(operator)
    for lengths in ((150, 210), (201, 133), (5, 3)):
        if form.mask(*lengths).any():
            compare(operator, form, lengths)
    monkeypatch.setattr(runtime_of(operator, "streaming_heuristics"), "choose_stream_splits", lambda *_: 3)
    compare(operator, form, (150, 210))


def test_heads_of_a_group(tmp_path: Path, small: Callable[..., None]) -> None:
    """Which dk and dv sum in turn, and whose rows fill a tile together where they are few."""
    form = FORMS["block_16"]
    case = form.case(GROUPED)
    operator = built(case.spec(), tmp_path)
    small(operator)
    for n_rows in (3, 70):
        q = torch.randn(1, 4, n_rows, 16, dtype=torch.float64, requires_grad=True)
        k, v = (torch.randn(1, 2, 70, 16, dtype=torch.float64, requires_grad=True) for _ in range(2))
        mask = form.mask(n_rows, 70)
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=0.25, enable_gqa=True)
        found, seed = operator.attend(q, k, v), torch.randn_like(q)
        torch.testing.assert_close(found, wanted)
        gradients = (torch.autograd.grad(one, (q, k, v), seed) for one in (found, wanted))
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("block", [1, 5, 16, 28, 32, 2**31 - 16, 2**40, 2**63 - 1])
def test_blocks_of_any_length(block: int, tmp_path: Path, small: Callable[..., None]) -> None:
    """That a call tells: shorter than a tile, of two that tiles do not divide, and longer than any axis."""
    form = Form(DILATED, dilated, block, of_params(16))
    operator = built(form.case().spec(), tmp_path)
    small(operator)
    compare(operator, form, (70, 90), block=block)
