"""Rounds recomputed values of a gradient, if the forward summed their exponentials as stored, thus rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..autodiff.gradient import Gradient
from ..families.family import Step
from ..lang.ir import Cast, Dtype
from ..lang.unparse import spelled
from ..passes.exponentials import exp_pairs
from ..planner.strips import made_for, reduced_by_strips


def rounded_as_stored(gradient: Gradient, forward: Step) -> Gradient:
    """The gradient, whose exponentials add up to the sums that the forward saves.

    A score of 1,000 is rounded to bfloat16 by up to 2, and its exponential would differ from the one in the sum by a
    factor of up to e^2.
    """
    stored = _summed_as_stored(forward.family.steps(forward.program))
    values = []
    for value in gradient.op.values:
        if value.name in stored:
            node = Cast(value.node, stored[value.name], value.node.axes)
            value = replace(value, node=node, source=spelled(node) if value.source else "")
        values.append(value)
    return replace(gradient, op=replace(gradient.op, values=tuple(values)))


def _summed_as_stored(steps: Sequence[Step]) -> dict[str, Dtype]:
    """The rounded values that steps store and sum exponentials of, with their stored dtypes."""
    stored = {result.output.name: result.dtype for step in steps for result in step.op.results if not result.saved}
    summed: set[str] = set()
    for step in steps:
        if exp_pairs(step.op):
            summed |= {tensor.name for tensor in step.op.inputs}
        for strips in reduced_by_strips(step.op):
            summed |= made_for(step.op, strips)
    dtypes = {name: _of_inputs(dtype, stored) for name, dtype in stored.items() if name in summed}
    return {
        name: dtype
        for name, dtype in dtypes.items()
        if dtype.kind == "float" and len(dtype.leaves) == 1 and not dtype.rule
    }


def _of_inputs(dtype: Dtype, stored: Mapping[str, Dtype]) -> Dtype:
    """The stored dtype of another step's value, in terms of the operator's own inputs, which a gradient knows."""
    while len(dtype.of) == 1 and dtype.of[0] in stored and stored[dtype.of[0]] != dtype:
        dtype = stored[dtype.of[0]]
    return dtype
