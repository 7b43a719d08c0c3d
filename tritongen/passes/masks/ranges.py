"""Ranges of a streamed axis where a condition may be true for a block of the other axis, and where it surely is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce

from ...lang.ir import Size
from .expressions import (
    FALSE,
    TRUE,
    ZERO,
    Apply,
    Expression,
    First,
    Last,
    Number,
    Position,
    Value,
    all_of,
    any_of,
    axes_of,
    chosen,
    floor_divided,
    greatest,
    least,
    negated,
    nonnegative,
    opposite,
    plus,
    split,
    times,
    total,
)
from .spans import TileSpans


@dataclass(frozen=True, slots=True)
class Interval:
    """Positions from `first` up to and excluding `last`; none if `test` is false.

    None is an end of the axis. If not `exact`, the interval may have holes.
    """

    first: Expression | None = None
    last: Expression | None = None
    test: Expression = TRUE
    exact: bool = True


EVERYTHING, NOTHING = Interval(), Interval(test=FALSE)
UNKNOWN = Interval(exact=False)


class Ranges:
    """Where conditions may be true for some position of the block, or with `every` are true for all of them."""

    def __init__(self, spans: TileSpans, every: bool) -> None:
        self.spans, self.every = spans, every
        self.unknown = NOTHING if every else UNKNOWN
        self.size = Value(Size((spans.streamed,)))

    def of(self, condition: Expression) -> Interval:
        match condition:
            case Number(value=value):
                return EVERYTHING if value else NOTHING
            case Apply(function="ge", args=(linear, _)) if self.spans.is_safe(linear):
                return self.settled(self.solved(linear, ZERO))
            case Value() | Apply(function="not"):
                return self.of_value(condition)
            case Apply(function="and", args=operands):
                return intersection(map(self.of, operands))
            case Apply(function="or", args=operands):
                return reduce(self.union, map(self.of, operands), NOTHING)
            case Apply(function="where", args=(test, then, other)):
                return self.picked(self.spans.surely(test), self.of(then), self.of(other))
        return self.unknown

    def settled(self, interval: Interval) -> Interval:
        """The interval, if neither its ends nor its test overflow; else the unknown interval."""
        first, last = (end and self.spans.settled(end) for end in (interval.first, interval.last))
        test = self.spans.settled(interval.test)
        if test is None or (first is None and interval.first) or (last is None and interval.last):
            return self.unknown
        return NOTHING if test == FALSE else replace(interval, first=first, last=last, test=test)

    def of_value(self, condition: Expression) -> Interval:
        """Where a boolean of the math is true, or is not."""
        if self.spans.streamed in axes_of(condition):
            return self.unknown
        if self.every:
            return Interval(test=self.spans.surely(condition))
        return Interval(test=negated(self.spans.surely(opposite(condition))))

    # Comparisons

    def solved(self, linear: Expression, more: Expression) -> Interval:
        """The interval where `linear + more` is 0 or more."""
        terms, constant = split(linear)
        streamed = {term: factor for term, factor in terms if self.spans.streamed in axes_of(term)}
        rest = (one for one in terms if one[0] not in streamed)
        number = self.end(self.spans.tile.of(total(*rest, constant=constant)))
        solvable = [term for term in streamed if _is_solvable(term)]
        solvable.sort(key=lambda term: not isinstance(term, Position))
        others = [(term, factor) for term, factor in streamed.items() if term not in solvable[:1]]
        loose = self.end(self.spans.full.of(total(*others)))
        if number is None or loose is None:
            return self.unknown
        more = total((more, 1), (number, 1), (loose, 1))
        if not solvable:
            return Interval(test=nonnegative(more), exact=not others)
        found = self.solved_for(solvable[0], streamed[solvable[0]], more)
        return replace(found, exact=found.exact and not others)

    def end(self, span: tuple[Expression | None, Expression | None]) -> Expression | None:
        """The end of a span to rely on: the least where a condition has to be true (`every`), else the most."""
        return span[0] if self.every else span[1]

    def solved_for(self, term: Expression, factor: int, more: Expression) -> Interval:
        """The interval where `term * factor + more` is 0 or more."""
        most = floor_divided(more, Number(abs(factor)))
        if not isinstance(term, Apply):
            return Interval(first=total((most, -1))) if factor > 0 else Interval(last=plus(most, 1))
        arg, divisor = term.args if term.function == "floor_divide" else term.args[::-1]
        by, _ = self.spans.tile.of(divisor)
        if by is None:
            return self.unknown
        sign = 1 if factor > 0 else -1
        if term.function == "mul":
            return self.solved(total((arg, sign)), floor_divided(most, by))
        if factor > 0:
            return self.solved(arg, times(most, by))
        return self.solved(total((arg, -1)), total((times(most, by), 1), (by, 1), constant=-1))

    # Unions

    def union(self, one: Interval, other: Interval) -> Interval:
        """The hull of two intervals, which may have holes. With `every`, nothing if it may have them; but without
        `extremes`, the interval that starts later, if the other starts with the axis, as attention sinks do.

        With `every`, diagonals are dropped: they contain no full tile and would replace unsolved conditions.
        """
        if self.every:
            one, other = (NOTHING if self.is_diagonal(interval) else interval for interval in (one, other))
        if NOTHING.test in (one.test, other.test):
            return other if one.test == FALSE else one
        for gate, interval in ((one, other), (other, one)):
            if gate.first is None and gate.last is None:
                return self.picked(gate.test, replace(EVERYTHING, exact=gate.exact), interval)
        one, other = self.without_test(one), self.without_test(other)
        exact = one.first == other.first or one.last == other.last
        if self.every and not exact:
            late = [interval for interval in (one, other) if interval.first is not None]
            return NOTHING if self.spans.extremes or len(late) != 1 else late[0]
        first, last = _of_both(least, one.first, other.first), _of_both(greatest, one.last, other.last)
        return Interval(first, last, exact=exact and one.exact and other.exact)

    def gap(self, condition: Expression) -> tuple[Expression, Expression] | None:
        """The gap between two conditions, one of which is true from the start of the axis; None if there is none."""
        is_any = isinstance(condition, Apply) and condition.function == "or"
        operands = [self.of(operand) for operand in condition.args] if is_any and isinstance(condition, Apply) else []
        early = [operand for operand in operands if operand.first is None and operand.test == TRUE]
        late = [operand for operand in operands if operand.first is not None and operand.test == TRUE]
        if len(early) != 1 or len(late) != 1 or len(operands) > 2 or early[0].last is None or late[0].first is None:
            return None
        return early[0].last, late[0].first

    def is_diagonal(self, interval: Interval) -> bool:
        """Whether an interval runs from the last position of the block to the one after the first."""
        if interval.first is None or interval.last is None:
            return False
        block = self.spans.block
        length = total((interval.last, 1), (interval.first, -1))
        return length == total((First(block), 1), (Last(block), -1), constant=1)

    def picked(self, test: Expression, then: Interval, other: Interval) -> Interval:
        """`then` where `test` holds, `other` elsewhere."""
        first = last = None
        if then.first is not None or other.first is not None:
            first = chosen(test, then.first or ZERO, other.first or ZERO)
        if then.last is not None or other.last is not None:
            last = chosen(test, then.last or self.size, other.last or self.size)
        if NOTHING.test in (then.test, other.test):  # The ends of nothing do not matter.
            some = other if then.test == FALSE else then
            first, last = some.first, some.last
        holds = then.test
        if then.test != other.test:
            holds = any_of(all_of(test, then.test), all_of(negated(test), other.test))
            if then.test == TRUE:
                holds = any_of(test, other.test)
            elif other.test == TRUE:
                holds = any_of(negated(test), then.test)
        return Interval(first, last, holds, then.exact and other.exact)

    def without_test(self, interval: Interval) -> Interval:
        """The interval with its test in its ends: from the end of the axis to its start where the test is false."""
        if interval.test == TRUE:
            return interval
        first = chosen(interval.test, interval.first or ZERO, self.size)
        return Interval(first, chosen(interval.test, interval.last or self.size, ZERO), exact=interval.exact)

    def ends(self, interval: Interval) -> tuple[Expression, Expression]:
        """Both ends, clamped to the axis."""
        first = ZERO if interval.first is None else self.no_less_than_0(interval.first)
        last = self.size if interval.last is None else least(interval.last, self.size)
        return first, last if interval.test == TRUE else chosen(interval.test, last, ZERO)

    def no_less_than_0(self, first: Expression) -> Expression:
        return first if self.spans.bounds(first)[0] >= 0 else greatest(first, ZERO)


def _is_solvable(term: Expression) -> bool:
    """Whether the position can be found in a term where it is 0 or more: quotients and products by what is positive."""
    return isinstance(term, Position) or (isinstance(term, Apply) and term.function in ("floor_divide", "mul"))


def intersection(intervals: Iterable[Interval]) -> Interval:
    return reduce(_common, intervals, EVERYTHING)


def _common(one: Interval, other: Interval) -> Interval:
    first = one.first if other.first is None else other.first if one.first is None else greatest(one.first, other.first)
    last = one.last if other.last is None else other.last if one.last is None else least(one.last, other.last)
    test = all_of(one.test, other.test)
    return NOTHING if test == FALSE else Interval(first, last, test, one.exact and other.exact)


def _of_both(
    choose: Callable[[Expression, Expression], Expression], one: Expression | None, other: Expression | None
) -> Expression | None:
    return None if one is None or other is None else choose(one, other)
