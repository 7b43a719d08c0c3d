"""Which blocks of the streamed axis a tile of rows needs, and which of those are fully visible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from ...lang.ir import Call, Load, Node, Op, Reduce, Ref, Size
from ...nest.values import Expr, V, expr
from ...passes.contractions import applied
from ...passes.exponentials import resolve
from ...passes.masks.expressions import FALSE, ZERO, Expression, Extreme, First, Last, Value, replaced, subexpressions
from ...passes.masks.scores import Mask, mask_of
from ...passes.masks.tiles import Range, Tiles, conditions_of, conjuncts, tiles_of
from ...spec.types import INTS
from ..stream import Stream

# Functions that are 0 of -inf.
VANISHING = ("exp", "sigmoid", "softplus", "relu")


@dataclass(frozen=True, slots=True)
class Blocks:
    """The block ranges that masks leave for a tile of rows.

    `tiles` has the ranges; None where there is no mask. Conditions in `decided` are true in full blocks, those in
    `ranged` for their ranges alone. Where integers along the rows and along what streams are compared, as document
    indices are, these determine the first and the last block that the tile may meet, and a run of blocks in which they
    leave nothing to mask; which of the blocks between are empty stays unknown. Where what streams `is_paged`, kernels
    know between which positions rows of the tile need any, and rows past the last need none.
    """

    rows: str
    tiles: Tiles | None = None
    ranged: frozenset[Node] = frozenset()
    decided: frozenset[Node] = frozenset()
    streamed: str = ""
    is_paged: bool = False

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs of blocks in their order: masked, full (unmasked) or skipped."""
        if self.tiles is None:
            return ("full", "masked")
        if self.gap is not None:
            return ("masked", "skipped", "masked", "full", "masked")
        from_start = self.tiles.some.first == self.tiles.every.first == ZERO and not self.compared
        return ("full", "masked") if from_start else ("masked", "full", "masked")

    @property
    def gap(self) -> Range | None:
        """Positions that no row of the tile needs, though it may need earlier and later ones."""
        if self.tiles is None or self.compared or self.is_paged:
            return None
        return self.tiles.gap

    def split_condition(self, op: Op, test: Node) -> tuple[Node | None, Node | None]:
        """The conjuncts of a condition that hold in full blocks, and the rest, to be computed; None if empty."""
        terms = [*conjuncts(op, test)]
        implied = [term for term in terms if resolve(op, term) in self.decided]
        if len(implied) in (0, len(terms)):
            return (test, None) if implied else (None, test)
        return _all_of(implied), _all_of([term for term in terms if term not in implied])

    @property
    def values(self) -> list[Node]:
        """The values of the math that the ranges depend on."""
        if self.tiles is None:
            return []
        ranges = (self.tiles.some, self.tiles.every, *([self.gap] if self.gap else []))
        ends = [end for one in ranges for end in (one.first, one.last)]
        every = (*ends, self.tiles.empty, self.tiles.full)
        return [inner.node for end in every for inner in subexpressions(end) if isinstance(inner, Value)]

    @property
    def compared(self) -> tuple[tuple[Load, str], ...]:
        """The integers by which blocks are recognised as disjoint from the tile, each with its axis."""
        found = extremes_of(self.tiles.empty, self.tiles.full) if self.tiles is not None else []
        return tuple(dict.fromkeys((extreme.node, extreme.axis) for extreme in found if isinstance(extreme.node, Load)))

    @property
    def finds_full(self) -> bool:
        """Whether comparisons of integers determine the blocks that need no mask."""
        return self.tiles is not None and self.tiles.full != FALSE

    @property
    def limits(self) -> Range | None:
        """The positions that a row needs, if the conditions of full blocks hold for exactly these: if both ranges of a
        tile of one row are the same.
        """
        if self.tiles is None:
            return None
        some, every = (
            Range(*(replaced(end, self.alone) for end in (one.first, one.last)))
            for one in (self.tiles.some, self.tiles.every)
        )
        return some if some == every else None

    def limits_rows(self, op: Op, test: Node) -> bool:
        """Whether the limits are equivalent to a condition."""
        return self.limits is not None and conditions_of(op, test) == self.ranged

    def alone(self, inner: Expression) -> Expression:
        """A subexpression for a tile of one row, where the first row is the last."""
        return First(self.rows) if inner == Last(self.rows) else inner

    @property
    def limits_by_row(self) -> list[str]:
        """The names of the limits that differ from row to row of a tile."""
        assert self.limits is not None
        ends = {"row_begin": self.limits.first, "row_end": self.limits.last}
        return [name for name, end in ends.items() if First(self.rows) in subexpressions(end)]

    @property
    def in_limits(self) -> Expr:
        """Whether a row meets a column."""
        assert self.limits is not None
        before = V.cols < V.row_end
        return before if self.limits.first == ZERO else (V.row_begin <= V.cols) & before

    @property
    def ends(self) -> tuple[Expr, Expr]:
        """The first and last position of the paged range that rows of the tile need."""
        if self.tiles is None:
            return expr(0), V.n_cols
        return expr(0) if self.tiles.some.first == ZERO else V.begin, V.end

    @property
    def are_few(self) -> bool:
        """Whether the mask leaves only blocks near the diagonal, as for windows and documents."""
        if self.tiles is None or self.compared:
            return self.tiles is not None
        reaches_the_end = isinstance(last := self.tiles.some.last, Value) and isinstance(last.node, Size)
        return self.tiles.some.first != ZERO and not reaches_the_end


def blocks_of(op: Op, stream: Stream) -> Blocks:
    found = _masks(op, stream)
    masks = [mask for mask in found if mask is not None]
    if len(masks) < len(found) or len({resolve(op, mask.condition) for mask in masks}) != 1:
        return Blocks(stream.rows)
    condition = next((mask.condition for mask in masks if mask.exact), None)
    if condition is None:
        return Blocks(stream.rows)
    tiles = tiles_of(op, condition, stream.rows, stream.streamed, extremes=False)
    # A block is full if all conditions hold that no range implies, including those on integers along the rows.
    tests = (tiles_of(op, condition, stream.rows, stream.streamed).empty, tiles.full)
    empty, full = (test if _is_determined(op, test, stream) else FALSE for test in tests)
    tiles = replace(tiles, empty=empty, full=full if empty != FALSE else FALSE)
    rest = frozenset() if tiles.rest is None else conditions_of(op, tiles.rest)
    every = conditions_of(op, condition)
    decided = every if tiles.full != FALSE else every - rest
    blocks = Blocks(stream.rows, tiles, every - rest, decided, stream.streamed)
    bounds = [*blocks.values, *(load for load, _ in blocks.compared)]
    # Bounds are found once for all iterations of the outer loop.
    is_known = not any({*stream.outer_axes} & {*node.axes} for node in bounds)
    return blocks if is_known else Blocks(stream.rows)


def _all_of(conditions: list[Node]) -> Node:
    return reduce(lambda one, other: applied("bitwise_and", one, other), conditions)


def _is_determined(op: Op, empty: Expression, stream: Stream) -> bool:
    """Whether integers determine which blocks are empty, all of them inputs along the rows or the streamed axis."""
    found = extremes_of(empty)
    if not any(extreme.axis == stream.streamed for extreme in found):
        return False
    return all(
        isinstance(extreme.node, Load) and _is_along(op, extreme.node, extreme.axis, stream) for extreme in found
    )


def _is_along(op: Op, load: Load, axis: str, stream: Stream) -> bool:
    tensor = op.input(load.name)
    # Per-position values in pages are gathered, which `at` shows.
    plain = not load.at and tensor.default is None and axis in tensor.type.axes
    plain = plain and set(load.axes) <= {*stream.batch, axis}
    return plain and set(tensor.type.dtypes) <= set(INTS)


def extremes_of(*tests: Expression) -> list[Extreme]:
    return [inner for test in tests for inner in subexpressions(test) if isinstance(inner, Extreme)]


def _masks(op: Op, stream: Stream) -> list[Mask | None]:
    """The masks of the score below the largest, and of the factor of each sum that is not rescaled with it; None for
    each without a mask.
    """
    found: list[Mask | None] = []
    if stream.largest:
        node = op.value(stream.largest).node
        assert isinstance(node, Reduce)
        found.append(mask_of(op, node.arg, float("-inf")))
    for one in (one for one in stream.sums if not one.is_rescaled):
        runs = (inner for inner in below(op, one.factor) if isinstance(inner, Call) and inner.function in VANISHING)
        choices = [*((inner.args[0], float("-inf")) for inner in runs), (one.factor, 0.0)]
        found.append(next(filter(None, (mask_of(op, *way) for way in choices)), None))
    return found


def below(op: Op, node: Node) -> list[Node]:
    """The factors and dividends of a product, through the lines that it refers to."""
    match node:
        case Ref(name=name):
            return below(op, op.value(name).node)
        case Call(function="mul", args=args):
            return [inner for arg in args for inner in below(op, arg)]
        case Call(function="div", args=(above, _)):
            return below(op, above)
    return [node]


def is_finite_past_the_end(op: Op, node: Node, stream: Stream) -> bool:
    """Whether a product with exponentials of scores, 0 past the end of the streamed axis, is 0 there too: no factor is
    infinite or NaN, as gathered values may be, or 1 / x, since x is 0 there.
    """
    match node:
        case Ref(name=name):
            return is_finite_past_the_end(op, op.value(name).node, stream)
        case Call(function="mul", args=args):
            return all(is_finite_past_the_end(op, arg, stream) for arg in args)
        case Call(function="div", args=(above, divisor)) if stream.streamed not in divisor.axes:
            return is_finite_past_the_end(op, above, stream)
        case Load(at=at):
            return not at
        case Call(function="exp", args=(Call(function="sub", args=(_, Ref(name=shift))),)):
            return shift == stream.largest
    return isinstance(node, Reduce) or stream.streamed not in node.axes
