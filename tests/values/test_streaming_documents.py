"""Attention whose mask compares integers that are taken by position, as documents of one table for rows and keys are:
a step before stores them, and blocks of other documents are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.cases.streaming_cases import GROUPED, MEAN, QKV, Case
from tests.cases.streaming_formulas import SIZES, behind, masked, repeated, scores
from tests.harness.importing import built, runtime_of
from tests.harness.oracles import compare
from tritongen.families.streaming.program import StreamingProgram
from tritongen.lang.names import shown
from tritongen.operator.compile import backward_of, forward_of

TAKEN = "qd = take(doc, index(M), L)\nkd = take(doc, index(N), L)\n"
SCORE = "sum(q * k, D) * 0.25"
KEPT = "(qd == kd) & (index(N) - size(N) <= index(M) - size(M))"
LAST = "index(M) + size(N) - size(M)"


def _taken(doc: torch.Tensor, length: int, first: int = 0) -> torch.Tensor:
    """The table at the positions of an axis: 0 outside of it."""
    at = torch.arange(first, first + length)
    inside = (at >= 0) & (at < doc.shape[-1])
    return torch.where(inside, doc[..., at.clamp(0, doc.shape[-1] - 1)], 0)


def _same(doc: torch.Tensor, rows: int, keys: int, first: int = 0) -> torch.Tensor:
    found = _taken(doc, rows, first)[..., :, None] == _taken(doc, keys)[..., None, :]
    return found if doc.ndim == 1 else found[:, None]


def _attends(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    return torch.softmax(masked(scores(q, k), kept), -1) @ v


def _of_documents(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, doc: torch.Tensor) -> torch.Tensor:
    return _attends(q, k, v, _same(doc, q.shape[-2], k.shape[-2]) & (behind(q, k) >= 0) | (behind(q, k) == 0))


def _of_last(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, doc: torch.Tensor) -> torch.Tensor:
    m, n = q.shape[-2], k.shape[-2]
    return _attends(q, k, v, _same(doc, m, n, n - m) & (behind(q, k) >= 0))


def _up_to(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, doc: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    n = torch.arange(k.shape[-2])
    kept = _same(doc, q.shape[-2], k.shape[-2]) & (n // 9 <= limit[:, None, :, None]) | (behind(q, k) == 0)
    return _attends(q, k, v, kept)


def _decayed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, doc: torch.Tensor) -> torch.Tensor:
    m, n = q.shape[-2], k.shape[-2]
    weights = torch.exp(-0.1 * (torch.arange(m)[:, None] - torch.arange(n)).abs().double())
    return (scores(q, k) * weights).masked_fill(~_same(doc, m, n), 0.0) @ v


def _in_order(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, doc: torch.Tensor) -> torch.Tensor:
    m, n = q.shape[-2], k.shape[-2]
    kept = (_taken(doc, m)[:, None] >= _taken(doc, n)) & (torch.arange(m)[:, None] >= torch.arange(n))
    return scores(q, k).relu().masked_fill(~kept, 0.0) @ v


def _normed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, doc: torch.Tensor) -> torch.Tensor:
    return _of_last(q * (q.square().mean(-1, keepdim=True) + 1e-5).rsqrt(), k, v, doc)


def _of_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, doc: torch.Tensor, of_q: torch.Tensor) -> torch.Tensor:
    kept = (of_q[:, None, :, None] == _taken(doc, k.shape[-2])) | (behind(q, k) == 0)
    return _attends(q, k, v, kept)


# All keys of a row may be of other documents, but for its own.
OWN = f"(({KEPT}) | (index(N) - size(N) == index(M) - size(M)))"
CASES = {
    "one_table": Case(f"{QKV}; doc:int32[L]", f"{TAKEN}s = where({OWN}, {SCORE}, -inf){MEAN}", _of_documents),
    "table_of_each_sequence": Case(
        f"{QKV}; doc:int64[B, L]", f"{TAKEN}s = where({OWN}, {SCORE}, -inf){MEAN}", _of_documents
    ),
    "last_rows": Case(
        f"{QKV}; doc:int32[B, L=53]",
        f"qd = take(doc, {LAST}, L)\nkd = take(doc, index(N), L)\ns = where({KEPT}, {SCORE}, -inf){MEAN}",
        _of_last,
    ),
    "without_lines": Case(
        f"{QKV}; doc:int32[L=53]",
        f"s = where((take(doc, {LAST}, L) == take(doc, index(N), L)) & (index(N) - size(N) <= index(M) - size(M)), "
        f"{SCORE}, -inf){MEAN}",
        _of_last,
    ),
    "integers_of_any_dtype": Case(
        f"{QKV}; doc:int16|int32[L]".replace("int16|int32", "int"),
        f"{TAKEN}s = where({OWN}, {SCORE}, -inf){MEAN}",
        _of_documents,
    ),
    "up_to_a_limit": Case(
        f"{QKV}; doc:int32[B, L]; limit:int32[B, M]",
        f"{TAKEN}own = index(N) - size(N) == index(M) - size(M)\n"
        f"s = where(((qd == kd) & (index(N) // 9 <= limit)) | own, {SCORE}, -inf){MEAN}",
        _up_to,
    ),
    "beside_integers_of_rows": Case(
        f"{QKV}; doc:int32[L]; of_q:int32[B, M]",
        f"own = index(N) - size(N) == index(M) - size(M)\n"
        f"s = where((of_q == take(doc, index(N), L)) | own, {SCORE}, -inf){MEAN}",
        _of_rows,
    ),
    "heads_of_groups": Case(
        f"{GROUPED}; doc:int32[B, L]",
        f"{TAKEN}s = where({OWN}, {SCORE}, -inf){MEAN}",
        lambda q, k, v, doc: _of_documents(q, repeated(k), repeated(v), doc),
        outputs="o:q[B, (G R), M, E]",
    ),
    "few_rows": Case(
        GROUPED.replace("M", "F") + "; doc:int32[B, L=53]",
        f"qd = take(doc, {LAST}, L)\nkd = take(doc, index(N), L)\ns = where(qd == kd, {SCORE}, -inf){MEAN}".replace(
            "M", "F"
        ),
        lambda q, k, v, doc: _attends(
            q, repeated(k), repeated(v), _same(doc, SIZES["F"], SIZES["N"], SIZES["N"] - SIZES["F"])
        ),
        outputs="o:q[B, (G R), F, E]",
        by="",
    ),
    "decayed": Case(
        f"{QKV}; doc:int32[L]",
        f"{TAKEN}p = where(qd == kd, {SCORE} * exp(-0.1 * abs(index(M) - index(N))), 0.0)\no = sum(p * v, N)",
        _decayed,
    ),
    "in_order": Case(  # Without a softmax, only the least of some integers and the greatest of others tell anything.
        f"{QKV}; doc:int32[L]",
        f"{TAKEN}p = where((qd >= kd) & (index(N) <= index(M)), relu({SCORE}), 0.0)\no = sum(p * v, N)",
        _in_order,
    ),
    "normed_queries": Case(
        f"{QKV}; doc:int32[B, L=53]",
        f"qn = q * rsqrt(mean(q * q, D) + 1e-5)\nqd = take(doc, {LAST}, L)\nkd = take(doc, index(N), L)\n"
        f"s = where({KEPT}, sum(qn * k, D) * 0.25, -inf){MEAN}",
        _normed,
    ),
}


def _steps(case: Case) -> tuple[list[StreamingProgram], list[set[str]]]:
    """What streams, forward and backward; and what other steps of the forward store."""
    spec = case.spec()
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    steps = [*forward.family.steps(forward.program), *(backward.plan.steps if backward else ())]
    streams = [step.program for step in steps if isinstance(step.program, StreamingProgram)]
    others = [step for step in forward.family.steps(forward.program) if step.program not in streams]
    return streams, [{*map(shown, one.axes)} for step in others for one in step.op.results if one.dtype.kind == "int"]


@pytest.mark.parametrize("name", CASES)
def test_steps_before_store_them(name: str) -> None:
    """For each position, and what streams compares them, forward and backward, and reads no table."""
    streams, stored = _steps(CASES[name])
    rows = {"F" if name == "few_rows" else "M"}
    assert [axes - {"B"} for axes in stored] == [rows, {"N"}][name == "beside_integers_of_rows" :]
    assert len(streams) == (3 if CASES[name].by else 1)
    for program in streams:
        # A gradient without a softmax may be of more than the mask alone.
        assert len({axis for _, axis in program.blocks.compared}) == 2 or (name == "in_order" and program != streams[0])
        assert "doc" not in {shown(tensor.name) for tensor in program.op.inputs}


@pytest.mark.parametrize(
    "condition",
    [
        "take(doc, index(M), L) <= index(N)",  # which no minima and maxima of blocks tell more of
        "take(doc, index(N) - index(M), L) == take(doc, index(N), L)",
        "(take(doc, index(M), L) == 0) & (index(N) <= index(M))",
    ],
)
def test_others_are_taken_in_the_loop(condition: str) -> None:
    case = Case(f"{QKV}; doc:int32[L]", f"s = where({condition}, {SCORE}, -inf){MEAN}", _of_documents)
    assert isinstance(forward_of(case.spec()).program, StreamingProgram)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path, small: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """And gradients; and of blocks that programs split among themselves."""
    case = CASES[name]
    operator = built(case.spec(), tmp_path)
    small(operator)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-4)):
        compare(operator.attend, case.torch, case.tensors(dtype), case.places(), tolerance)
    monkeypatch.setattr(runtime_of(operator, "streaming_heuristics"), "choose_stream_splits", lambda *_: 3)
    given = case.tensors(torch.float64)
    torch.testing.assert_close(operator.attend(*given), case.torch(*given), rtol=1e-9, atol=1e-9)


def test_blocks_of_other_documents_are_skipped(tmp_path: Path, small: Callable[..., None]) -> None:
    """Forward and backward: what streams beyond the document's blocks is never multiplied."""
    mask = "(qd == kd) & (index(N) <= index(M))"
    case = replace(CASES["one_table"], compute=f"{TAKEN}s = where({mask}, {SCORE}, -inf){MEAN}")
    operator = built(case.spec(), tmp_path)
    small(operator)
    q, k, v = (torch.randn(2, 2, 48, 24, dtype=torch.float64, requires_grad=True) for _ in range(3))
    documents = torch.tensor([7, 3, 5], dtype=torch.int32).repeat_interleave(16)
    seed = torch.randn(2, 2, 48, 24, dtype=torch.float64)
    wanted = _attends(q, k, v, (documents[:, None] == documents) & (behind(q, k) >= 0))
    gradients = torch.autograd.grad(wanted, (q, k, v), seed)
    for document in range(3):
        others = torch.arange(48) // 16 != document
        leaves = tuple(one.detach().masked_fill(others[:, None], torch.nan).requires_grad_() for one in (q, k, v))
        o = operator.attend(*leaves, documents)
        found = torch.autograd.grad(o, leaves, seed.masked_fill(others[:, None], torch.nan))
        for one, other in zip((o, *found), (wanted, *gradients), strict=True):
            torch.testing.assert_close(one[:, :, ~others], other[:, :, ~others])


def test_rows_before_all_keys_read_none(tmp_path: Path, small: Callable[..., None]) -> None:
    """Where there are more rows than keys, no block lies before the first key, whatever is in memory there."""
    inputs = f"{QKV}; of_q:int32[M]; of_k:int32[N]"
    condition = "(of_q == of_k) & (index(N) - size(N) <= index(M) - size(M))"
    case = Case(inputs, f"s = where({condition}, {SCORE}, -inf)\nlse = logsumexp(s, N){MEAN}", behind, "o:q; lse:auto")
    operator = built(case.spec(), tmp_path)
    small(operator)
    q = torch.randn(1, 1, 48, 16, dtype=torch.float64, requires_grad=True)
    # Before the first key of the only head.
    k, v = (torch.full((1, 1, 64, 16), torch.nan, dtype=torch.float64)[:, :, 48:] for _ in range(2))
    k.normal_()
    v.normal_()
    of_q, of_k = torch.ones(48, dtype=torch.int32), torch.ones(64, dtype=torch.int32)[48:]
    o, lse = operator.attend(q, k, v, of_q, of_k)
    kept = behind(q, k) >= 0
    torch.testing.assert_close(lse, torch.logsumexp(masked(scores(q, k), kept), -1))
    torch.testing.assert_close(o, _attends(q, k, v, kept), equal_nan=True)
    seed = torch.randn_like(o)
    wanted = torch.autograd.grad(_attends(q[:, :, 32:], k, v, kept[32:]), q, seed[:, :, 32:])
    torch.testing.assert_close(torch.autograd.grad(o, q, seed), wanted)
