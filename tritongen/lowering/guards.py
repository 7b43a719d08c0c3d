"""Elements that a condition selects, 0 or 1 elsewhere: one masked load instead of a load and a `where`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..lang.ir import Call, Constant, Load, Node, Op
from ..nest.values import Expr
from ..passes.exponentials import resolve
from ..passes.masks.tiles import conjuncts

# Values that every dtype has, so that a load can give them for masked elements.
EVERYWHERE = (0, 1)


@dataclass(frozen=True, slots=True)
class Guard:
    """The conditions that must all hold for an element to be read, and the value `otherwise`.

    `conditions` are expressions of the kernel, each with the axes along which it varies. `comparisons` are the
    comparisons in them, which may include the bounds checks of positions.
    """

    read: Load
    conditions: tuple[tuple[Expr, tuple[str, ...]], ...]
    comparisons: frozenset[Expr]
    otherwise: float


def guard_of(op: Op, node: Call, lowered: Callable[[Node], Expr]) -> Guard | None:
    """The guard of a `where` that selects a gathered element or a constant; None for other calls."""
    if node.function != "where":
        return None
    condition, read, other = node.args
    if not isinstance(read, Load) or not read.at or (read.axes, read.dtype) != (node.axes, node.dtype):
        return None
    if not isinstance(other, Constant) or other.value not in EVERYWHERE:
        return None
    conditions = tuple((lowered(conjunct), conjunct.axes) for conjunct in conjuncts(None, condition))
    comparisons = frozenset(lowered(resolve(op, conjunct)) for conjunct in conjuncts(op, condition))
    return Guard(read, conditions, comparisons, other.value)
