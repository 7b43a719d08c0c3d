"""Attention whose heads have two axes: the kernels are those of one, whatever dimensions tensors have for these."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.cases.gluon import CAUSAL, GRADIENT, IS_HOPPER, QKV, drawn, launching, masked_scores, spec_of
from tests.cases.streaming_cases import CASES as OF_ONE_AXIS
from tests.cases.streaming_formulas import SIZES, full
from tests.cases.streaming_heads import CASES, ROTARY, flat
from tests.harness.importing import built
from tests.harness.oracles import compare
from tritongen.families.streaming.program import StreamingProgram
from tritongen.operator.compile import forward_of, generate

HALVES = QKV.replace("M, D", "M, (P=2 D)").replace("N, D", "N, (P=2 D)")
OF_HALVES = CAUSAL.replace("q * k, D", "q * k, P, D")


@pytest.mark.parametrize("name", ["kernels.py", "gluon_kernels.py"])
def test_kernels_are_those_of_one_axis(name: str) -> None:
    """Of the forward and of all gradients."""
    two, one = (
        generate(spec_of(compute, inputs, more=GRADIENT))[name]
        for compute, inputs in ((OF_HALVES, HALVES), (CAUSAL, QKV))
    )
    for own, other in (("p_d_mask", "d_mask"), ("_p_d", "_d"), ("P_D", "D")):
        two = re.sub(rf"{own}\b", other, two)
    assert two.replace("q * k, P, D", "q * k, D") == one


def test_gluon_kernels_are_launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two halves of 64 elements, as of one head of 128."""
    operator, names = launching(spec_of(OF_HALVES, HALVES, more=GRADIENT), tmp_path, monkeypatch)
    given = [one.requires_grad_() for one in drawn((200, 128), (130, 128), (130, 96))]
    (do,) = drawn((200, 96))
    exact = [one.detach().double().requires_grad_() for one in given]
    s, v = masked_scores(*exact, 0.1)
    wanted = torch.softmax(s, -1) @ v
    for _ in range(2 if IS_HOPPER else 1):
        found = operator.attend(*given, scale=0.1)
        torch.testing.assert_close(found.double(), wanted, rtol=3e-3, atol=3e-3)
        every = ((found, given), (wanted, exact))
        gradients = [torch.autograd.grad(o, by, do.to(o), retain_graph=True) for o, by in every]
        pairs = zip(*gradients, strict=True)
        assert all((one.double() - other).norm() <= 8e-3 * other.norm() for one, other in pairs)
    assert names[:3] == [f"attend_{name}gluon_kernel" for name in ("", "backward_dq_", "backward_dk_dv_")]


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its last dimensions the other way around in memory."""
    return tensor.mT.contiguous().mT


def _part(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as a part of a larger one."""
    return torch.cat((tensor, tensor), -1)[..., : tensor.shape[-1]]


@pytest.mark.parametrize("change", [_turned, _part])
@pytest.mark.parametrize("places", [(0,), (1, 2), (0, 1, 2)])
def test_dimensions_that_no_view_makes_one(
    places: tuple[int, ...], change: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path, small: Callable[..., None]
) -> None:
    """Are copied, in calls that launch again what a first one has launched, too."""
    case = CASES["dimensions"]
    operator = built(case.spec(), tmp_path)
    small(operator)
    for scale in (1.0, 0.5):
        given = [change(scale * one) if n in places else one for n, one in enumerate(case.tensors(torch.float64))]
        compare(operator.attend, case.torch, given, case.places(), 1e-9)


def test_leading_axes_that_do_not_fold(tmp_path: Path, small: Callable[..., None]) -> None:
    """The function calls itself with what is contiguous, and has the dimensions that callers know."""
    case = CASES["dimensions_of_leading_axes"]
    operator = built(case.spec(), tmp_path)
    small(operator)
    random = torch.Generator().manual_seed(0)
    axes = [("M", "C", "D"), ("N", "C", "D"), ("N", "F", "K")]
    given = [torch.randn((2, 3, 2, 2, *(SIZES[axis] for axis in one)), generator=random).double() for one in axes]
    given[1] = given[1].transpose(0, 2).contiguous().transpose(0, 2)
    given[2] = given[2].transpose(1, 3).contiguous().transpose(1, 3)
    compare(operator.attend, flat(full), given, case.places(), 1e-9)


@pytest.mark.parametrize("is_given", [True, False])
def test_an_optional_gate(is_given: bool, tmp_path: Path, small: Callable[..., None]) -> None:
    """With the axes of values that the stream sees as one."""
    case = CASES["dimensions_of_values"]
    compute = case.compute.replace("sigmoid(gate)", "gate")
    optional = replace(case, inputs=f"{case.inputs} = 1", by="q k v", compute=compute)
    operator = built(optional.spec(), tmp_path)
    small(operator)
    *qkv, gate = case.tensors(torch.float64)
    given = [*qkv, gate] if is_given else qkv

    def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor | float = 1.0) -> torch.Tensor:
        return full(q, k, v.flatten(-2)).unflatten(-1, v.shape[-2:]) * gate

    compare(operator.attend, formula, given, [0, 1, 2], 1e-9)


def test_no_heads_of_one_axis_are_merged() -> None:
    """Nor axes of the batch, though all tensors but a few may have the same."""
    for case in OF_ONE_AXIS.values():
        program = forward_of(case.spec()).program
        assert isinstance(program, StreamingProgram)
        assert program.merged.every == ()


def test_angles_of_another_dtype(tmp_path: Path, small: Callable[..., None]) -> None:
    """What is turned by float32 is cast, so that one dtype is multiplied."""
    case = ROTARY["rotary"]
    compute = re.sub(r"^(.)r = (.*)$", r"\1r = cast(\2, \1)", case.compute, flags=re.MULTILINE)
    inputs = case.inputs.replace("T[M, D]", "float32[M, D]").replace("T[N, D]", "float32[N, D]")
    other = replace(case, inputs=inputs, compute=compute)
    operator = built(other.spec(), tmp_path)
    small(operator)
    given = other.tensors(torch.float16)
    found = operator.attend(*given)
    wanted = case.torch(*(one.double() for one in given))
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.double(), wanted, rtol=2e-3, atol=2e-3)
