"""Where a mask leaves positions again and again, as one that is dilated by blocks does, by remainders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...lang.ir import Node
from .conditions import (
    All,
    AtLeast,
    Atom,
    Condition,
    Leaf,
    Linear,
    Position,
    Quotient,
    Remainder,
    axes_of,
    leaves_of,
)
from .expressions import HELD, TRUE, ZERO, Apply, Expression, Number, Value, times, total
from .ranges import Interval, Ranges, intersection
from .reader import LONGEST
from .spans import Span, Spans, TileSpans


@dataclass(frozen=True, slots=True)
class Cycle:
    """Positions from `first` up to, and without, `last`, and those that are full periods before or after them.

    Both ends may be outside of the axis, and more than a period away from each other. From `unmasked_first` to
    `unmasked_last`, and whole periods before or after these, what the cycle is of is true for the entire block: sums
    that are no less than 0.
    """

    first: Expression
    last: Expression
    unmasked_first: Expression
    unmasked_last: Expression
    period: Expression
    sums: frozenset[Linear]

    @property
    def ends(self) -> tuple[Expression, ...]:
        return self.first, self.last, self.unmasked_first, self.unmasked_last, self.period

    def decides(self, condition: Condition) -> bool:
        """Whether a condition is true for the entire block where what the cycle is of is."""
        match condition:
            case AtLeast(linear=linear):
                return linear in self.sums
            case All(operands=operands):
                return all(map(self.decides, operands))
        return False


class Cycles:
    """Finds what a block of the other axis needs of each cycle."""

    def __init__(self, spans: TileSpans) -> None:
        self.spans, self.some, self.every = spans, Ranges(spans, every=False), Ranges(spans, every=True)

    def of(self, conditions: Iterable[Condition]) -> Cycle | None:
        """The cycle outside of which some condition is false, of those that must hold all together."""
        linears = [linear for condition in conditions for linear in _linears(condition)]
        streamed = ((linear, self.remainder(linear)) for linear in linears)
        bounded: dict[Remainder, list[Linear]] = {}
        for linear, remainder in streamed:
            if remainder is not None:
                bounded.setdefault(remainder, []).append(linear)
        found = (self.of_remainder(remainder, linears) for remainder, linears in bounded.items())
        return next((cycle for cycle in found if cycle is not None), None)

    def remainder(self, linear: Linear) -> Remainder | None:
        """The remainder that alone varies along the streamed axis in a sum."""
        match self.moving(linear):
            case [(Remainder() as remainder, 1 | -1)]:
                return remainder
        return None

    def of_remainder(self, remainder: Remainder, linears: list[Linear]) -> Cycle | None:
        """The cycle of a remainder, from sums with it that are no less than 0.

        It is what is divided, less a multiple of the divisor: positions are solved for where that is 0. Elsewhere they
        are periods away. Some may be none of the remainder's, where sums with it are never 0 or more.
        """
        arg, by = remainder.arg, remainder.by
        factors = [dict(linear.terms)[remainder] for linear in linears]
        at_least = [
            linear + (arg - Linear(((remainder, 1),))) * factor for linear, factor in zip(linears, factors, strict=True)
        ]
        most = Linear(constant=by) if isinstance(by, int) else Linear(((by, 1),))
        most += Linear(constant=-1)
        least = [*at_least, *([] if _implied(arg, at_least) else [arg])]
        least += [] if _implied(most - arg, at_least) or _implied(arg * -1, at_least) else [most - arg]
        at_least += [arg] if 1 not in factors else []
        at_least += [most - arg] if -1 not in factors else []
        period = self.period(arg, self.divisor(by))
        is_large = isinstance(by, Leaf) and self.spans.reader.is_unbounded(by.node)
        if period is None or is_large or not all(map(self.is_exact, at_least)):
            return None
        ends = self.ends(intersection(self.some.solved(linear, ZERO) for linear in at_least))
        if ends is None or not self.spans.fits(period):
            return None
        full = self.ends(intersection(self.every.solved(linear, ZERO) for linear in least))
        return Cycle(*ends, *(full or (ends[0], ends[0])), period, frozenset(linears if full else ()))

    def ends(self, interval: Interval) -> tuple[Expression, Expression] | None:
        """Both ends of an interval; None where it has not both, or they overflow."""
        first, last = interval.first, interval.last
        if first is None or last is None or interval.test != TRUE:
            return None
        is_known = all(map(self.spans.fits, (first, last, total((last, 1), (first, -1)))))
        return (first, last) if is_known else None

    def moving(self, linear: Linear) -> list[tuple[Atom, int]]:
        """The terms that vary along the streamed axis."""
        return [(atom, factor) for atom, factor in linear.terms if self.spans.streamed in axes_of(atom)]

    def period(self, linear: Linear, change: Expression | None) -> Expression | None:
        """How many positions further on or back an integer is more by so much; None where that is not the same
        everywhere.
        """
        match self.moving(linear):
            case [(Position(), 1 | -1)]:
                return change
            case [(Quotient(arg=arg, by=by), 1 | -1)] if change is not None:
                divisor = self.divisor(by)
                return None if divisor is None else self.period(arg, times(change, divisor))
        return None

    def divisor(self, by: int | Leaf) -> Expression | None:
        """What divides. A leaf is held even if it is small: by an int64, products do not wrap around."""
        found, _ = self.spans.tile.divisor(by)
        return Apply("held", (found,)) if isinstance(found, Value) else found

    # Overflow

    def is_exact(self, linear: Linear) -> bool:
        """Whether an integer stays the same where what is too large is held: divisors alone may be, of what is not."""
        return all(self.is_exact_part(atom) for atom, _ in linear.terms)

    def is_exact_part(self, atom: Atom) -> bool:
        match atom:
            case Quotient(arg=arg, by=by):
                is_large = isinstance(by, Leaf) and self.spans.reader.is_unbounded(by.node)
                return self.is_exact(arg) and not (is_large and self.may_be_large(arg))
        return not any(self.spans.reader.is_unbounded(leaf.node) for leaf in leaves_of(atom))

    def may_be_large(self, linear: Linear) -> bool:
        reader = self.spans.reader

        def known(node: Node) -> Span:
            low, high = reader.bounds(node)
            return Number(low), Number(high)

        along: Span = ZERO, Number(LONGEST)
        low, high = Spans(dict.fromkeys(reader.axes, along), known).of(linear)
        return not all(isinstance(end, Number) and -HELD < end.value < HELD for end in (low, high))


def _implied(linear: Linear, others: Iterable[Linear]) -> bool:
    """Whether a sum is 0 or more where others are: one that is no more."""
    return any((rest := linear - other).constant >= 0 and not rest.terms for other in others)


def _linears(condition: Condition) -> Iterator[Linear]:
    """The sums that have to be 0 or more."""
    match condition:
        case AtLeast(linear=linear):
            yield linear
        case All(operands=operands):
            for part in operands:
                yield from _linears(part)
