"""Which tiles of a streamed axis are empty, full or mixed, read off the condition of a mask."""

from __future__ import annotations

from dataclasses import dataclass

from ...lang.ir import Node, Op
from .expressions import FALSE, ZERO, Expression, Value


@dataclass(frozen=True, slots=True)
class Range:
    """Positions from `first` up to, and without, `last`; none where `last` is no more than `first`."""

    first: Expression
    last: Expression


@dataclass(frozen=True, slots=True)
class Tiles:
    """What a condition is in the tiles of the streamed axis that a block of the other axis meets."""

    some: Range
    every: Range
    rest: Node | None = None
    empty: Expression = FALSE
    full: Expression = FALSE
    held: tuple[str, ...] = ()


def tiles_of(op: Op, condition: Node, block: str, streamed: str) -> Tiles:
    raise NotImplementedError
