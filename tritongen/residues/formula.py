"""The formula of an operator: its math, and the math of its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..autodiff.gradient import derive
from ..lang.ir import Cast, Op
from ..lang.typecheck import typecheck
from ..operator.compile import backward_of, forward_of
from ..spec.types import Spec


@dataclass(frozen=True)
class Formula:
    """The Op of `spec`, and the Op of its gradient (without saved tensors), both before planning.

    `seeds` pairs each result of `op` with the input of `gradient` that is its incoming gradient. `wrt` are the inputs
    that the results of `gradient` belong to, in their order.
    """

    spec: Spec
    op: Op
    gradient: Op | None = None
    seeds: tuple[tuple[str, str], ...] = ()
    wrt: tuple[str, ...] = ()


def formula_of(spec: Spec) -> Formula:
    """The formula of a spec. Raises `Mistakes` for errors in its math."""
    op = typecheck(spec)
    if spec.grad is None:
        return Formula(spec, op)
    found = derive(op, spec.grad, saves=False)
    return Formula(spec, op, found.op, found.seeds, found.wrt)


@cache
def rounds(formula: Formula) -> bool:
    """Whether the math has casts, or a step of the planned gradient has, to compute with values that another stored."""
    if has_casts(formula.op):
        return True
    backward = backward_of(formula.spec, forward_of(formula.spec))
    return backward is not None and any(has_casts(step.op) for step in backward.plan.steps)


def has_casts(op: Op) -> bool:
    return any(isinstance(node, Cast) for node in op.nodes)
