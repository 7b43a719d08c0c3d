"""Attention and its like: one kernel that stores no scores, and gradients that recompute them, beside a float64 oracle.

The oracle is torch's own of a formula that stands beside each spec, its gradient by autograd.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.cases.streaming_cases import CASES as OF_ONE_AXIS
from tests.cases.streaming_cases import CAUSAL, GROUPED, MEAN, QKV, Case
from tests.cases.streaming_choices import CASES as OF_CHOICES
from tests.cases.streaming_formulas import SIZES, behind, by_documents, causal, full, grouped, with_sink
from tests.cases.streaming_heads import CASES as OF_TWO_AXES
from tests.cases.streaming_images import CASES as OF_IMAGES
from tests.cases.streaming_layouts import CASES as OF_LAYOUTS
from tests.cases.streaming_sums import CASES as OF_SUMS
from tests.harness.importing import built, runtime_module, runtime_of
from tests.harness.oracles import DEVICE, compare
from tritongen.diagnostics.report import Mistakes
from tritongen.families.streaming.program import StreamingProgram
from tritongen.operator.compile import backward_of, forward_of, generate
from tritongen.spec.read import read_spec

CASES = {**OF_ONE_AXIS, **OF_TWO_AXES, **OF_LAYOUTS, **OF_CHOICES, **OF_SUMS, **OF_IMAGES}


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("name", "n_splits", "in_float32"),
    [*zip(CASES, itertools.cycle((3, 7)), itertools.cycle((True, False, False)), strict=False)],
)
def test_values(
    name: str,
    n_splits: int,
    in_float32: bool,
    tmp_path: Path,
    small: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In float64 to its last digits, so that no block is left out, and every third in float32.

    In float64, the forward also of blocks that programs split among themselves, evenly or so that some have none.
    """
    case = CASES[name]
    operator = built(case.spec(), tmp_path)
    small(operator)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-4))[: 1 + in_float32]:
        compare(operator.attend, case.torch, case.tensors(dtype), case.places(), tolerance)
    monkeypatch.setattr(runtime_of(operator, "streaming_heuristics"), "choose_stream_splits", lambda *_: n_splits)
    runtime_of(operator, "launch").LAUNCHES.clear()
    compare(operator.attend, case.torch, case.tensors(torch.float64), (), 1e-9)


def test_gradients_of_groups_whose_keys_have_fewer_leading_axes(tmp_path: Path) -> None:
    """Keys tell how many heads are in a group, and not the leading axes."""
    inputs = GROUPED.replace("B, ", "..., ")
    case = replace(CASES["heads_that_share_keys"], inputs=inputs, outputs="o:q[..., (G R), M, E]")
    operator = built(case.spec(), tmp_path)
    q, k, v = CASES["heads_that_share_keys"].tensors(torch.float64)
    compare(operator.attend, lambda q, k, v: grouped(q, k[None], v[None]), [q, k[0], v[0]], [0, 1, 2], 1e-9)


def test_blocks_between_those_that_are_needed_are_skipped(tmp_path: Path, small: Callable[..., None]) -> None:
    """A NaN in one of them has no effect on rows that need the first positions and a window far behind these."""
    case = CASES["window_and_first"]
    operator = built(case.spec(), tmp_path)
    small(operator)
    q, k, v = (one.requires_grad_() for one in case.tensors(torch.float64))
    seed = torch.randn(q.shape[:-1] + v.shape[-1:], dtype=torch.float64)
    seed[:, :, :32] = 0
    wanted = case.torch(q, k, v)
    gradient = torch.autograd.grad(wanted, q, seed)[0]
    with torch.no_grad():
        k[:, :, 16:32], v[:, :, 16:32] = torch.nan, torch.nan
    found = operator.attend(q, k, v)
    torch.testing.assert_close(found[:, :, 32:], wanted[:, :, 32:], rtol=1e-9, atol=1e-9)
    found = torch.autograd.grad(found, q, seed)[0]
    torch.testing.assert_close(found[:, :, 32:], gradient[:, :, 32:], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_no_scores_are_stored(name: str) -> None:
    """By the forward, nor by its gradient but where that says so: no tensor has both rows and what streams."""
    case = CASES[name]
    spec = case.spec()
    forward = forward_of(spec)
    assert isinstance(forward.program, StreamingProgram)
    backward = backward_of(spec, forward)
    if backward is None:
        return
    assert isinstance(backward.forward.program, StreamingProgram)
    steps = backward.plan.steps
    assert len(steps) == case.steps
    assert sum(isinstance(step.program, StreamingProgram) for step in steps) == case.passes
    for step in (backward.forward, *steps):
        for one in step.family.steps(step.program) or (step,):
            floats = [result for result in one.op.results if result.dtype.kind == "float"]
            scores = [result.output.name for result in floats if {"M", "N"} <= set(result.axes)]
            assert scores in ([], [case.tiles])


def test_matrices_of_different_dtypes(tmp_path: Path, small: Callable[..., None]) -> None:
    """Are multiplied in the widest, and gradients have their own; where they are alike, nothing is converted."""
    inputs = "q:float[B, H, M, D]; k:float[B, H, N, D]; v:float[B, H, N, E]"
    case = Case(inputs, CAUSAL + MEAN, causal, outputs="o:auto[B, H, M, E]")
    operator = built(case.spec(), tmp_path)
    small(operator)
    wide = [one.requires_grad_() for one in Case(QKV, "", full).tensors(torch.float16)]
    exact = [one.detach().double().requires_grad_() for one in wide]
    wanted = causal(*exact)
    seed = torch.randn(wanted.shape, dtype=torch.float64)
    gradients = torch.autograd.grad(wanted, exact, seed)
    for dtypes in ((torch.float16, torch.float32, torch.float64), (torch.float32, torch.float16, torch.float16)):
        leaves = [one.detach().to(dtype).requires_grad_() for one, dtype in zip(wide, dtypes, strict=True)]
        o = operator.attend(*leaves)
        widest = max(dtypes, key=lambda dtype: dtype.itemsize)
        assert o.dtype == widest
        tolerance = 1e-9 if widest == torch.float64 else 1e-5
        torch.testing.assert_close(o.double(), wanted, rtol=tolerance, atol=tolerance)
        found = torch.autograd.grad(o, leaves, seed.to(widest))
        for one, leaf, other in zip(found, leaves, gradients, strict=True):
            assert one.dtype == leaf.dtype
            bound = max(tolerance, 4 * torch.finfo(leaf.dtype).eps)
            torch.testing.assert_close(one.double(), other, rtol=bound, atol=bound)


def test_tables_at_the_same_positions_share_them_and_those_of_one_sum_its_terms() -> None:
    inputs, at = f"{QKV}; table:T[H, P]; other:T[H, P]", "index(M) - index(N) + size(N) - 1"
    for score, results, count in (
        ("sum(q * k, D) * take(table, at, P) + take(other, at, P)", [["dtable_terms"], ["dother_terms"]], 1),
        ("sum(q * k, D) + take(table, at, P) + take(other, 2 * at, P)", [["ds_sum"]], 2),
    ):
        spec = Case(inputs, f"at = {at}\ns = {score}{MEAN}", full, by="table other").spec()
        backward = backward_of(spec, forward_of(spec))
        assert backward is not None
        steps = backward.plan.steps
        found = [[r.output.name for r in s.op.results] for s in steps if isinstance(s.program, StreamingProgram)]
        assert found == results
        every = (one for step in steps for one in (step.family.steps(step.program) or (step,)))
        names = [r.output.name for one in every for r in one.op.results]
        assert sum(name == "at" or name.endswith("positions") for name in names) == count


def test_what_follows_the_mean_is_one_pass_over_rows() -> None:
    """Its gradient reads and writes full rows, though it sums them up: no columns are summed."""
    spec = CASES["gate"].spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    before, *_ = backward.plan.steps
    assert [result.output.name for result in before.op.results] == ["dmean", "delta", "dgate"]
    assert before.family.rows(before.program) == ("B", "H", "M")


def test_a_single_key_has_no_gradient_by_its_score(tmp_path: Path) -> None:
    """Whatever comes of the mean: delta is of the gradient that other steps read, which is of half precision."""
    operator = built(CASES["gate"].spec(), tmp_path)
    q, k, v, gate = (one.requires_grad_() for one in CASES["gate"].tensors(torch.float16))
    o = operator.attend(q, k[:, :, :1], v[:, :, :1], gate)
    (dq,) = torch.autograd.grad(o, [q], torch.randn_like(o))
    assert float(dq.abs().max()) < 1e-5


def test_a_sink_of_rows_that_are_masked_as_a_whole(tmp_path: Path) -> None:
    """Such rows are 0 and have no gradient: all that they have is the sink's."""
    operator = built(CASES["sink"].spec(), tmp_path)
    q, k, v, sink = (one.requires_grad_() for one in CASES["sink"].tensors(torch.float64))
    results = []
    for compute in (operator.attend, with_sink):
        o = compute(q, k[:, :, :20], v[:, :, :20], sink)
        results.append((o, *torch.autograd.grad(o, (q, k, v, sink), torch.ones_like(o))))
    assert not results[0][0][:, :, : SIZES["M"] - 20].any()
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("tiles", "n_cols", "n_splits"),
    [
        (128, 131072, 1),
        (8, 131072, 16),
        (8, 8192, 16),
        (8, 4096, 8),
        (8, 960, 1),
        (8, 0, 1),
        (50, 8192, 3),
        (1, 10**7, 132),
    ],
)
def test_splits_are_about_as_many_as_fill_the_sms(tiles: int, n_cols: int, n_splits: int) -> None:
    """Of 132, as an H100 has, with eight blocks or more each."""
    streaming_heuristics = runtime_module("streaming_heuristics")
    config = streaming_heuristics.streamed_tile(16, 64, 4, 3)
    assert streaming_heuristics.choose_stream_splits(tiles, n_cols, config, torch.device("cpu")) == n_splits


@pytest.mark.parametrize("n_splits", [1, 3])
def test_rows_that_are_masked_as_a_whole(n_splits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are NaN, as torch's softmax is, and others are not; so is lse minus infinity."""
    case = Case(QKV, f"{CAUSAL}\nlse = logsumexp(s, N){MEAN}", causal, outputs="o:q; lse:float32", by="")
    q, k, v = case.tensors(torch.float32)
    k, v = k[:, :, :20], v[:, :, :20]
    operator = built(case.spec(), tmp_path)
    monkeypatch.setattr(runtime_of(operator, "streaming_heuristics"), "choose_stream_splits", lambda *_: n_splits)
    o, lse = operator.attend(q, k, v)
    masked = torch.arange(SIZES["M"]) < SIZES["M"] - 20
    assert torch.equal(o.isnan().all(-1), masked.expand(2, 2, -1))
    assert torch.equal(lse == -torch.inf, masked.expand(2, 2, -1))
    wanted = causal(q[:, :, -20:].double(), k.double(), v.double())
    torch.testing.assert_close(o[:, :, -20:].double(), wanted, rtol=2e-4, atol=2e-4)


def test_blocks_of_other_documents_are_skipped(tmp_path: Path, small: Callable[..., None]) -> None:
    """Forward and backward, by numbers in any order: what streams beyond the document's blocks is never multiplied."""
    case = Case(
        f"{QKV}; of_q:int32[B, M]; of_k:int32[B, N]",
        f"s = where((of_q == of_k) & (index(N) <= index(M)), sum(q * k, D) * 0.25, -inf){MEAN}",
        by_documents,
    )
    operator = built(case.spec(), tmp_path)
    small(operator)
    q, k, v = (torch.randn(2, 2, 48, 24, dtype=torch.float64, requires_grad=True) for _ in range(3))
    documents = torch.tensor([[7, 3, 5], [1, 9, 0]], dtype=torch.int32).repeat_interleave(16, 1)
    seed = torch.randn(2, 2, 48, 24, dtype=torch.float64)
    mask = (documents[:, None, :, None] == documents[:, None, None]) & (behind(q, k) >= 0)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.25)
    gradients = torch.autograd.grad(wanted, (q, k, v), seed)
    for document in range(3):
        others = torch.arange(48) // 16 != document
        spoiled = (one.detach().masked_fill(others[:, None], torch.nan).requires_grad_() for one in (q, k, v))
        leaves = tuple(spoiled)
        o = operator.attend(*leaves, documents, documents)
        found = torch.autograd.grad(o, leaves, seed.masked_fill(others[:, None], torch.nan))
        for one, other in zip((o, *found), (wanted, *gradients), strict=True):
            torch.testing.assert_close(one[:, :, ~others], other[:, :, ~others])


def test_blocks_of_a_document_end_where_the_mask_does(tmp_path: Path, small: Callable[..., None]) -> None:
    """What is past the diagonal is never multiplied, though it is of the same document."""
    inputs = f"{QKV}; of_q:int32[B, M]; of_k:int32[B, N]"
    condition = "(of_q == of_k) & (index(N) <= index(M))"
    case = Case(inputs, f"s = where({condition}, sum(q * k, D) * 0.25, -inf){MEAN}", by_documents, by="")
    operator = built(case.spec(), tmp_path)
    small(operator)
    q, k, v = (torch.randn(2, 2, 48, 24, dtype=torch.float64) for _ in range(3))
    document = torch.zeros(2, 48, dtype=torch.int32)
    spoiled = v.masked_fill(torch.arange(48)[:, None] >= 16, torch.nan)
    found = operator.attend(q, k, spoiled, document, document)[:, :, :16]
    torch.testing.assert_close(found, causal(q, k, v)[:, :, :16])


@pytest.mark.parametrize("rest", ["", " & (index(N) <= index(M))"])
def test_blocks_of_one_document_are_whole_unless_others_lie_between(
    rest: str, tmp_path: Path, small: Callable[..., None]
) -> None:
    """Full blocks compare nothing: documents that come back, or end within a block, have none."""
    inputs = f"{QKV}; of_q:int32[B, M]; of_k:int32[B, N]"
    scores = f"s = where((of_q == of_k){rest}, sum(q * k, D) * 0.25, -inf){MEAN}"
    case = Case(inputs, scores, by_documents)
    lines = generate(case.spec())["kernels.py"].splitlines()
    comparing = [line for line in lines if "of_q == of_k" in line and not line.lstrip().startswith("#")]
    assert comparing
    assert all(line.startswith(" " * 16) for line in comparing)  # under an `if`
    operator = built(case.spec(), tmp_path)
    small(operator)
    q, k, v, seed = (torch.randn(2, 1, 90, 16, dtype=torch.float64) for _ in range(4))
    order = torch.tensor([[3, 3, 1, 3, 3, 2], [5, 5, 5, 4, 4, 4]], dtype=torch.int32)
    documents = torch.cat([order.repeat_interleave(16, 1)[:, :80], order[:, -1:].expand(2, 10)], 1)
    documents[1, 70:75] = 6
    mask = documents[:, None, :, None] == documents[:, None, None]
    mask = mask & (behind(q, k) >= 0) if rest else mask
    leaves = [one.requires_grad_() for one in (q, k, v)]
    o = operator.attend(*leaves, documents, documents)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.25)
    found, exact = ((one, *torch.autograd.grad(one, leaves, seed)) for one in (o, wanted))
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one, other)


def test_layers_of_a_perceptron_are_no_attention() -> None:
    """What is multiplied there is wider than a tile."""
    case = Case("x:T[B, D]; w:T[N, D]; v:T[N, E]", "h = gelu(sum(x * w, D))\no = sum(h * v, N)", full, "o:x", by="")
    assert not isinstance(forward_of(case.spec()).program, StreamingProgram)


@pytest.mark.parametrize("schedule", ["block_k = 32", "block_m = 8", "block_n = 8"])
def test_a_schedule_that_no_kernel_has_is_refused(schedule: str) -> None:
    text = (Path(__file__).parents[2] / "specs" / "attention.toml").read_text(encoding="utf-8")
    with pytest.raises(Mistakes, match=r"holds its heads whole|at least 16"):
        forward_of(read_spec("attention.toml", f"{text}\n[schedule]\n{schedule}\n"))
    forward_of(read_spec("attention.toml", f"{text}\n[schedule]\nblock_m = 32\nnum_stages = 2\n"))


def test_whole_blocks_take_no_mask(tmp_path: Path) -> None:
    """Those of a causal mask are told apart, and those that it masks away are skipped."""
    built(CASES["causal"].spec(), tmp_path)
    text = (tmp_path / "attend" / "kernels.py").read_text()
    assert text.count("blocks_from_start(") == 2
    assert text.count("blocks_between(") == 1
    for line in text.splitlines():
        if "tl.where(" in line and line.startswith(" " * 12):  # in a loop
            assert line.startswith(" " * 16)  # under an `if`


def test_positions_of_a_window_are_compared_as_they_are() -> None:
    """With limits of each row, and not for each score by a difference in int64."""
    text = generate(CASES["window"].spec())["kernels.py"]
    assert text.count("tl.where((row_begin <= cols) & (cols < row_end), s, float('-inf'))") == 3
    assert "behind =" not in text


def test_windows_that_no_int32_holds(tmp_path: Path) -> None:
    """Those that end, or begin, far from all positions, and those of none, whose rows are NaN."""
    operator = built(replace(CASES["window"], by="").spec(), tmp_path)
    q, k, v = CASES["window"].tensors(torch.float32)
    scores = q.double() @ k.double().mT * 0.25
    for window in (2**32 + 1, 2**63 - 1, 0, -(2**63)):
        mask = (behind(q, k) >= 0) & (behind(q, k) < window)
        wanted = torch.softmax(scores.masked_fill(~mask, -torch.inf), -1) @ v.double()
        found = operator.attend(q, k, v, window=window).double()
        torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-4, equal_nan=True)


def test_blocks_are_told_by_what_is_the_same_in_a_tile() -> None:
    """Beside what differs from row to row, which each block is masked by."""
    text = generate(CASES["limits"].spec())["kernels.py"]
    assert "bounds = blocks_from_start(tl.minimum(first_row + 10, n_cols), " in text


def test_whole_blocks_compute_what_is_not_implied() -> None:
    """Of a condition, that is the part by a mask; the other is computed in masked blocks alone."""
    condition = "(index(N) <= index(M)) & keep"
    case = Case(f"{QKV}; keep:bool[B, M, N]", f"s = where({condition}, sum(q * k, D) * 0.25, -inf){MEAN}", by_documents)
    text = generate(case.spec())["kernels.py"]
    assert "s = tl.where(keep, s_sum * 0.25, float('-inf'))" in text
    for line in text.splitlines():
        if "tl.where(" in line and "<=" in line:
            assert line.startswith(" " * 16)  # under an `if`


def test_an_exponential_of_several_sums_is_one_line() -> None:
    """That of a sink is of the dtype of two inputs in one sum, and of three in the other."""
    forward, _ = generate(CASES["sink_in_lse"].spec())["kernels.py"].split("def attend_reduce_kernel")
    assert forward.count("exp2_shifted(s, shift)") == 1


@pytest.mark.parametrize("name", ["heads_that_share_keys", "gradient_by_the_bias"])
def test_turns_that_are_far_apart(
    name: str, tmp_path: Path, small: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads of a group and the batch are summed in turn, also where int32 does not hold where the last one is."""
    for axis, size in {"B": 3 if "bias" in name else 1, "G": 1, "H": 1, "M": 4, "N": 4, "D": 16, "E": 16}.items():
        monkeypatch.setitem(SIZES, axis, size)
    case = CASES[name]
    operator = built(case.spec(), tmp_path)
    small(operator)
    q, *others = case.tensors(torch.float16)
    step = 2**30
    apart = torch.empty(2 * step + q.numel(), dtype=q.dtype)
    strides = (step, 0, 16, 1) if "bias" in name else (0, step, 16, 1)
    results = []
    for one in (q, apart.as_strided(q.shape, strides).copy_(q)):
        leaves = [leaf.detach().requires_grad_() for leaf in (one, *others)]
        o = operator.attend(*leaves)
        results.append(torch.autograd.grad(o, leaves, torch.ones_like(o)))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


HALF = (2**-10.9, 0.0) if DEVICE == "cuda" else (0.0, 1.2e-5)  # The hardware's tanh, and that of the interpreter.


@pytest.mark.parametrize(
    ("dtype", "rtol", "atol"), [(torch.float32, 1e-6, 0.0), (torch.float16, *HALF), (torch.float64, 1e-14, 0.0)]
)
def test_a_cap_of_scores(dtype: torch.dtype, rtol: float, atol: float, tmp_path: Path) -> None:
    """Its tanh is exact to the last digits, and of half precision as exact as float16."""
    compute = f"s = 30.0 * tanh(sum(q * k, D) / 30.0)\nlse = logsumexp(s, N){MEAN}"
    outputs = f"o:q; lse:{'float64' if dtype == torch.float64 else 'float32'}"
    operator = built(Case(QKV, compute, full, outputs=outputs, by="").spec(), tmp_path)
    q, k = torch.zeros(1, 1, 512, 16, dtype=dtype), torch.ones(1, 1, 1, 16, dtype=dtype)
    q[..., 0] = torch.linspace(-9, 9, 512, dtype=torch.float64).exp2().to(dtype) * torch.tensor([-1, 1]).repeat(256)
    _, lse = operator.attend(q, k, k)
    wanted = 30 * torch.tanh(q[..., 0].double() / 30)
    torch.testing.assert_close(lse.double(), wanted, rtol=rtol, atol=atol)
