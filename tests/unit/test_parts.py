"""The parts of an operator that the planner looks at: each is built once, and only if one kernel may compute it."""

from __future__ import annotations

from collections import Counter

import pytest

from tritongen.families import registry
from tritongen.families.family import Families, Step
from tritongen.families.several import operators
from tritongen.families.steps import restricted
from tritongen.lang.ir import Op, Reduce, Result, walk
from tritongen.lowering.tile import needed
from tritongen.operator.compile import backward_of, forward_of
from tritongen.spec.read import read_spec

TOWERS = """
[op]
name = "contrastive"
summary = "The contrastive loss of images and texts."
[types]
T = "float"
[inputs]
images = "T[M, I]"
texts = "T[N, J]"
w = "T[I, D]"
v = "T[J, D]"
[compute]
a = "sum(images * w, I)"
b = "sum(texts * v, J)"
a_unit = "a * rsqrt(sum(a * a, D) + 1e-6)"
b_unit = "b * rsqrt(sum(b * b, D) + 1e-6)"
logits = "sum(a_unit * b_unit, D) / 0.07"
both = "log_softmax(logits, N) + log_softmax(logits, M)"
loss = "-0.5 * sum(where(index(M) == index(N), both, 0), M, N) / size(M)"
[outputs]
loss = "images"
[grad]
wrt = ["images", "texts", "w", "v"]
"""


def _plan() -> None:
    operators.part_of.cache_clear()
    registry._part_taken.cache_clear()
    registry._several_of.cache_clear()
    spec = read_spec("contrastive.toml", TOWERS)
    backward_of(spec, forward_of(spec))


def test_parts_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though many cuts, and several plans of a gradient, have them in common."""
    built = Counter[tuple[Op, tuple[Result, ...]]]()

    def counted(op: Op, results: tuple[Result, ...], suffix: str) -> Op:
        built[op, results] += 1
        return restricted(op, results, suffix)

    monkeypatch.setattr(operators, "restricted", counted)
    _plan()
    assert len(built) > 100
    assert set(built.values()) == {1}


def test_results_are_tried_together_along_the_same_axes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel goes through all axes of one of its results: no family is asked for others."""
    asked: list[Op] = []
    taken = registry._taken

    def noted(op: Op, candidates: Families) -> Step | None:
        asked.append(op)
        return taken(op, candidates)

    monkeypatch.setattr(registry, "_taken", noted)
    _plan()
    together = [op for op in asked if len(op.results) > 1 and not op.name.endswith("_backward")]
    assert together
    for op in together:
        spaces = [_space(op, result) for result in op.results]
        assert frozenset[str]().union(*spaces) in spaces


def _space(op: Op, result: Result) -> frozenset[str]:
    nodes = [node for value in needed(op.values, [result.output.name]) for node in walk(value.node)]
    over = {axis for node in nodes if isinstance(node, Reduce) for axis in node.over}
    strips = {one.axis for one in op.strips}
    return frozenset({*result.axes, *over, *(axis for node in nodes for axis in node.axes)} - strips)
