"""Attention with reductions and matmuls before and behind it, and several attentions: no scores are stored, forward or
backward.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.cases.streaming_before import CASES as BEFORE
from tests.cases.streaming_behind import CASES as BEHIND
from tests.cases.streaming_behind import rms
from tests.cases.streaming_cases import QKV, Case
from tests.cases.streaming_formulas import SIZES, behind, masked
from tests.cases.streaming_heads import ROTARY
from tests.cases.streaming_several import CASES as SEVERAL
from tests.cases.streaming_softmaxes import CASES as SOFTMAXES
from tests.harness.importing import built
from tests.harness.oracles import compare
from tritongen.families.family import Step
from tritongen.families.streaming.program import StreamingProgram
from tritongen.lang.names import shown
from tritongen.operator import compile
from tritongen.operator.compile import backward_of, forward_of, generate
from tritongen.plan.backward import Backward
from tritongen.spec.types import Spec

CASES = {**BEFORE, **BEHIND, **ROTARY, **SEVERAL, **SOFTMAXES}
SCORES = [{"M", "N"}, {"M", "L"}]


def each(steps: Iterable[Step]) -> list[Step]:
    """Steps, and those that others are made of instead of these."""
    return [one for step in steps for one in (step.family.steps(step.program) or (step,))]


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", CASES)
def test_values_of_no_stored_scores(
    name: str, tmp_path: Path, small: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows is differentiated first, in steps of other families, and then what streams is."""
    plans = []

    def planned(spec: Spec, forward: Step) -> Backward | None:
        plans.append((forward, backward_of(spec, forward)))
        return plans[-1][1]

    monkeypatch.setattr(compile, "backward_of", planned)
    case = CASES[name]
    operator = built(case.spec(), tmp_path)
    ((forward, backward),) = plans
    assert backward is not None
    steps = each(backward.plan.steps)
    assert len(steps) == case.steps
    assert sum(isinstance(step.program, StreamingProgram) for step in steps) == case.passes
    for step in each((forward, backward.forward, *steps)):
        along = [{*map(shown, one.axes)} for one in step.op.results if shown(one.output.name) != case.tiles]
        assert not [axes for axes in along if any(scores <= axes for scores in SCORES)]
    assert (forward.stored, backward.stored) == (None, None)
    small(operator)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-4)):
        compare(operator.attend, case.torch, case.tensors(dtype), case.places(), tolerance)


def _taken(scores: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return torch.gather(scores, -1, at.expand(*scores.shape[:-2], *at.shape))


def _disentangled(*tensors: torch.Tensor) -> torch.Tensor:
    """Attention to relative positions, and of these to contents."""
    q, k, v, kr, qr = tensors
    at = (torch.arange(SIZES["M"])[:, None] - torch.arange(SIZES["N"]) + 32).clamp(0, 63)
    of_keys, of_queries = _taken(q @ kr.mT, at), _taken(k @ qr.mT, at.T).mT
    return torch.softmax((q @ k.mT + of_keys + of_queries) * 0.25, -1) @ v


def _latent(*tensors: torch.Tensor) -> torch.Tensor:
    q, qr, c, kr, wk, wv = tensors
    k, v = (torch.einsum("hdc,bnc->bhnd", w, c) for w in (wk, wv))
    s = (q @ k.mT + qr @ kr[:, None].mT) * 0.25
    return torch.softmax(masked(s, behind(q, k) >= 0), -1) @ v


def _relative(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, other: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    return torch.softmax((q @ k.mT + (other[..., None, :] * rows).sum(-1)) * 0.25, -1) @ v


def _capped_difference(
    q: torch.Tensor, j: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, sink: torch.Tensor
) -> torch.Tensor:
    q, j, k, v = (one.flatten(1, -3).transpose(1, 2) for one in (q, j, k, v))
    distance = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
    s = 5 * torch.tanh(q @ k.mT * 0.1) + table[:, distance.clamp(-8, 8) + 8]
    total = torch.logaddexp(torch.logsumexp(s, -1, keepdim=True), sink[:, None, None])
    return ((s - total).exp() @ v - (j @ k.mT).softmax(-1) @ v).transpose(1, 2)


def _weighted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    p = torch.exp(q @ k.mT * 0.25) * keep
    return p @ v / p.sum(-1, keepdim=True)


def _weighted_with_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    p = torch.exp(q @ k.mT * 0.25) * keep.square()
    return (p * keep) @ v / p.sum(-1, keepdim=True), p.sum(-1).log()


def _kept(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    return torch.softmax(masked(q @ k.mT * 0.25, keep), -1) @ v


def _biased(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    k, v = (one.repeat(1, SIZES["R"], 1, 1) for one in (k, v))
    apart = (torch.arange(SIZES["M"])[:, None] - torch.arange(SIZES["N"])).abs()
    return (q @ k.mT + bias - slope[:, None, None] * apart).tril() @ v


AHEAD = torch.arange(SIZES["N"]) - torch.arange(SIZES["M"])[:, None]
STORING = {
    "rows_of_near_distances": Case(  # Shaw et al., 2018
        f"{QKV}; rows:T[I, D]",
        "r = clamp(index(N) - index(M), -4, 4) + 4\ns = (sum(q * k, D) + take(sum(q * rows, D), r, I)) * 0.25\n"
        "o = sum(softmax(s, N) * v, N)",
        lambda q, k, v, rows: _relative(q, k, v, q, rows[AHEAD.clamp(-4, 4) + 4]),
        by="q k v rows",
    ),
    "rows_of_all_distances": Case(  # Transformer-XL
        f"{QKV}; u:T[H, D]; w:T[H, D]; rows:T[P, H, D]",
        "r = index(M) - index(N) + size(N)\n"
        "s = (sum((q + u) * k, D) + take(sum((q + w) * rows, D), r, P)) * 0.25\no = sum(softmax(s, N) * v, N)",
        lambda q, k, v, u, w, rows: _relative(
            q + u[:, None], k, v, q + w[:, None], rows[SIZES["N"] - AHEAD].permute(2, 0, 1, 3)
        ),
        by="q k v u w rows",
    ),
    "scores_taken_from_a_matmul": Case(
        f"{QKV}; kr:T[H, P=64, D]; qr:T[H, P=64, D]",
        "at = clamp(index(M) - index(N) + 32, 0, 63)\nof_keys = sum(q * kr, D)\nof_queries = sum(k * qr, D)\n"
        "s = (sum(q * k, D) + take(of_keys, at, P) + take(of_queries, at, P)) * 0.25\n"
        "o = sum(softmax(s, N) * v, N)",
        _disentangled,
        by="q k v kr qr",
    ),
    "soft_cap_with_a_line_named_lse": Case(  # Two streams save an lse each.
        "q:T[B, M, G, D]; j:T[B, M, G, D]; k:T[B, F, R, G, D]; v:T[B, F, R, G, E]; table:T[G, V=17]; sink:T[G]",
        "s = 5 * tanh(sum(q * k, D) * 0.1) + take(table, clamp(index(M) - index(F, R), -8, 8) + 8, V)\n"
        "lse = logaddexp(logsumexp(s, F, R), sink)\n"
        "o = sum(exp(s - lse) * v, F, R) - sum(softmax(sum(j * k, D), F, R) * v, F, R)",
        _capped_difference,
        outputs="o:q[B, M, G, E]",
        by="k",
    ),
    "squared_probabilities": Case(
        QKV,
        "s = sum(q * k, D) * 0.25\np = softmax(s, N)\no = sum(p * p * v, N)",
        lambda q, k, v: torch.softmax(q @ k.mT * 0.25, -1).square() @ v,
    ),
    "product_of_softmaxes": Case(
        "q:T[B, H, M, D]; k:T[B, H, N, D]; r:T[B, H, M, D]; j:T[B, H, N, D]; v:T[B, H, N, E]",
        "o = sum(softmax(sum(q * k, D), N) * softmax(sum(r * j, D), N) * v, N)",
        lambda q, k, r, j, v: torch.softmax(q @ k.mT, -1) * torch.softmax(r @ j.mT, -1) @ v,
        by="q k r j v",
    ),
    "factors_of_exponentials": Case(  # Of either sign: their sum is no exponential of an lse.
        f"{QKV}; keep:T[B, H, M, N]",
        "s = sum(q * k, D) * 0.25\np = exp(s - max(s, N)) * keep\no = sum(p * v, N) / sum(p, N)",
        _weighted,
        by="q k v keep",
    ),
    "factors_of_sums_and_their_logarithm": Case(
        f"{QKV}; keep:T[B, H, M, N]",
        "s = sum(q * k, D) * 0.25\nm = max(s, N)\np = exp(s - m) * keep * keep\n"
        "o = sum(p * (keep * v), N) / sum(p, N)\nlse = m + log(sum(p, N))",
        _weighted_with_lse,
        outputs="o:q; lse:q",
        by="q k v keep",
    ),
    "logsumexp_to_base_2": Case(
        QKV,
        "s = sum(q * k, D) * 0.25\nm = max(s, N)\ne = exp(s - m)\no = sum(e * v, N) / sum(e, N)\n"
        "lse = m * 1.4426950408889634 + log2(sum(e, N))",
        lambda q, k, v: (torch.softmax(q @ k.mT * 0.25, -1) @ v, torch.logsumexp(q @ k.mT * 0.25, -1) / math.log(2)),
        outputs="o:q; lse:q",
    ),
    "exponentials_that_are_chosen": Case(
        f"{QKV}; keep:bool[B, H, M, N]",
        "s = sum(q * k, D) * 0.25\np = where(keep, exp(s - max(s, N)), 0.0)\no = sum(p * v, N) / sum(p, N)",
        _kept,
    ),
    "nan_to_num": Case(  # The first rows have no keys.
        QKV,
        "s = where(index(N) + 9 <= index(M), sum(q * k, D) * 0.25, -inf)\no = sum(nan_to_num(softmax(s, N)) * v, N)",
        lambda q, k, v: torch.nan_to_num(torch.softmax(masked(q @ k.mT * 0.25, AHEAD <= -9), -1)) @ v,
        by="",
    ),
    "bias_and_slopes_without_a_softmax": Case(  # What a pass computes has the name of a step of what others do.
        "q:T[B, (R G), M, D]; k:T[B, G, N, D]; v:T[B, G, N, E]; bias:T[B, (R G), M, N]; slope:T[(R G)]",
        "s = sum(q * k, D) + bias - slope * abs(index(M) - index(N))\n"
        "o = sum(where(index(N) <= index(M), s, 0.0) * v, N)",
        _biased,
        outputs="o:q[B, (R G), M, E]",
        by="bias slope",
    ),
}


def test_values_of_powers_of_2(tmp_path: Path) -> None:
    """Whose scores are stored."""
    compute = "s = sum(q * k, D) * 0.25\np = exp2((s - max(s, N)) * 1.4426950408889634)\no = sum(p * v, N) / sum(p, N)"
    case = Case(QKV, compute, lambda q, k, v: torch.softmax(q @ k.mT * 0.25, -1) @ v)
    operator = built(case.spec(), tmp_path)
    compare(operator.attend, case.torch, case.tensors(torch.float64), case.places(), 1e-9)


@pytest.mark.parametrize("name", STORING)
def test_values_of_gradients_that_store_scores(name: str, tmp_path: Path, small: Callable[..., None]) -> None:
    """Forwards do not."""
    case = STORING[name]
    assert forward_of(case.spec()).stored is None
    operator = built(case.spec(), tmp_path)
    small(operator)
    compare(operator.attend, case.torch, case.tensors(torch.float64), case.places(), 1e-9)


def test_keys_and_values_that_are_computed_from_latent_ones(tmp_path: Path, small: Callable[..., None]) -> None:
    """Are stored, and scores are not, however long the axes of heads may be."""
    inputs = "q:T[B, H, M, D]; qr:T[B, H, M, K]; c:T[B, N, C]; kr:T[B, N, K]; wk:T[H, D, C]; wv:T[H, E, C]"
    compute = "k = sum(wk * c, C)\nv = sum(wv * c, C)\n"
    compute += "s = where(index(N) - size(N) <= index(M) - size(M), (sum(q * k, D) + sum(qr * kr, K)) * 0.25, -inf)\n"
    compute += "o = sum(softmax(s, N) * v, N)"
    case = Case(inputs, compute, _latent, outputs="o:q[B, H, M, E]", by="q qr c kr wk wv")
    forward = forward_of(case.spec())
    backward = backward_of(case.spec(), forward)
    assert backward is not None
    for step in each((forward, backward.forward, *backward.plan.steps)):
        assert not [one for one in step.op.results if {"M", "N"} <= {*one.axes}]
    assert (forward.stored, backward.stored) == (None, None)
    operator = built(case.spec(), tmp_path)
    small(operator)
    compare(operator.attend, case.torch, case.tensors(torch.float64), case.places(), 1e-9)


def test_norms_of_stored_queries_are_cast_to_the_dtype_of_queries(tmp_path: Path, small: Callable[..., None]) -> None:
    """A step that reads what others have made of these, and stored in their dtype, knows it."""
    inputs = (
        "q:float[B, H, M, D]; k:float[H, N, D]; v:float[H, N, E]; r:float[B, H, M, K]; j:float[H, N, K]; "
        "l:float[H, L, D]; w:float[H, L, E]"
    )
    compute = (
        "a = cast(q + take(q, size(D) - 1 - index(D), D), q)\nb = cast(a * rsqrt(mean(a * a, D) + 1e-5), q)\n"
        "c = cast(k + take(k, size(D) - 1 - index(D), D), k)\ns = sum(b * c, D) + sum(r * j, K)\n"
        "t = sum(q * l, D)\no = sum(softmax(s, N) * v, N) + sum(softmax(t, L) * w, L)"
    )

    def formula(*given: torch.Tensor) -> torch.Tensor:
        q, k, v, r, j, other, w = given
        s = rms(q + q.flip(-1)) @ (k + k.flip(-1)).mT + r @ j.mT
        return torch.softmax(s, -1) @ v + torch.softmax(q @ other.mT, -1) @ w

    case = Case(inputs, compute, formula, "o:auto[B, H, M, E]", by="")
    operator = built(case.spec(), tmp_path)
    small(operator)
    compare(operator.attend, formula, case.tensors(torch.float32), [], 2e-4)


@pytest.mark.parametrize("name", ["cast_before_a_projection", "cast_of_a_line_before_a_projection"])
def test_means_that_are_cast_are_stored_once(name: str) -> None:
    """As a matmul reads them, and the gradient with it."""
    spec = SOFTMAXES[name].spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    (streaming,) = (step for step in each([backward.forward]) if isinstance(step.program, StreamingProgram))
    assert [len(result.axes) for result in streaming.op.results] == [4, 3]  # The mean, and lse.


@pytest.mark.parametrize("name", ["difference_of_softmaxes", "self_and_cross"])
def test_the_second_of_two_attentions_adds_the_first_in_its_epilogue(name: str) -> None:
    spec = SEVERAL[name].spec()
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    assert backward is not None
    for step in (forward, backward.forward):
        assert [isinstance(one.program, StreamingProgram) for one in each([step])] == [True, True]


def test_projections_are_stored_as_gluon_kernels_read_them() -> None:
    """Rows after rows of heads, as a matmul of activations by weights gives them, though weights have the most axes."""
    spec = CASES["rotary_of_projections"].spec()
    stored = {one.output.name: one.axes for step in each([forward_of(spec)]) for one in step.op.results}
    assert stored["q"] == stored["qr"] == ("B", "M", "G", "R", "P", "D")
    assert (stored["k"], stored["v"]) == (("B", "N", "G", "P", "D"), ("B", "N", "G", "E"))
    kernels = re.findall(r"def (\w+)_gluon_kernel\(", generate(spec)["gluon_kernels.py"])
    assert kernels == ["attend_o", "attend_backward_dqr"]  # dk and dv of groups have a plain one.


@pytest.mark.sampled(4)
def test_functions_of_a_registered_operator_are_called_as_they_are_defined() -> None:
    """Of a step that reduces rows first, the function for that is not registered, and is not told of fake tensors."""
    spec = replace(BEFORE["norms_of_heads"].spec(), register="custom_op", namespace="tritongen_before")
    tree = ast.parse(generate(spec)["op.py"])
    functions = {
        node.name: [arg.arg for arg in node.args.args] for node in tree.body if isinstance(node, ast.FunctionDef)
    }
    rows = [name for name in functions if name.endswith("_rows")]
    assert rows
    for name in rows:
        assert "is_fake" not in functions[name]
    assert "is_fake" in functions["_attend_backward"]
