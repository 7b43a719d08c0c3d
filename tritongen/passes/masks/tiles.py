"""Which tiles of a streamed axis are empty, full or mixed, read off the condition of a mask.

A kernel takes blocks of one axis, and for each streams over tiles of another: `tiles_of` determines the range that it
has to stream over, and where it can skip the condition. The ends are scalars that a few operations compute at run
time from the first and last position of the block, lengths, params and loads. Unsolved conditions make mixed tiles.

    tiles = tiles_of(op, condition, block="M", streamed="N")
    tiles.some   outside of this range the condition is false, for the entire block
    tiles.gap    inside of this range it is false for the entire block, too; None where no range is known
    tiles.every  inside of this range it equals `tiles.rest`, or is true if that is None
    tiles.empty  a test of one tile in `some`: it is empty all the same; FALSE if no test of tiles is of use
    tiles.full   a test of one tile in `every`: `rest` is true in all of it

A gradient that streams over the other axis has the same tiles, with the axes exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from ...lang.ir import BOOL, Call, Node, Op
from ..exponentials import inlined, resolve
from .expressions import FALSE, Apply, Expression, First, Last, opposite, subexpressions
from .ranges import NOTHING, Ranges, intersection
from .reader import Reader
from .spans import TileSpans


@dataclass(frozen=True, slots=True)
class Range:
    """Positions from `first` up to, and without, `last`; none where `last` is no more than `first`.

    `first` is no less than 0, and `last` no more than the length of the axis.
    """

    first: Expression
    last: Expression


@dataclass(frozen=True, slots=True)
class Tiles:
    """The values of a condition in the tiles that a block meets.

    Outside of `some`, and in `gap`, it is false for the entire block; inside of `every` it equals `rest`, or is true if
    that is None. `empty` and `full` are tests of one tile: the condition is false in all of it, or, for a tile inside
    of `every`, `rest` is true in all of it. They are false if that is undecided.
    """

    some: Range
    every: Range
    gap: Range | None = None
    rest: Node | None = None
    empty: Expression = FALSE
    full: Expression = FALSE


def longest(tiles: Tiles | None) -> str:
    """Whether the "first" or the "last" tiles have the most blocks under a mask; "" if neither end of the range depends
    on the rows of the tile, or both do.
    """
    if tiles is None:
        return ""
    some = tiles.some.first, tiles.some.last
    begins, ends = (any(isinstance(inner, First | Last) for inner in subexpressions(one)) for one in some)
    return "" if begins == ends else "first" if begins else "last"


def tiles_of(op: Op, condition: Node, block: str, streamed: str, extremes: bool = True) -> Tiles:
    """The values of a condition in the tiles along `streamed` that the blocks along `block` meet.

    Along every other axis a block has one position. The arithmetic of the condition itself must not overflow int64, and
    no axis be longer than `reader.LONGEST`. Without `extremes`, the ends of ranges use no minima or maxima over a
    block: only the tests of tiles do.
    """
    reader = Reader(op, block, streamed)
    spans, of_ends = TileSpans(reader, block, streamed), TileSpans(reader, block, streamed, extremes)
    some, every = Ranges(of_ends, every=False), Ranges(of_ends, every=True)
    conditions = [
        _Conjunct(node, reader.condition(inlined(op, node)), some, every) for node in conjuncts(op, condition)
    ]
    rest = [conjunct for conjunct in conditions if conjunct.is_rest]
    gaps = filter(None, (some.gap(conjunct.read) for conjunct in conditions))
    holes = [conjunct.read for conjunct in conditions if conjunct.is_rest or not conjunct.some.exact]
    return Tiles(
        some=Range(*some.ends(intersection(conjunct.some for conjunct in conditions))),
        every=Range(*every.ends(intersection(conjunct.every for conjunct in conditions if not conjunct.is_rest))),
        gap=next((Range(*gap) for gap in gaps), None),
        rest=reduce(both, (conjunct.node for conjunct in rest)) if rest else None,
        empty=spans.surely(opposite(Apply("and", tuple(holes)))),
        full=spans.surely(Apply("and", tuple(conjunct.read for conjunct in rest))) if rest else FALSE,
    )


class _Conjunct:
    """One of the conditions that must all hold, as it is read, and its ranges."""

    def __init__(self, node: Node, read: Expression, some: Ranges, every: Ranges) -> None:
        self.node, self.read, self.some, self.every = node, read, some.of(read), every.of(read)
        self.is_rest = self.every == NOTHING


def both(one: Node, other: Node) -> Call:
    """Whether two conditions hold."""
    axes = tuple(dict.fromkeys((*one.axes, *other.axes)))
    return Call("logical_and", (one, other), axes, BOOL)


def conditions_of(op: Op, condition: Node) -> frozenset[Node]:
    """The conditions that must all hold, with references to lines resolved."""
    return frozenset(resolve(op, conjunct) for conjunct in conjuncts(op, condition))


def conjuncts(op: Op | None, condition: Node) -> Iterator[Node]:
    """The conditions that must all hold; with an operator, also those in its lines."""
    node = resolve(op, condition) if op else condition
    is_and = isinstance(node, Call) and node.function in ("logical_and", "bitwise_and")
    if is_and and isinstance(node, Call) and all(arg.dtype.kind == "bool" for arg in node.args):
        for arg in node.args:
            yield from conjuncts(op, arg)
    else:
        yield condition
