"""What an operator must compute: its math, and that of its gradient."""

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
    """The Op of a spec and of its gradient, which saves nothing, as they are before any plan.

    `seeds` are results of the Op with the inputs of the gradient that are theirs; `wrt` inputs, in the order of the
    results of the gradient. `spec` is what they are of.
    """

    spec: Spec
    op: Op
    gradient: Op | None = None
    seeds: tuple[tuple[str, str], ...] = ()
    wrt: tuple[str, ...] = ()


def formula_of(spec: Spec) -> Formula:
    """Raises `Mistakes` for what is wrong with a spec's math."""
    op = typecheck(spec)
    if spec.grad is None:
        return Formula(spec, op)
    found = derive(op, spec.grad, saves=False)
    return Formula(spec, op, found.op, found.seeds, found.wrt)


@cache
def rounds(formula: Formula) -> bool:
    """Whether the math rounds and goes on, or a step of the gradient does, to compute with what another stored."""
    if has_casts(formula.op):
        return True
    backward = backward_of(formula.spec, forward_of(formula.spec))
    return backward is not None and any(has_casts(step.op) for step in backward.plan.steps)


def has_casts(op: Op) -> bool:
    return any(isinstance(node, Cast) for node in op.nodes)
