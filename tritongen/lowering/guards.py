"""Elements that a condition chooses, 0 or 1 elsewhere: one masked load instead of a load and a `where`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..lang.ir import Call, Constant, Load, Node, Op
from ..nest.values import Expr
from ..passes.exponentials import resolve
from ..passes.masks.tiles import conjuncts

# What every dtype has, which a load gives for elements that it does not read.
EVERYWHERE = (0, 1)


@dataclass(frozen=True, slots=True)
class Guard:
    """The conditions that all hold where an element is read, and the number that stands for it elsewhere.

    `conditions` are expressions of the kernel, each with the axes along which it varies. `comparisons` are the
    comparisons that they are made of, of which the bounds of positions may be some.
    """

    read: Load
    conditions: tuple[tuple[Expr, tuple[str, ...]], ...]
    comparisons: frozenset[Expr]
    otherwise: float


def guard_of(op: Op, node: Call, lowered: Callable[[Node], Expr]) -> Guard | None:
    """Of a `where` that chooses a taken element; None for others."""
    if node.function != "where":
        return None
    condition, read, other = node.args
    if not isinstance(read, Load) or not read.at or (read.axes, read.dtype) != (node.axes, node.dtype):
        return None
    if not isinstance(other, Constant) or other.value not in EVERYWHERE:
        return None
    conditions = tuple((lowered(part), part.axes) for part in conjuncts(None, condition))
    comparisons = frozenset(lowered(resolve(op, part)) for part in conjuncts(op, condition))
    return Guard(read, conditions, comparisons, other.value)
