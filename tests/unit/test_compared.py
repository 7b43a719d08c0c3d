"""What a gradient compares with its largest is the same in each kernel: no compiler fuses its products or quotients."""

from __future__ import annotations

import pytest
import torch

from tests.cases.step_cases import Case
from tritongen.lang.ir import Call, Op, walk
from tritongen.lang.unparse import spelled
from tritongen.operator.compile import backward_of, forward_of


def _calls(op: Op, rounded: bool) -> set[str]:
    """The functions of an operator in which products are rounded, or the others, as the spec spells them."""
    nodes = [node for value in op.values for node in walk(value.node)]
    return {spelled(node) for node in nodes if isinstance(node, Call) and node.rounded == rounded}


@pytest.mark.parametrize(
    ("compute", "rounded"),
    [
        ("y = max(x * w + b, N)", {"x * w"}),
        ("y = min(b - square(x), N) + w", {"square(x)"}),
        ("h = x * w\ny = max(sigmoid(h) - h, N) + b", {"x * w", "sigmoid(h)"}),
        ("h = w / x\ny = max(h + b, N)", {"w / x"}),
        ("y = max(log(x) * 2 + exp(w), N) + b", {"log(x) * 2", "exp(w)"}),
        ("y = max(abs(x / w) + maximum(x, w), N) + b", {"x / w", "maximum(x, w)"}),
        ("h = where(b > 0, x * w, 0.125) + 1\ny = max(exp(h) * w, N)", {"x * w"}),
        ("y = max(abs(softplus(x)) + b, N) * w", {"softplus(x)"}),
        ("y = max(lerp(x, b, w), N)", {"lerp(x, b, w)"}),
        # Nothing is added to these.
        ("y = max(abs(x * w), N) + b", set()),
        ("y = max(x / w, N) + b", set()),
        ("y = max(relu(x) + where(b > 0, x, w), N)", set()),
        ("y = max((x + b) * w, N)", set()),
        ("y = max(x * w, N) + b", set()),
        ("y = log(max(w * x, N) + 1) * b", set()),
        # The gradient reads a sum as the forward saved it, and nothing is compared with what only shifts a softmax.
        ("y = max(x + sum(x * w, N), M) - b", set()),
        ("y = softmax(x * w + b, N)", set()),
        ("y = argmax(x * w + b, N) * x", set()),
    ],
)
def test_products_that_are_rounded(compute: str, rounded: set[str]) -> None:
    spec = Case("x:M, N; w:N; b:M, N", compute, torch.nn.functional.relu, wrt="x").spec()
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    assert backward is not None
    assert _calls(forward.op, True) == set(), "without a gradient, nothing is compared"
    assert _calls(backward.forward.op, True) == rounded
    for op in (backward.forward.op, *(step.op for step in backward.plan.steps)):
        assert not rounded & _calls(op, False)
    hits = [part for step in backward.plan.steps for part in _compared(step.op)]
    assert hits or not rounded


def _compared(op: Op) -> list[Call]:
    nodes = [node for value in op.values for node in walk(value.node)]
    return [node for node in nodes if isinstance(node, Call) and node.function == "eq"]
