"""Gradients that the forward writes: what is derived, where it goes, and the order of reads and writes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.harness.importing import built
from tests.harness.oracles import DEVICE
from tritongen.operator.compile import backward_of, forward_of, generate
from tritongen.spec.read import read_spec
from tritongen.spec.types import Grad, Spec

ROOT = Path(__file__).parents[2]


def spec_of(path: Path) -> Spec:
    return read_spec(path.name, path.read_text(encoding="utf-8"))


def imported(spec: Spec, folder: Path) -> Any:
    return getattr(built(spec, folder), spec.name)


LOSS = spec_of(ROOT / "specs" / "cross_entropy_in_place.toml")
MARGIN = spec_of(ROOT / "tests" / "specs" / "gradient_in_place_margin.toml")
PAIR = spec_of(ROOT / "tests" / "specs" / "gradient_ahead_pair.toml")


def in_place(spec: Spec) -> Spec:
    assert spec.grad is not None
    return replace(spec, grad=replace(spec.grad, write="in_place"))


def test_formulas() -> None:
    """The gradient of a sum: that of the result is 1, and nothing is read of it."""
    backward = backward_of(LOSS, forward_of(LOSS))
    assert backward is not None
    joint, scaled = (step.op for step in backward.plan.steps)
    assert [tensor.name for tensor in joint.inputs] == ["logits", "target"]
    assert [result.output.name for result in joint.results] == ["loss", "dlogits"]
    assert [f"{v.name} = {v.source}" for v in joint.values if v.source][-4:] == [
        "dsmoothing_term = where(valid, 1, 0.0)",
        "dnll = (1 - label_smoothing) * dsmoothing_term",
        "valid_where = where(label_smoothing > 0, dsmoothing_term, 0.0)",
        "dlogits = where(index(V) == where(valid, target, 0), -dnll, 0.0)"
        " + (label_smoothing * valid_where + dnll) * exp(logits - lse)"
        " - label_smoothing / size(V) * valid_where",
    ]
    assert [f"{value.name} = {value.source}" for value in scaled.values] == ["dlogits = dlogits * dloss"]
    assert backward.forward.op.results == forward_of(LOSS).op.results


def kernels(spec: Spec) -> dict[str, list[str]]:
    """The lines of each kernel, by name."""
    parts = re.split(r"@triton\.jit.*\ndef (\w+)\(", generate(spec)["kernels.py"])
    return {name: text.split("\n\n\n")[0].splitlines() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize("spec", [LOSS, MARGIN, in_place(PAIR)], ids=lambda spec: spec.name)
def test_rows_are_read_before_they_are_overwritten(spec: Spec) -> None:
    """By all threads: but for its own element of the last walk, none reads behind the barrier."""
    found = kernels(spec)
    whole = found[f"{spec.name}_with_gradient_kernel"]
    (barrier,) = (n for n, line in enumerate(whole) if "tl.debug_barrier()" in line)
    after = [line.strip() for line in whole[barrier + 1 :] if line.strip()]
    names = [f"d{name}" for name in spec.grad.wrt] if spec.grad else []
    assert not any("tl.load(" in line for line in after)
    assert sum(any(f"tl.store({name}_" in line for name in names) for line in after) == len(names)
    walked = found[f"{spec.name}_with_gradient_loop_kernel"]
    (barrier,) = (n for n, line in enumerate(walked) if "tl.debug_barrier()" in line)
    behind = "\n".join(walked[barrier:])
    assert "for start in range" in behind
    read = re.findall(r"tl\.load\((\w+)", behind)
    assert set(read) <= {f"{tensor.name}_row" for tensor in spec.inputs} | {"weight_ptr"}
    assert not any(f"tl.store(d{name}_" in line for name in names for line in walked[:barrier])


def test_nothing_is_in_the_way_of_other_kernels() -> None:
    """A gradient in memory of its own needs no barrier."""
    assert not any("debug_barrier" in line for lines in kernels(PAIR).values() for line in lines)


def test_rows_of_a_sum_are_not_touched() -> None:
    lines = kernels(LOSS)["cross_entropy_in_place_backward_kernel"]
    skip = next(n for n, line in enumerate(lines) if "row_mask = row_mask & (dloss != 1)" in line)
    assert lines[skip + 1 :][:2] == ["    if tl.sum(row_mask.to(tl.int32)) == 0:", "        return"]
    assert not any("dlogits_row + cols" in line for line in lines[:skip])


@pytest.mark.parametrize("count", [40, 5000])
def test_memory(tmp_path: Path, count: int) -> None:
    """Elements that share memory, or inputs that may, keep what is theirs; all else is overwritten."""
    pair = imported(in_place(PAIR), tmp_path)
    torch.manual_seed(0)
    leaf = torch.randn(3, 2, count, dtype=torch.float64, device=DEVICE, requires_grad=True)

    def given() -> tuple[torch.Tensor, torch.Tensor]:
        x, other = (leaf * 1.5).unbind(1)
        return x, other

    want = torch.autograd.grad(torch.nn.functional.smooth_l1_loss(*given(), reduction="sum", beta=0.5) / count, leaf)[0]
    x, other = given()
    apart = [x.clone(), other.clone()]
    got = torch.autograd.grad(pair(*apart)[0].sum(), [*apart, leaf])
    assert [one.data_ptr() for one in got[:2]] == [one.data_ptr() for one in apart]
    torch.testing.assert_close(got[2], want)
    together = given()  # Of one storage.
    before = [one.detach().clone() for one in together]
    (got_together,) = torch.autograd.grad(pair(*together)[0].sum(), leaf)
    torch.testing.assert_close([one.detach() for one in together], before, rtol=0, atol=0)
    torch.testing.assert_close(got_together, want)
    row = (leaf[0, 0] * 1.5).clone()
    wide = row.expand(3, count)
    total = pair(wide, other.detach())[0].sum()
    torch.testing.assert_close(row.detach(), leaf[0, 0].detach() * 1.5, rtol=0, atol=0)
    alone = (leaf[0, 0] * 1.5).expand(3, count)
    usual = torch.nn.functional.smooth_l1_loss(alone, other.detach(), reduction="sum", beta=0.5) / count
    assert torch.allclose(torch.autograd.grad(total, leaf)[0], torch.autograd.grad(usual, leaf)[0])


def test_only_what_is_asked_for_is_overwritten(tmp_path: Path) -> None:
    pair = imported(in_place(PAIR), tmp_path)
    leaf = torch.randn(4, 9, device=DEVICE, requires_grad=True)
    x, other = leaf * 1, torch.randn(4, 9, device=DEVICE)
    before = other.clone()
    version = x._version
    loss, agree = pair(x, other)
    assert (loss.requires_grad, agree.requires_grad) == (True, False)
    assert (x._version, other._version) == (version + 1, 0)
    torch.testing.assert_close(other, before, rtol=0, atol=0)


def test_a_later_change_of_the_memory_is_told(tmp_path: Path) -> None:
    """The gradient lies in the logits: what overwrites them after the call overwrites that."""
    loss_of = imported(LOSS, tmp_path)
    leaf = torch.randn(4, 9, device=DEVICE, requires_grad=True)
    logits = leaf * 1
    loss = loss_of(logits, torch.zeros(4, dtype=torch.int64, device=DEVICE)).sum()
    with torch.no_grad():
        logits.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_leaf_within_a_buffer_is_not_overwritten(tmp_path: Path) -> None:
    loss_of = imported(LOSS, tmp_path)
    leaf = torch.randn(2, 4, 9, device=DEVICE)[0].requires_grad_()
    with pytest.raises(RuntimeError, match="is a leaf that requires grad"):
        loss_of(leaf, torch.zeros(4, dtype=torch.int64, device=DEVICE))


def test_what_is_written_can_be_said() -> None:
    assert Grad(("x",)).write == "backward"
    assert LOSS.grad == Grad(("logits",), None, "in_place")
    text = generate(LOSS)["op.py"]
    assert "Under autograd this writes dlogits, for an incoming gradient of 1, over logits" in text
    assert "RuntimeError: for a second backward, or to write over a leaf that requires grad." in text
    plain = generate(PAIR)["op.py"]
    assert "Under autograd this writes dx and dother, for an incoming gradient of 1, into new" in plain


@pytest.mark.parametrize("write", ["forward", "in_place"])
@pytest.mark.parametrize(
    "formula", ["sum(x, N) + beta", "beta * mean(x, N)", "where(beta > 1, 0, sum(x, N) / size(N))"]
)
def test_gradients_that_are_one_number_for_each_row(tmp_path: Path, formula: str, write: str) -> None:
    """They are stored along the row nevertheless, of rows in registers and of rows that are walked along."""
    text = f"""
        op = {{ name = "row_total", summary = "A value for each row." }}
        inputs = {{ x = "float[M, N]" }}
        params = {{ beta = 0.5 }}
        compute = {{ y = "{formula}" }}
        outputs = {{ y = "x" }}
        grad = {{ wrt = ["x"], write = "{write}" }}
        reference = {{ torch = "x.sum(-1) * beta" }}
    """
    total = imported(read_spec("row_total.toml", text), tmp_path)
    for count in (40, 20_000):
        leaf = torch.randn(3, count, dtype=torch.float64, device=DEVICE, requires_grad=True)
        seed = torch.tensor([1.0, -2.0, 0.25], dtype=torch.float64, device=DEVICE)
        factor = {"sum(x, N) + beta": 1.0, "beta * mean(x, N)": 0.5 / count}.get(formula, 1 / count)
        want = leaf.detach().sum(1) * factor + (0.5 if factor == 1 else 0)
        y = total(leaf * 1)
        torch.testing.assert_close(y.detach(), want)
        (got,) = torch.autograd.grad(y, leaf, seed)
        torch.testing.assert_close(got, (seed * factor)[:, None].expand(3, count))


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 0.0])
def test_rows_that_do_not_count(tmp_path: Path, number: float) -> None:
    """They have no gradient, whatever comes in, as where the backward writes."""
    ahead = imported(LOSS, tmp_path)
    logits = torch.randn(4, 9, device=DEVICE)
    target = torch.tensor([1, -100, 8, -100], device=DEVICE)
    given = (logits.clone().requires_grad_() * 1).requires_grad_()
    (got,) = torch.autograd.grad(ahead(given, target), given, torch.full((4,), number, device=DEVICE))
    assert not got[target == -100].any()
    assert got[target != -100].isfinite().all() == (number == 0)
