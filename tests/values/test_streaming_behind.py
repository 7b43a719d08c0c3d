"""Attention with reductions and matmuls before and behind it, and several attentions: no scores are stored, forward or
backward.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from importing import built
from oracles import compare
from streaming_before import CASES as BEFORE
from streaming_behind import CASES as BEHIND
from streaming_heads import ROTARY
from streaming_several import CASES as SEVERAL

from tritongen.families.family import Step
from tritongen.families.streaming.program import StreamingProgram
from tritongen.operator.compile import backward_of, forward_of, generate

CASES = {**BEFORE, **BEHIND, **ROTARY, **SEVERAL}
SCORES = [{"M", "N"}, {"M", "L"}]


def each(steps: Iterable[Step]) -> list[Step]:
    """Steps, and those that others are made of instead of these."""
    return [one for step in steps for one in (step.family.steps(step.program) or (step,))]


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path, small: Callable[..., None]) -> None:
    case = CASES[name]
    operator = built(case.spec(), tmp_path)
    small(operator)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-4)):
        compare(operator.attend, case.torch, case.tensors(dtype), case.places(), tolerance)


@pytest.mark.parametrize("name", CASES)
def test_no_scores_are_stored(name: str) -> None:
    """What follows is differentiated first, in steps of other families, and then what streams is."""
    case = CASES[name]
    spec = case.spec()
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    assert backward is not None
    steps = each(backward.plan.steps)
    assert len(steps) == case.steps
    assert sum(isinstance(step.program, StreamingProgram) for step in steps) == case.passes
    for step in each((forward, backward.forward, *steps)):
        assert not [one for one in step.op.results if any(axes <= {*one.axes} for axes in SCORES)]
    assert (forward.stored, backward.stored) == (None, None)


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
