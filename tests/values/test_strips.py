"""Reductions of what a matmul gives, beside torch in float64: each strip of a tile in the epilogue, and then of those.

Every kernel of the matmuls is made to run, in small tiles with tails: by pointers, in partial sums, and by TMA.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch
import triton

from tests.cases.step_cases import Case
from tests.harness.importing import built, runtime_of
from tests.harness.oracles import compare
from tritongen.families.family import Step
from tritongen.operator.compile import backward_of, forward_of
from tritongen.passes.structure import gathered
from tritongen.planner.strips import merged_strips, spreads
from tritongen.spec.read import read_spec

F = torch.nn.functional


def _normed(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = x @ w.T
    return F.batch_norm(h, None, None, training=True), h.mean(0), h.var(0)


def _pair(x: torch.Tensor, g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return (F.silu(x @ g.T) * (x @ u.T)).sum(0)


PRODUCT = "h = sum(x * w, K)\n"
CASES = {
    "sums_over_rows": Case("x:Q, K; w:L, K", "y = sum(relu(sum(x * w, K)), Q)", lambda x, w: (x @ w.T).relu().sum(0)),
    "sums_over_columns": Case(
        "x:Q, K; w:L, K", "y = sum(relu(sum(x * w, K)), L)", lambda x, w: (x @ w.T).relu().sum(1)
    ),
    "sums_beside_what_is_summed": Case(
        "x:Q, K; w:L, K; b:L",
        "y = gelu(sum(x * w, K) + b)\nt = sum(y, Q)",
        lambda x, w, b: (F.gelu(x @ w.T + b), F.gelu(x @ w.T + b).sum(0)),
        "y t",
    ),
    "sums_over_either": Case(
        "x:Q, K; w:L, K",
        PRODUCT + "y = sum(h * h, L)\nt = mean(h, Q)\nl = sum(h * h * h, Q)",
        lambda x, w: (((x @ w.T) ** 2).sum(1), (x @ w.T).mean(0), ((x @ w.T) ** 3).sum(0)),
        "y t l",
    ),
    "weighted_sums": Case(
        "x:Q, K; w:L, K; v:L", "y = sum(tanh(sum(x * w, K)) * v, L)", lambda x, w, v: (x @ w.T).tanh() @ v
    ),
    "largest_and_smallest": Case(
        "x:Q, K; w:L, K",
        PRODUCT + "y = max(h, L) - min(h, L)",
        lambda x, w: (x @ w.T).amax(1) - (x @ w.T).amin(1),
    ),
    "largest_of_columns": Case("x:Q, K; w:L, K", "y = max(sum(x * w, K), Q)", lambda x, w: (x @ w.T).amax(0)),
    "logsumexp": Case("x:Q, K; w:L, K", "y = logsumexp(sum(x * w, K), L)", lambda x, w: (x @ w.T).logsumexp(1)),
    "logsumexp_of_columns": Case(
        "x:Q, K; w:L, K", "y = logsumexp(2 * sum(x * w, K), Q)", lambda x, w: (2 * x @ w.T).logsumexp(0)
    ),
    "variances": Case("x:Q, K; w:L, K", "y = var(sum(x * w, K), L)", lambda x, w: (x @ w.T).var(1)),
    "batch_norm": Case(
        "x:Q, K; w:L, K",
        PRODUCT + "m = mean(h, Q)\nv = var(h, Q)\ny = (h - m) * rsqrt(var(h, Q, correction=0) + 1e-5)",
        _normed,
        "y m v",
    ),
    "batched": Case(
        "a:B, Q, K; b:B, K, L; c:Q, L",  # `u` is stored once, not by each matrix of the batch
        "h = sum(a * b, K)\nu = c * c\ny = sum(abs(h) * u, Q)\nt = logsumexp(h, L)",
        lambda a, b, c: (c * c, ((a @ b).abs() * c * c).sum(1), (a @ b).logsumexp(2)),
        "u y t",
    ),
    "several_axes": Case(
        "x:B, S, K; w:G, T, K",
        PRODUCT + "y = sum(relu(h), B, S)\nt = max(h, G, T)",
        lambda x, w: ((x @ w.flatten(0, 1).T).relu().sum((0, 1)).view(4, 23), (x @ w.flatten(0, 1).T).amax(2)),
        "y t",
    ),
    "short_rows": Case("x:Q, K; w:E=16, K", "y = logsumexp(sum(x * w, K), E)", lambda x, w: (x @ w.T).logsumexp(1)),
    "pair": Case("x:Q, K; g:L, K; u:L, K", "y = sum(silu(sum(x * g, K)) * sum(x * u, K), Q)", _pair),
    "turned": Case(
        "x:Q, K; w:L, K",
        "y = relu(sum(w * x, K))\nt = sum(y, Q)",
        lambda x, w: ((w @ x.T).relu().T, (w @ x.T).relu().sum(1)),
        "y t",
    ),
}


# How matmuls are launched, and what they are given then: in float64 their last digits show, but TMA copies half
# precision alone.
WIDE = ((torch.float64, 1e-9), (torch.float32, 2e-4))
HALF = ((torch.float16, 4e-3),)
WAYS = {"pointers": WIDE, "split_k": WIDE, "tma": HALF, "stream_k": HALF}


def _force(way: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have matmuls be computed one way, in small tiles."""
    configs = importlib.import_module(f"{module.__name__}.configs")
    heuristics = runtime_of(module, "matmul_heuristics")
    described = way in ("tma", "stream_k")
    monkeypatch.setattr(heuristics, "use_tma", lambda *_: described)
    monkeypatch.setattr(heuristics, "choose_split_k", lambda *_: 3 if way == "split_k" else 1)
    split = lambda tiles, *_: (tiles - tiles // 2 - tiles // 4, 2, tiles // 4, 3)  # noqa: E731
    monkeypatch.setattr(heuristics, "choose_stream_k", split if way == "stream_k" else lambda *_: (0, 0, 0, 0))
    for name in ("STRIDED", "TMA") if described else ("STRIDED",):
        tile = {"BLOCK_M": 32, "BLOCK_N": 128 if name == "TMA" else 64, "BLOCK_K": 32, "GROUP": 2}
        config = triton.Config(tile, num_warps=4)
        monkeypatch.setattr(getattr(configs, name), "choose", lambda *_, config=config: config)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    module = built(case.spec(), tmp_path)
    # Results of few columns have no kernel that copies by TMA.
    has_tma = hasattr(importlib.import_module(f"{module.__name__}.configs"), "TMA")
    assert has_tma == (name != "short_rows")
    for way, widths in WAYS.items():
        if widths is WIDE or has_tma:
            with monkeypatch.context() as patch:
                _force(way, module, patch)
                for dtype, tolerance in widths:
                    compare(module.steps, case.torch, case.tensors(dtype), (), tolerance)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    function = built(case.spec(), tmp_path).steps
    given = case.tensors(torch.float64)
    compare(function, case.torch, given, range(len(given)), 1e-8)


def _steps(case: Case) -> list[Step]:
    forward = forward_of(case.spec())
    return list(forward.family.steps(forward.program))


def _of_strips(step: Step) -> list[str]:
    axes = {strips.axis for strips in step.op.strips}
    return [result.output.name for result in step.op.results if axes & set(result.axes)]


@pytest.mark.parametrize("name", CASES)
def test_the_matmul_reduces_strips(name: str) -> None:
    """What is reduced is not read again; nor stored, but where that is an output, or something is mapped of it."""
    first, *others = _steps(CASES[name])
    strips = set(_of_strips(first))
    assert strips
    assert strips <= {tensor.name for step in others for tensor in step.op.inputs}
    whole = {result.output.name for result in first.op.results} - strips
    wanted = {"sums_beside_what_is_summed": {"y"}, "turned": {"y"}, "batch_norm": {"h"}}
    assert whole == wanted.get(name, set())


def test_infinities_and_nan(tmp_path: Path) -> None:
    """As of rows that are read: none of the strips has to have a number."""
    case = Case(
        "x:Q, K; w:L, K; m:L",
        "h = sum(x * w, K) + m\ny = logsumexp(h, L)\nz = max(h, L)\nt = logsumexp(h, Q)",
        lambda x, w, m: ((x @ w.T + m).logsumexp(1), (x @ w.T + m).amax(1), (x @ w.T + m).logsumexp(0)),
        "y z t",
        "-",
    )
    function = built(case.spec(), tmp_path).steps
    x, w, m = case.tensors(torch.float64)
    inf = float("inf")
    for number, places in ((-inf, slice(None)), (-inf, slice(0, 64)), (inf, slice(3, 4)), (float("nan"), slice(7, 8))):
        added = m.clone()
        added[places] = number
        compare(function, case.torch, [x, w, added], (), 1e-9)


def test_strips_go_with_what_is_stored(tmp_path: Path) -> None:
    """Of a row that one column dominates, the gradient of a logsumexp is that column's, however coarse the product is
    that the backward reads: the two are rounded alike.
    """
    function = built(CASES["logsumexp"].spec(), tmp_path).steps
    x, w = CASES["logsumexp"].tensors(torch.float16)
    w[3] = x[:1].sign() * 2
    x = (x.abs() + 1) * x[:1].sign()
    product = x.double() @ w.double().T
    assert product.amax() > 100
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(function(x, w).sum(), x)
    wanted = product.softmax(1) @ w.double()
    torch.testing.assert_close(gradient.double(), wanted, rtol=2e-3, atol=2e-3)


def test_a_loss_reads_no_logits_but_those_of_the_targets() -> None:
    case = Case(
        "x:Q, K; w:L, K; at:int64[Q]",
        PRODUCT + "y = logsumexp(h, L) - take(h, at, L)",
        lambda x, w, at: F.cross_entropy(x @ w.T, at, reduction="none"),
    )
    first, last = _steps(case)
    assert len(_of_strips(first)) == 2
    assert gathered(last.op)["h"]


def test_what_strips_gave_is_reduced_once(tmp_path: Path) -> None:
    """Not by each element of a matrix that goes on from it."""
    case = Case(
        "q:Q, K; k:L, K; v:L, P",
        "s = sum(q * k, K)\ne = s / (1 + max(abs(s), Q))\ny = sum(e * v, L)",
        lambda q, k, v: (q @ k.T) / (1 + (q @ k.T).abs().amax(0)) @ v,
    )
    spec = case.spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    planned = (backward.forward, *backward.plan.steps)
    steps = [step for one in planned for step in one.family.steps(one.program) or (one,)]
    assert any(_of_strips(step) for step in steps)
    assert not any(spreads(merged_strips(step.op).values(), step.op.results) for step in steps)
    given = case.tensors(torch.float64)
    compare(built(spec, tmp_path).steps, case.torch, given, range(len(given)), 1e-8)


def test_what_params_decide_is_reduced_as_it_was(tmp_path: Path) -> None:
    """What would tell how many strips there are may not be there."""
    text = """
[op]
name = "chosen"
[inputs]
x = "float[Q, K]"
w = "float[L, K]"
g = "float[L]"
[params]
scales = true
[compute]
h = "sum(x * w, K)"
y = "sum(relu(h), Q) * g if scales else g"
[outputs]
y = "x"
"""
    function = built(read_spec("chosen.toml", text), tmp_path).chosen
    x, w, g = Case("x:Q, K; w:L, K; g:L", "", torch.add).tensors(torch.float64)
    torch.testing.assert_close(function(x, w, g), (x @ w.T).relu().sum(0) * g)
    torch.testing.assert_close(function(x, w, g, scales=False), g)


def test_short_rows_that_are_mapped_back_are_one_kernel() -> None:
    """A tile holds them, as those of a router."""
    assert not _steps(Case("x:Q, K; w:E=16, K", "y = softmax(sum(x * w, K), E)", lambda x, w: (x @ w.T).softmax(1)))


def test_rows_that_are_mapped_back_are_read_once_as_before() -> None:
    """A layer norm reads a row once, whether or not its statistics are known."""
    case = Case(
        "x:Q, K; w:L, K",
        PRODUCT + "y = (h - mean(h, L)) * rsqrt(var(h, L, correction=0) + 1e-5)",
        lambda x, w: F.layer_norm(x @ w.T, (w.shape[0],)),
    )
    assert [_of_strips(step) for step in _steps(case)] == [[], []]


def test_what_the_backward_reads_is_stored_beside_strips() -> None:
    """A logsumexp's gradient goes on from what the matmul gave, in the dtype in which it would read what is stored."""
    spec = CASES["logsumexp"].spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    first, _ = backward.forward.family.steps(backward.forward.program)
    kept = [result for result in first.op.results if result.output.name not in _of_strips(first)]
    assert [(result.when, result.saved, result.dtype.rule) for result in kept] == [("saves", True, "")]
