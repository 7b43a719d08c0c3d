"""Attention of nothing, and fully masked rows, beside the spec's own math in torch in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cases.streaming_cases import CASES, CAUSAL, GROUPED, MEAN, QKV, Case
from tests.cases.streaming_formulas import SIZES
from tests.cases.streaming_images import CASES as IMAGES
from tests.harness.importing import built, module_at, with_own_runtime, written
from tests.harness.oracles import DEVICE, compare
from tritongen.operator.compile import forward_of, generate
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


@pytest.mark.parametrize("axis", ["X", "Y"])
@pytest.mark.parametrize("name", ["image_of_keys", "image_with_relative_positions"])
def test_no_keys_of_images(name: str, axis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of their axes has no length."""
    monkeypatch.setitem(SIZES, axis, 0)
    case = IMAGES[name]
    operator = built(case.spec(), tmp_path)
    compare(operator.attend, own_math(case.spec()), case.tensors(torch.float64), case.places(), 1e-9)


def test_no_keys_in_pages(tmp_path: Path) -> None:
    inputs = "q:T[B, G, M, D]; k:T[P, S, G, D]; v:T[P, S, G, E]; page:int32[B, J]"
    lines = "s = sum(q * take(k, page, P), D)\no = sum(softmax(s, J, S) * take(v, page, P), J, S)"
    operator = built(Case(inputs, lines, CASES["full"].torch, "o:q[B, G, M, E]", by="").spec(), tmp_path)
    q, pages = torch.randn(2, 2, 3, 8, device=DEVICE), torch.randn(4, 16, 2, 8, device=DEVICE)
    o = operator.attend(q, pages, pages, torch.zeros(2, 0, dtype=torch.int32, device=DEVICE))
    assert torch.equal(o, torch.zeros_like(q))


@pytest.mark.parametrize("axis", ["B", "H", "M", "D", "E"])
@pytest.mark.parametrize("name", ["causal", "gate", "lse_beside", "linear_with_a_divisor"])
def test_other_empty_axes(name: str, axis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, axis, 0)
    spec = CASES[name].spec()
    given = CASES[name].tensors(torch.float64)
    compare(built(spec, tmp_path).attend, own_math(spec), given, CASES[name].places(), 1e-9)


# Fully masked rows

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
    "before_a_norm": (
        Case(
            f"{OF_MASK}; weight:T[E]",
            f"{BY_MASK}\nc = sum(softmax(s, N) * v, N)\no = c * rsqrt(mean(c * c, E) + 1e-5) * weight",
            FULL,
        ),
        (torch.nan,),
    ),
    "before_a_norm_of_two": (
        Case(
            f"{OF_MASK}; p:T[B, H, M, D]",
            f"{BY_MASK}\nt = where(mask, sum(p * k, D) * 0.25, -inf)\n"
            "c = sum(softmax(s, N) * v, N) - 0.5 * sum(softmax(t, N) * v, N)\no = c * rsqrt(mean(c * c, E) + 1e-5)",
            FULL,
            by="q k v p",
        ),
        (torch.nan,),
    ),
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
LOWEST = torch.finfo(torch.float32).min
LARGE = (-65504.0, -3e8, -1e9, -1e10, -1e30, torch.finfo(torch.bfloat16).min, LOWEST)


def multiplying_and_adding_at_once(folder: Path) -> Path:
    """Has exponents rounded once, as they are on a GPU, and not by the interpreter."""
    path = with_own_runtime(folder) / "_runtime" / "online.py"
    text = path.read_text(encoding="utf-8")
    for line, factor in (
        ("    return exp_in_base(to_base2(x) - shift)\n", "tl.full((), 1.4426950408889634, tl.float32)"),
        ("    return tl.exp(x - shift) if x.dtype == tl.float64 else tl.exp2(x * factor - shift)\n", "factor"),
    ):
        assert line in text
        wide = (
            "    if x.dtype == tl.float32:\n"
            f"        product = x.to(tl.float64) * {factor}\n"
            "        return tl.exp2((product - shift).to(tl.float32))\n"
        )
        text = text.replace(line, wide + line)
    path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("number", LARGE)
def test_a_finite_number_masks_keys(number: float, tmp_path: Path, small: Callable[..., None]) -> None:
    """Those of full blocks, too, the first among them, beside which others come later."""
    spec = BIASED.spec()
    operator = module_at(multiplying_and_adding_at_once(written(spec, tmp_path)))
    small(operator)
    q, k, v, bias = BIASED.tensors(torch.float32)
    bias[:, :20] = number
    compare(operator.attend, own_math(spec), (q, k, v, bias), [0, 1, 2], 2e-4)


@pytest.mark.parametrize("n_splits", [1, 3])
@pytest.mark.parametrize("number", LARGE[1:])
def test_finite_numbers_mask_whole_rows(
    number: float, n_splits: int, tmp_path: Path, small: Callable[..., None]
) -> None:
    """The keys of the largest number have equal chunks of a row, whatever others have: lower numbers, before them or
    behind, and minus infinity. They have no part in gradients: lse does not tell how many keys there are.
    """
    compute, results = f"{BIASED.compute}\nlse = logsumexp(s, N)", "o:q; lse:q"
    spec = replace(BIASED, compute=compute, outputs=results, by="q k v bias").spec()
    operator, math = module_at(multiplying_and_adding_at_once(written(spec, tmp_path))), own_math(spec)
    small(operator, n_splits)
    q, k, v, bias = BIASED.tensors(torch.float32)
    bias[:SOME] = number
    bias[1, ::3] = -torch.inf
    bias[2, 5:] = LOWEST
    bias[3, :-5] = LOWEST
    bias[4, :] = LOWEST
    keys = bias[:SOME] == bias[:SOME].amax(-1, keepdim=True)
    lse_of_rows = torch.nn.functional.pad(bias[:SOME].amax(-1), (0, SIZES["M"] - SOME))

    def attend(*tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = operator.attend(*tensors)
        return o, lse - lse_of_rows.to(lse)

    def with_equal_parts(*tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v, bias = tensors
        o, lse = math(q[:, :, SOME:], k, v, bias[SOME:])
        chosen = keys.to(v)
        means = chosen @ v.detach() / chosen.sum(-1, keepdim=True)
        return torch.cat([means, o], 2), torch.nn.functional.pad(lse, (SOME, 0))

    compare(attend, with_equal_parts, (q, k, v, bias), [0, 1, 2, 3], 2e-4)


PRODUCT = "sum(q * k, D) * 0.25"
WITH_SINK = "\nlse = logaddexp(logsumexp(s, N), sink)\no = sum(exp(s - lse) * v, N)"
BY_HAND = "\ne = exp(s - max(s, N))\no = sum(e * v, N) / sum(e, N)"
LARGELY_MASKED = {
    "by_a_constant": Case(OF_MASK, f"s = where(mask, {PRODUCT}, -1e30){MEAN}", FULL, by=""),
    "by_keys": Case(f"{QKV}; bias:T[B, N]", f"s = {PRODUCT} + bias{MEAN}", FULL, by=""),
    "of_a_group": Case(f"{GROUPED}; bias:T[M, N]", f"s = {PRODUCT} + bias{MEAN}", FULL, "o:q[B, (G R), M, E]", by=""),
    "with_a_sink": Case(f"{QKV}; bias:T[M, N]; sink:T[H]", f"s = {PRODUCT} + bias{WITH_SINK}", FULL, by=""),
    "softmax_by_hand": Case(f"{QKV}; bias:T[M, N]", f"s = {PRODUCT} + bias{BY_HAND}", FULL, by=""),
    "names_of_kernels": Case(
        "q:T[B, H, M, D]; shift:T[B, H, N, D]; rescale:T[B, H, N, E]; factor:T[M, N]",
        "s = sum(q * shift, D) * 0.25 + factor\no = sum(softmax(s, N) * rescale, N)",
        FULL,
        by="",
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LARGELY_MASKED)
def test_finite_numbers_mask_whole_rows_of_any_softmax(
    name: str, dtype: torch.dtype, tmp_path: Path, small: Callable[..., None]
) -> None:
    spec = LARGELY_MASKED[name].spec()
    operator = module_at(multiplying_and_adding_at_once(written(spec, tmp_path)))
    small(operator)
    given = LARGELY_MASKED[name].tensors(dtype)
    mask = given[3]
    mask[:SOME] = False if mask.dtype == torch.bool else -1e30
    compare(operator.attend, own_math(spec), given, [], 2e-4)


@pytest.mark.parametrize(
    ("inputs", "score", "is_low"),
    [
        ("bias:float32[M, N]", f"{PRODUCT} + bias", True),
        ("bias:T[H, N]", f"({PRODUCT} - 0.5 * bias) * 2", True),
        ("keep:T[B, N]", f"{PRODUCT} + (1 - keep) * fill", True),
        ("keep:T[B, N]", f"{PRODUCT} + log(keep) * 1e9", True),
        ("keep:bool[B, N]", f"where(keep, {PRODUCT}, fill)", True),
        ("keep:bool[B, N]", f"where(keep, {PRODUCT}, -1e30)", True),
        ("keep:bool[B, N]", f"where(keep, {PRODUCT}, -1e8)", False),
        ("keep:bool[B, N]", f"where(keep, {PRODUCT} * fill, -inf)", False),
        ("slope:float32[H]", f"{PRODUCT} - slope * (index(M) - index(N))", False),
        ("scale:float32[B, N]", f"{PRODUCT} * scale / (1 + scale)", False),
        ("temper:float32[B, M]", f"2e9 * {PRODUCT} * temper", False),
    ],
)
def test_exponents_of_rows_have_a_factor_where_scores_may_be_low(inputs: str, score: str, is_low: bool) -> None:
    params = 'fill = { type = "float" }' if "fill" in score else ""
    case = Case(f"{QKV}; {inputs}", f"s = {score}{MEAN}", FULL, params=params, by="")
    kernels = generate(case.spec())["kernels.py"]
    assert ("online_max_low(" in kernels) == is_low
    assert ("online_max(" in kernels) != is_low
