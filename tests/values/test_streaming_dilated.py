"""Attention by dilated masks: of each period of what streams a tile meets some blocks, and skips the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from tests.cases.paged_forms import QKV as IN_PAGES
from tests.cases.paged_forms import Form as InPages
from tests.cases.streaming_cases import GROUPED, MEAN, QKV, Case
from tests.cases.streaming_formulas import full
from tests.harness.importing import built, module_at, on_device, runtime_of, written
from tritongen.operator.compile import generate


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


@pytest.mark.parametrize("n_splits", [1, 3])
@pytest.mark.parametrize("name", ["block_16", "block_64", "param_16"])
def test_other_blocks_are_skipped(name: str, n_splits: int, tmp_path: Path, small: Callable[..., None]) -> None:
    """Forward and backward: those that are an odd number of blocks away are never multiplied."""
    form = FORMS[name]
    operator = built(form.case().spec(), tmp_path)
    small(operator, n_splits)
    tensors = torch.randn(4, 1, 2, 4 * form.block + 5, 16, dtype=torch.float64)
    q, k, v, seed = tensors
    leaves = [one.clone().requires_grad_() for one in (q, k, v)]
    mask = form.mask(q.shape[-2], q.shape[-2])
    o = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=mask, scale=0.25)
    wanted = o, *torch.autograd.grad(o, leaves, seed)
    of_block = torch.arange(q.shape[-2]) // form.block % 2
    for rest in range(2):
        others = (of_block != rest)[:, None]
        leaves = [one.masked_fill(others, torch.nan).requires_grad_() for one in (q, k, v)]
        o = operator.attend(*leaves)
        found = o, *torch.autograd.grad(o, leaves, seed.masked_fill(others, torch.nan))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one[:, :, of_block == rest], other[:, :, of_block == rest], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["block_16", "param_16", "block_64", "rests", "at_the_end", "several"])
def test_blocks_that_are_needed_as_a_whole_compare_nothing(
    name: str, tmp_path: Path, small: Callable[..., None]
) -> None:
    """Of blocks of the mask that kernels' blocks divide that is each which is needed: what is compared is halved."""
    form = FORMS[name]
    home = written(form.case().spec(), tmp_path)
    lines = (home / "kernels.py").read_text(encoding="utf-8").splitlines()
    masks = [place for place, line in enumerate(lines) if "tl.where(" in line and "remainder_int(" in line]
    assert len(masks) >= 5
    for place in masks:
        assert lines[place].startswith(" " * 16)  # under an `if`
        lines[place] += " * 0.5"
    (home / "kernels.py").write_text("\n".join(lines), encoding="utf-8")
    operator = module_at(home)
    operator.attend = on_device(operator.attend)
    small(operator)
    compare(operator, form, (6 * form.block, 6 * form.block))


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


def test_periods_that_no_block_divides_are_not_counted() -> None:
    """Each block has some positions of a period of 2; of 32 they leave one of two."""
    for period, is_counted in ((2, False), (32, True)):
        form = Form(f"(index(M) - index(N)) % {period} == 0", dilated, period)
        assert ("count_blocks(" in generate(form.case().spec())["kernels.py"]) == is_counted


def test_names_of_a_spec_stand(tmp_path: Path) -> None:
    """What kernels count blocks by has other names where inputs have theirs."""
    text = FORMS["block_16"].case("q:T[B, H, M, D]; k:T[B, H, N, D]; v:T[B, H, N, E]; count:T[H]; cycle:T[H]")
    spec = replace(text, compute=text.compute.replace("0.25", "0.25 * count * cycle"), by="").spec()
    operator = built(spec, tmp_path)
    q, k, v = torch.randn(3, 1, 2, 40, 16)
    one = torch.ones(2)
    mask = FORMS["block_16"].mask(40, 40)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.25)
    torch.testing.assert_close(operator.attend(q, k, v, one, one), wanted)


def test_where_blocks_are_not_counted() -> None:
    """In pages; nor in Gluon where document indices tell the bounds, which a kernel finds before."""
    case = FORMS["block_64"].case()
    files = generate(case.spec())
    assert "count_blocks(" in files["kernels.py"]
    assert "count_blocks(" in files["gluon_kernels.py"]
    inputs, compute = (
        f"{QKV}; of_q:int32[B, M]; of_k:int32[B, N]",
        case.compute.replace("where(", "where((of_q == of_k) & "),
    )
    files = generate(replace(case, inputs=inputs, compute=compute).spec())
    assert "first_met" in files["kernels.py"]
    assert "count_blocks(" in files["kernels.py"]
    assert "gluon_kernels.py" not in files
    scores = "where(index(J, S) // 16 % 2 == 0, sum(q * take(k, page, P), D) * 0.25, -inf)"
    compute = f"s = {scores}\no = sum(softmax(s, J, S) * take(v, page, P), J, S)"
    text = generate(InPages(IN_PAGES, compute, full).spec())["kernels.py"]
    assert "page_at" in text
    assert "count_blocks(" not in text
