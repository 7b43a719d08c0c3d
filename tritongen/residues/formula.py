"""What an operator must compute: its math, and that of its gradient."""

from __future__ import annotations

from dataclasses import dataclass

from ..autodiff.gradient import derive
from ..lang.ir import Op
from ..lang.typecheck import typecheck
from ..spec.types import Spec


@dataclass(frozen=True)
class Formula:
    """The Op of a spec and of its gradient, which saves nothing, as they are before any plan.

    `seeds` are results of the Op with the inputs of the gradient that are theirs; `wrt` inputs, in the order of the
    results of the gradient.
    """

    op: Op
    gradient: Op | None = None
    seeds: tuple[tuple[str, str], ...] = ()
    wrt: tuple[str, ...] = ()


def formula_of(spec: Spec) -> Formula:
    """Raises `Mistakes` for what is wrong with a spec's math."""
    op = typecheck(spec)
    if spec.grad is None:
        return Formula(op)
    found = derive(op, spec.grad, saves=False)
    return Formula(op, found.op, found.seeds, found.wrt)
