"""Attention with probabilities of 0, with other sums beside its own, or with axes in other orders."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.cases.streaming_cases import QKV, Case
from tests.cases.streaming_choices import CASES as OF_CHOICES
from tests.cases.streaming_choices import probabilities
from tests.cases.streaming_formulas import SIZES, behind, masked, scores, with_sink
from tests.cases.streaming_images import CASES as OF_IMAGES
from tests.cases.streaming_layouts import CASES as OF_LAYOUTS
from tests.cases.streaming_sums import CASES as OF_SUMS
from tests.cases.streaming_sums import apart
from tests.harness.importing import built
from tests.harness.oracles import compare
from tritongen.families.streaming.program import StreamingProgram
from tritongen.operator.compile import backward_of, forward_of, generate


@pytest.mark.parametrize("name", OF_LAYOUTS)
def test_positions_are_rows_and_stream(name: str) -> None:
    """Whatever the order of the axes of tensors: heads do not, though they too are axes that keys lack."""
    spec = OF_LAYOUTS[name].spec()
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    assert backward is not None
    streams = [step.family.stream(step.program) for step in (forward, *backward.plan.steps)]
    assert {(one.rows, one.streamed) for one in streams if one is not None} == {("M", "N"), ("N", "M")}


@pytest.mark.parametrize("name", ["masked_probabilities", "probabilities_of_padding"])
def test_probabilities_that_are_masked_as_a_whole(name: str, tmp_path: Path) -> None:
    """They are 0 where the spec says so, of rows of which a sequence has none, and there are no gradients by these."""
    operator = built(OF_CHOICES[name].spec(), tmp_path)
    *qkv, flags = OF_CHOICES[name].tensors(torch.float64)
    is_kept = name == "masked_probabilities"
    flags[0] = not is_kept
    mask = (flags if is_kept else ~flags)[:, None, None]
    mask = mask & torch.ones(SIZES["M"], SIZES["N"], dtype=torch.bool).tril() if is_kept else mask
    found = compare(
        operator.attend, lambda q, k, v, _: probabilities(scores(q, k), mask) @ v, [*qkv, flags], [0, 1, 2], 1e-9
    )
    assert not any(one[0].any() for one in found)


def test_a_sink_of_rows_without_keys_beside_their_lse(tmp_path: Path) -> None:
    """Fully masked rows are 0, their lse is minus infinity, and none has a gradient."""
    operator = built(OF_SUMS["sink_and_lse_without"].spec(), tmp_path)
    q, k, v, sink = (one.requires_grad_() for one in OF_SUMS["sink_and_lse_without"].tensors(torch.float64))
    o, lse = operator.attend(q, k[:, :, :20], v[:, :, :20], sink)
    first = SIZES["M"] - 20
    assert not o[:, :, :first].any()
    assert (lse[:, :, :first] == -torch.inf).all()
    outgoing = torch.ones_like(o), torch.ones_like(lse)
    found = torch.autograd.grad((o, lse), (q, k, v, sink), outgoing)
    s = masked(scores(q, k[:, :, :20]), behind(q, k[:, :, :20]) >= 0)[:, :, first:]
    wanted = with_sink(q, k[:, :, :20], v[:, :, :20], sink)[:, :, first:], torch.logsumexp(s, -1)
    gradients = torch.autograd.grad(wanted, (q, k, v, sink), tuple(one[:, :, first:] for one in outgoing))
    for one, other in zip(found, gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", OF_IMAGES)
def test_positions_of_images(name: str) -> None:
    """Stream as one axis where the math goes along both together; no scores are stored."""
    spec = OF_IMAGES[name].spec()
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    assert backward is not None
    assert (forward.stored, backward.stored) == (None, None)
    program = forward.program
    assert isinstance(program, StreamingProgram)
    apart = "image_with_relative_positions", "image_up_to_a_position_by_its_lse"
    joined = [] if name in apart else [("X", "Y")]
    assert [group for _, group in program.merged.every] == joined
    assert program.stream.outer_axes == (() if joined else ("X",))


@pytest.mark.parametrize(
    ("name", "flags"), [("masked_probabilities", "keep"), ("probabilities_of_padding", "pad"), ("dropout", "keep")]
)
def test_booleans_beside_float64_are_int32(name: str, flags: str) -> None:
    """Triton 3.6 refuses a matmul of float64 whose operand is made of bytes, of rows and of columns too."""
    files = generate(OF_CHOICES[name].spec())
    assert files["op.py"].count(f"{flags}.int()") == 3
    assert f"{flags} = tl.load(" in files["kernels.py"]


def test_the_gradient_of_a_bias_over_no_batches(tmp_path: Path) -> None:
    """A tile reads no queries then, whose dtype tells how exact the derivative of its tanh is."""
    case = OF_SUMS["tanh_of_a_bias"]
    operator = built(case.spec(), tmp_path)
    for dtype in (torch.float16, torch.float32):
        q, k, v, bias = case.tensors(dtype)
        given = [one[:0].requires_grad_() for one in (q, k, v)], bias.requires_grad_()
        o = operator.attend(*given[0], given[1])
        (found,) = torch.autograd.grad(o.sum(), given[1])
        assert found.shape == bias.shape
        assert not found.any()


def test_tiles_that_read_the_same_norms(tmp_path: Path) -> None:
    """A step before both tells them, once."""
    compute = "qn = q * rsqrt(sum(q * q, D) + 1e-6)\nat = clamp(index(M) - index(N), -4, 4) + 4\n"
    compute += "s = sum(qn * k, D) + bias + 2 * take(table, at, I)\no = sum(softmax(s, N) * v, N)"

    def attend(*tensors: torch.Tensor) -> torch.Tensor:
        q, k, v, bias, table = tensors
        qn = q * (q.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
        return torch.softmax(qn @ k.mT + bias + 2 * table[:, apart(q, k).clamp(-4, 4) + 4], -1) @ v

    case = Case(f"{QKV}; bias:T[H, M, N]; table:T[H, I=9]", compute, attend, by="q k v bias table")
    backward = backward_of(case.spec(), forward_of(case.spec()))
    assert backward is not None
    told = [result.output.name for step in backward.plan.steps for result in step.op.results]
    assert len(told) == len({*told})
    compare(built(case.spec(), tmp_path).attend, attend, case.tensors(torch.float64), case.places(), 1e-9)
