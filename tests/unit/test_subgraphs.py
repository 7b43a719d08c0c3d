"""How many operators the planner offers to families: each once, and only if one kernel may compute it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import pytest

from tritongen.families.family import Families
from tritongen.families.registry import Alone, families_of_steps, step_of
from tritongen.lang.ir import Op, Reduce, Result, walk
from tritongen.lang.typecheck import typecheck
from tritongen.lowering.tile import needed
from tritongen.passes.structure import name_reductions
from tritongen.plan.backward import plan_operator
from tritongen.planner.cut import cut
from tritongen.planner.pruning import Pruning
from tritongen.planner.stored import may_be_stored
from tritongen.planner.subgraphs import Subgraph, Subgraphs
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


# Rows and columns, sums of both at once, and what goes on from either.
ATTENTIONS = """
[op]
name = "attentions"
[inputs]
q = "float[M, D]"
k = "float[N, D]"
j = "float[N, D]"
v = "float[N, E]"
[compute]
s = "sum(q * k, D)"
p = "softmax(where(index(M) >= index(N), s, -inf), N)"
t = "sum(q * j, D)"
o = "sum(p * v, N) - sum(softmax(t, N) * v, N)"
y = "o * rsqrt(mean(o * o, E) + 1e-5)"
[outputs]
y = "auto"
"""
NORMS = """
[op]
name = "norms"
[inputs]
x = "float[M, N]"
w = "float[N]"
[compute]
a = "x - mean(x, N)"
b = "a * rsqrt(mean(a * a, M) + 1e-5) * w"
dw = "sum(b * x, M)"
y = "b + max(b, N) * sum(a, M)"
z = "softmax(y, N) + dw"
[outputs]
y = "auto"
z = "auto"
dw = "auto"
"""


class Asked:
    """A family that takes nothing, and notes what it is offered."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def take(self, op: Op) -> None:
        self.ops.append(op)


@pytest.fixture(scope="module")
def asked() -> list[Op]:
    """All that is offered in a plan, of which no other test has parts."""
    family: Any = Asked()
    families: Families = (family, *families_of_steps(is_registered=False))
    spec = read_spec("contrastive.toml", TOWERS)
    assert spec.grad is not None
    op = typecheck(spec)
    plan_operator(op, spec.grad, step_of(op, families, families), families)
    return list(family.ops)


def test_parts_are_offered_once(asked: list[Op]) -> None:
    """Though many cuts, and several plans of a gradient, have them in common. The whole of a plan is offered twice."""
    count = Counter(asked)
    assert len(count) > 100
    assert sum(count.values()) < 1.1 * len(count)


class Counting:
    """Offers subgraphs to the families of steps, and counts them."""

    is_ours = True

    def __init__(self, near: frozenset[str] = frozenset()) -> None:
        self.count, self.near = 0, near

    def __call__(self, op: Op) -> Subgraph:
        self.count += 1
        return Alone(families_of_steps(is_registered=False))(op)


def test_as_many_are_offered_per_line_of_longer_specs() -> None:
    """Where each line reads the one before, along both axes: no step is to compute all lines before it again."""
    takes = Counting(), Counting()
    for lines, take in zip((5, 10), takes, strict=True):
        assert cut(chain(lines), take) is not None
    assert takes[1].count < 2.5 * takes[0].count


def test_a_search_starts_at_what_similar_steps_store() -> None:
    take = Counting()
    found = cut(chain(5), take)
    assert found is not None
    again = Counting(found.stored)
    near = cut(chain(5), again)
    assert near is not None
    assert near.cost <= found.cost
    assert again.count < 0.7 * take.count


def chain(lines: int) -> Op:
    """Lines each of which is normalised along both axes of the one before."""
    names = ["x", *(f"p{n}" for n in range(1, lines + 1))]
    compute = [f'{b} = "softmax({a}, M) + softmax({a}, N)"' for a, b in pairwise(names)]
    tables = "\n".join(('[op]\nname = "chain"\n[inputs]\nx = "float[M, N]"\n[compute]', *compute, "[outputs]"))
    return name_reductions(typecheck(read_spec("chain.toml", f'{tables}\n{names[-1]} = "auto"')))


def test_results_are_tried_together_along_the_same_axes_alone(asked: list[Op]) -> None:
    """A kernel goes through all axes of one of its results: no family is asked for others."""
    together = [op for op in asked if len(op.results) > 1 and not op.name.endswith("_backward")]
    assert together
    for op in together:
        spaces = [_space(op, result) for result in op.results]
        assert frozenset[str]().union(*spaces) in spaces


class Asking:
    """Offers all parts to families, also what surely none of them takes."""

    is_ours = False
    near = frozenset[str]()

    def __call__(self, op: Op) -> Subgraph:
        return Alone(families_of_steps(is_registered=False))(op)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (TOWERS, 1),
        (TOWERS.replace("J]", "J=16]").replace("D]", "D=32]"), 1),
        (NORMS, 3),
        (ATTENTIONS, 2),
        (ATTENTIONS.replace("D]", "D=32]").replace("N, E]", "N=64, E=32]"), 2),
    ],
)
def test_what_is_refused_no_family_takes(text: str, most: int) -> None:
    op = name_reductions(typecheck(read_spec("refused.toml", text)))
    parts, beside = Subgraphs(op, Asking()), Pruning(op)
    names = [value.name for value in op.values if may_be_stored(op, value)]
    refused = 0
    for left_out in (some for count in range(most + 1) for some in combinations(names, count)):
        stored = parts.bits_of(name for name in names if name not in left_out)
        targets = [one.results[0] for one in parts.each_target(stored)]
        for one in (*((target,) for target in targets), *combinations(targets, 2)):
            if beside.refuses(frozenset(parts.in_order(parts.made_of(one, stored))), one):
                refused += 1
                assert parts.subgraph(one, stored).step is None
    assert refused > 100


def test_subgraphs_are_made_once_whatever_else_an_operator_reads() -> None:
    """Plans of a gradient that differ in what they save have the others in common."""
    op = name_reductions(typecheck(read_spec("norms.toml", NORMS)))
    more = replace(op, inputs=(*op.inputs, replace(op.input("w"), name="saved")))
    found = []
    for one in (op, more):
        parts = Subgraphs(one, Asking())
        stored = parts.bits_of(["a", "b"])
        found.append([parts.op_of(parts.made_of((parts.stored[name],), stored)) for name in ("a", "b")])
    assert all(here is there for here, there in zip(*found, strict=True))


def _space(op: Op, result: Result) -> frozenset[str]:
    nodes = [node for value in needed(op.values, [result.output.name]) for node in walk(value.node)]
    over = {axis for node in nodes if isinstance(node, Reduce) for axis in node.over}
    strips = {one.axis for one in op.strips}
    return frozenset({*result.axes, *over, *(axis for node in nodes for axis in node.axes)} - strips)
