"""Bounds of an integer in a tile, and tests of whether a condition is surely true in all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...lang.integers import INT64, Bounds, bounds_of_call, inside
from ...lang.ir import Node, Size
from .expressions import (
    FALSE,
    HELD,
    ZERO,
    Apply,
    Expression,
    Extreme,
    First,
    Last,
    Number,
    Position,
    Sum,
    Value,
    all_of,
    any_of,
    floor_divided,
    greatest,
    least,
    leaves,
    negated,
    nonnegative,
    plus,
    split,
    subexpressions,
    times,
    total,
    unheld,
)
from .reader import LONGEST, Reader, is_readable

Span = tuple[Expression | None, Expression | None]
UNKNOWN: Span = (None, None)


@dataclass(frozen=True, slots=True)
class Spans:
    """Computes the spans of integers from the spans of positions and leaves."""

    positions: Mapping[str, Span]
    leaf: Callable[[Node], Span]

    def of(self, expression: Expression) -> Span:
        match expression:
            case Number():
                return expression, expression
            case Position(axis=axis):
                return self.positions[axis]
            case Value(node=node):
                return self.leaf(node)
            case Sum(terms=terms, constant=constant):
                low: Expression | None = Number(constant)
                high = low
                for term, factor in terms:
                    least_of, most_of = self.of(term) if factor > 0 else reversed(self.of(term))
                    low = None if low is None or least_of is None else total((low, 1), (least_of, factor))
                    high = None if high is None or most_of is None else total((high, 1), (most_of, factor))
                return low, high
            case Apply(function="floor_divide", args=(arg, by)):
                return _scaled(self.of(arg), self.of(by), floor_divided)
            case Apply(function="mul", args=(by, arg)):
                return _scaled(self.of(arg), self.of(by), times)
            case Apply(function="maximum", args=args):
                lows, highs = zip(*map(self.of, args), strict=True)
                known = [low for low in lows if low is not None]
                return (greatest(*known) if known else None), _of_all(highs, greatest)
            case Apply(function="where", args=(_, then, other)):
                lows, highs = zip(self.of(then), self.of(other), strict=True)
                return _of_all(lows, least), _of_all(highs, greatest)
        raise AssertionError(f"a condition has no {expression}")


def _scaled(span: Span, by: Span, scaled: Callable[[Expression, Expression], Expression]) -> Span:
    """The span of a product or quotient by a positive integer."""
    (low, high), (smallest, largest) = span, by
    if smallest is None or largest is None:
        return UNKNOWN
    lows = () if low is None else (scaled(low, smallest), scaled(low, largest))
    highs = () if high is None else (scaled(high, smallest), scaled(high, largest))
    return (least(*lows) if lows else None), (greatest(*highs) if highs else None)


def _of_all(ends: tuple[Expression | None, ...], pick: Callable[..., Expression]) -> Expression | None:
    return None if None in ends else pick(*ends)


class TileSpans:
    """Spans in a tile: a block of one axis by some positions along the streamed one.

    Without `extremes`, leaves that are not uniform in the tile are unknown.
    """

    def __init__(self, reader: Reader, block: str, streamed: str, extremes: bool = True) -> None:
        self.reader, self.block, self.streamed, self.extremes = reader, block, streamed, extremes
        in_block: Span = First(block), Last(block)
        in_tile: Span = First(streamed), Last(streamed)
        anywhere: Span = ZERO, plus(Value(Size((streamed,))), -1)
        self.tile = Spans({block: in_block, streamed: in_tile}, self.leaf)
        self.full = Spans({block: in_block, streamed: anywhere}, self.leaf_of_block)

    def leaf(self, node: Node) -> Span:
        """The span of an integer that is no position, clamped ("held") if it may be too large to compute with."""
        low, high = self.extreme("min", node), self.extreme("max", node)
        if low is None or high is None or not self.reader.is_unbounded(node):
            return low, high
        return Apply("held", (low,)), Apply("held", (high,))

    def leaf_of_block(self, node: Node) -> Span:
        """The span of a leaf over all positions along the streamed axis."""
        return UNKNOWN if self.streamed in node.axes else self.leaf(node)

    def extreme(self, kind: str, node: Node) -> Expression | None:
        """The least or greatest of a leaf in a tile; None if it varies along both axes, or any without `extremes`."""
        along = self.reader.axes & set(node.axes)
        if not is_readable(node) or len(along) > self.extremes:
            return None
        return Extreme("min" if kind == "min" else "max", node, *along) if along else Value(node)

    # Conditions

    def surely(self, condition: Expression) -> Expression:
        """A test that holds only where a condition is true in the entire tile."""
        match condition:
            case Apply(function="ge", args=(linear, _)):
                low, _ = self.tile.of(linear) if self.is_safe(linear) else UNKNOWN
                return (None if low is None else self.settled(nonnegative(low))) or FALSE
            case Value(node=node):
                return self.extreme("min", node) or FALSE
            case Apply(function="not", args=(Value(node=node),)):
                extreme = self.extreme("max", node)
                return FALSE if extreme is None else negated(extreme)
            case Apply(function="and", args=operands):
                return all_of(*map(self.surely, operands))
            case Apply(function="or", args=operands):
                return any_of(*map(self.surely, operands))
            case Apply(function="where", args=(picked, then, other)):
                test = self.surely(picked)
                return any_of(all_of(test, self.surely(then)), all_of(negated(test), self.surely(other)))
        return condition  # true or false

    # Overflow

    def is_safe(self, linear: Expression) -> bool:
        """Whether clamping an unbounded integer to ±HELD does not change a comparison with 0.

        That is so if all integers beyond ±HELD give one result. A direct comparison of two integers needs no clamp.
        """
        values = (leaf for leaf in leaves(linear, tests=False) if isinstance(leaf, Value))
        unbounded = [leaf for leaf in values if self.reader.is_unbounded(leaf.node)]
        if not unbounded or _is_direct(linear):
            return True
        low, high = self.reader.bounds(unbounded[0].node)
        beyond = ((max(low, HELD), high), (low, min(high, -HELD)))
        return len(unbounded) == 1 and all(self.is_decided(linear, unbounded[0], each) for each in beyond)

    def is_decided(self, linear: Expression, leaf: Value, bounds: Bounds) -> bool:
        """Whether a comparison with 0 has one result wherever a leaf is within some bounds."""
        if bounds[0] > bounds[1]:
            return True

        def known(node: Node) -> Span:
            low, high = bounds if node == leaf.node else self.reader.bounds(node)
            return Number(low), Number(high)

        along: Span = ZERO, Number(LONGEST)
        low, high = Spans(dict.fromkeys(self.reader.axes, along), known).of(linear)
        is_more, is_less = nonnegative(low or Number(-1)), nonnegative(plus(high or ZERO, 1))
        return is_more == Number(True) or is_less == Number(False)

    def settled(self, expression: Expression) -> Expression | None:
        """The expression, with clamps only if it overflows without them; None if it overflows even with them."""
        return next((each for each in (unheld(expression), expression) if self.fits(each)), None)

    def fits(self, expression: Expression) -> bool:
        """Whether nothing in an expression overflows int64."""
        return all(is_test(inner) or inside(self.bounds(inner), INT64) for inner in subexpressions(expression))

    def bounds(self, expression: Expression) -> Bounds:
        """The least and greatest value of an integer expression, in any tile."""
        match expression:
            case Number(value=value):
                return value, value
            case Position() | First() | Last():
                return 0, 2 * LONGEST  # The last position of a tile may be beyond the axis.
            case Value(node=node) | Extreme(node=node):
                return self.reader.bounds(node)
            case Sum(terms=terms, constant=constant):
                low = high = constant
                for term, factor in terms:
                    ends = [factor * end for end in self.bounds(term)]
                    low, high = low + min(ends), high + max(ends)
                return low, high
            case Apply(function="held", args=(arg,)):
                low, high = self.bounds(arg)
                return max(low, -HELD), min(high, HELD)
            case Apply(function="mul", args=(Apply(function="floor_divide", args=(arg, by)), other)) if by == other:
                (low, high), (_, most) = self.bounds(arg), self.bounds(by)
                return (0 if low >= 0 else low - most + 1), high
            case Apply(function=function, args=args):
                known = [self.bounds(arg) for arg in args if not is_test(arg)]
                if function == "floor_divide":  # The divisor is positive.
                    known[1] = max(known[1][0], 1), max(known[1][1], 1)
                found = bounds_of_call(function, known)
                assert found is not None, function
                return found


def is_test(expression: Expression) -> bool:
    match expression:
        case Number(value=value):
            return isinstance(value, bool)
        case Value(node=node) | Extreme(node=node):
            return node.dtype.kind == "bool"
        case Apply(function=function):
            return function in ("ge", "gt", "and", "or", "not")
    return False


def _is_direct(linear: Expression) -> bool:
    """Whether two integers are compared, with no arithmetic."""
    terms, constant = split(linear)
    is_pair = sorted(factor for _, factor in terms) == [-1, 1] and constant in (0, -1)
    return is_pair and all(isinstance(term, Value) for term, _ in terms)
