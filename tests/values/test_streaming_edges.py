"""Attention of nothing, and rows that are masked as a whole, beside the spec's own math in torch in float64."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch
from importing import built, module_at, written
from oracles import compare
from streaming_cases import CASES, CAUSAL, GROUPED, MEAN, QKV, Case
from streaming_formulas import SIZES

from tritongen.operator.compile import forward_of
from tritongen.spec.types import Spec
from tritongen.testing.oracle import signature, torch_lines


def own_math(spec: Spec) -> Callable[..., Any]:
    """What emitted tests of a spec without a reference compare with."""
    op = forward_of(spec).op
    lines = (f"def math({signature(op)}):", *torch_lines(spec, op))
    names: dict[str, Any] = {"torch": torch}
    exec("\n    ".join(lines), names)
    found: Callable[..., Any] = names["math"]
    return found


OF_NOTHING = (
    "full causal window alibi documents lengths boolean_mask gradient_by_a_scale_alone gradient_by_the_bias "
    "heads_that_share_keys few_rows few_rows_of_heads_of_their_own probabilities_by_lse exp_of_log_softmax lse_beside "
    "mean_and_lse_beside two_means gate sink_as_gate weight_and_residual rows_without_keys_are_zero linear "
    "linear_with_a_divisor"
).split()


@pytest.mark.parametrize("name", OF_NOTHING)
def test_no_keys(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A softmax over nothing is nothing, and its sum 0, whatever divides it; lse is minus infinity."""
    monkeypatch.setitem(SIZES, "N", 0)
    spec = CASES[name].spec()
    given = CASES[name].tensors(torch.float64)
    compare(built(spec, tmp_path).attend, own_math(spec), given, CASES[name].places(), 1e-9)


def test_no_keys_in_pages(tmp_path: Path) -> None:
    inputs = "q:T[B, G, M, D]; k:T[P, S, G, D]; v:T[P, S, G, E]; page:int32[B, J]"
    lines = "s = sum(q * take(k, page, P), D)\no = sum(softmax(s, J, S) * take(v, page, P), J, S)"
    operator = built(Case(inputs, lines, CASES["full"].torch, "o:q[B, G, M, E]", by="").spec(), tmp_path)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, pages = torch.randn(2, 2, 3, 8, device=device), torch.randn(4, 16, 2, 8, device=device)
    o = operator.attend(q, pages, pages, torch.zeros(2, 0, dtype=torch.int32, device=device))
    assert torch.equal(o, torch.zeros_like(q))


@pytest.mark.parametrize("axis", ["B", "H", "M", "D", "E"])
@pytest.mark.parametrize("name", ["causal", "gate", "lse_beside", "linear_with_a_divisor"])
def test_other_empty_axes(name: str, axis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, axis, 0)
    spec = CASES[name].spec()
    given = CASES[name].tensors(torch.float64)
    compare(built(spec, tmp_path).attend, own_math(spec), given, CASES[name].places(), 1e-9)


# Rows that are masked as a whole

SOME = 5  # rows, the first, that have no key
ZERO = "\nlse = logsumexp(s, N)\no = where(lse == -inf, 0.0, sum(softmax(s, N) * v, N))"
BY_MASK = "s = where(mask, sum(q * k, D) * 0.25, -inf)"
OF_MASK = f"{QKV}; mask:bool[M, N]"
FULL = CASES["full"].torch
# With what the results of such rows are.
MASKED = {
    "by_positions": (Case(QKV, CAUSAL + ZERO, FULL), (0.0,)),
    "of_heads_of_a_group": (Case(GROUPED, CAUSAL + ZERO, FULL, "o:q[B, (G R), M, E]"), (0.0,)),
    "by_a_tensor": (Case(OF_MASK, BY_MASK + ZERO, FULL), (0.0,)),
    "with_lse_beside": (Case(OF_MASK, BY_MASK + ZERO, FULL, "o:q; lse:q"), (0.0, -torch.inf)),
    "as_they_are": (Case(OF_MASK, BY_MASK + MEAN, FULL), (torch.nan,)),
    "by_a_bias": (
        Case(f"{QKV}; bias:T[H, M, N]", f"s = sum(q * k, D) * 0.25 + bias{MEAN}", FULL, by="q k v bias"),
        (torch.nan,),
    ),
    "with_a_sink": (
        Case(
            f"{OF_MASK}; sink:T[H]",
            f"{BY_MASK}\nlse = logaddexp(logsumexp(s, N), sink)\no = sum(exp(s - lse) * v, N)",
            FULL,
            by="q k v sink",
        ),
        (0.0,),
    ),
}


@pytest.mark.parametrize("name", MASKED)
def test_rows_without_keys(
    name: str, tmp_path: Path, small: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no part in any gradient, whatever the spec makes of them, though rows of the same tile do: so it is as
    if they were not there.
    """
    monkeypatch.setitem(SIZES, "N", SIZES["M"] - SOME)
    case, fills = MASKED[name]
    spec = case.spec()
    operator, math = built(spec, tmp_path), own_math(spec)
    small(operator)
    inputs = case.inputs.split("; ")
    given = case.tensors(torch.float64)
    for one, tensor in zip(inputs, given, strict=True):
        if one.startswith("mask"):
            tensor[:SOME] = False
            tensor[SOME:, 0] = True
        if one.startswith("bias"):
            tensor[:, :SOME] = -torch.inf

    def without_them(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = zip(inputs, tensors, strict=True)
        found = math(*(t.narrow(-2, SOME, t.shape[-2] - SOME) if "M" in one else t for one, t in pairs))
        results = found if isinstance(found, tuple) else (found,)
        return tuple(
            torch.cat([torch.full_like(one[:, :, :SOME], fill), one], 2)
            for one, fill in zip(results, fills, strict=True)
        )

    compare(operator.attend, without_them, given, case.places(), 1e-9)


# Rows that finite numbers mask

BIASED = Case(f"{QKV}; bias:float32[M, N]", f"s = sum(q * k, D) * 0.25 + bias{MEAN}", FULL)
LARGE = (-65504.0, -1e9, -1e10, -1e30, torch.finfo(torch.float32).min)


def multiplying_and_adding_at_once(folder: Path) -> Path:
    """Has exponents rounded once, as they are on a GPU, and not by the interpreter."""
    path = folder / "_runtime" / "reduce.py"
    text = path.read_text(encoding="utf-8")
    line = "    return exp_in_base(in_base_2(x) - shift)\n"
    assert line in text
    wide = (
        "    if x.dtype == tl.float32:\n"
        "        product = x.to(tl.float64) * tl.full((), 1.4426950408889634, tl.float32)\n"
        "        return tl.exp2((product - shift).to(tl.float32))\n"
    )
    path.write_text(text.replace(line, wide + line), encoding="utf-8")
    return folder


@pytest.mark.parametrize("number", LARGE)
def test_a_finite_number_masks_keys(number: float, tmp_path: Path, small: Callable[..., None]) -> None:
    """Those of whole blocks, too, the first among them, beside which others come later."""
    spec = BIASED.spec()
    operator = module_at(multiplying_and_adding_at_once(written(spec, tmp_path)))
    small(operator)
    q, k, v, bias = BIASED.tensors(torch.float32)
    bias[:, :20] = number
    compare(operator.attend, own_math(spec), (q, k, v, bias), [0, 1, 2], 2e-4)


@pytest.mark.parametrize("number", LARGE[1:])
def test_a_finite_number_masks_whole_rows(number: float, tmp_path: Path, small: Callable[..., None]) -> None:
    """In float32 they have no part in gradients: lse does not tell how many keys there are. Below -1.1e9 they are as
    rows without keys.
    """
    spec = BIASED.spec()
    operator, math = module_at(multiplying_and_adding_at_once(written(spec, tmp_path))), own_math(spec)
    small(operator)
    q, k, v, bias = BIASED.tensors(torch.float32)
    bias[:SOME] = number

    def without_them(*tensors: torch.Tensor) -> torch.Tensor:
        q, k, v, bias = tensors
        found = math(q[:, :, SOME:], k, v, bias[SOME:])
        rows = v.detach().mean(-2, keepdim=True).expand(-1, -1, SOME, -1)
        return torch.cat([rows if number > -1.1e9 else rows * torch.nan, found], 2)

    compare(operator.attend, without_them, (q, k, v, bias), [0, 1, 2], 2e-4)
