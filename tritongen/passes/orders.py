"""In which order the factors of a sum are multiplied and summed: that of the least time, as for paths of an einsum.

All orders are compared in which two terms are multiplied at a time, and summed over each axis as soon as no other
factor has it. Matmuls take the time of tensor cores, sums of rows that of what they read; what a step gives is written
and read again, unless the epilogue of its matmul goes on with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from .epilogues import STRIP_COLS, WIDEST_GROUP
from .sides import are_outer, free_axes, two_sides
from .times import BANDWIDTH, LAUNCH, PROLOGUE, SCALAR_RATE, SMS, count, kernel, multiplied, outer, stored

MOST = 6  # factors of which all orders are tried
CLEARLY = 1.3  # how much faster another order has to be than one that is found without costs
TILE, PART = 128, 512  # rows and columns of a tile, and terms of a sum that split-K can divide


@dataclass(frozen=True, slots=True)
class Term:
    """A factor of a sum, at a place among them; or a product of terms, which is summed over some axes or none."""

    axes: tuple[str, ...]
    operands: tuple[Term, ...] = ()
    over: tuple[str, ...] = ()
    place: int = 0

    @property
    def places(self) -> frozenset[int]:
        """Those of all factors."""
        below = (part.places for part in self.operands)
        return frozenset[int]().union(*below) if self.operands else frozenset({self.place})

    @property
    def inside(self) -> tuple[Term, ...]:
        """What is multiplied and then summed."""
        return tuple(factor for part in self.operands for factor in part.factors)

    @property
    def sides(self) -> tuple[tuple[Term, ...], tuple[Term, ...]] | None:
        """The two sides of a matmul, if it is one."""
        return two_sides(self.inside, self.over) if self.over else None

    @property
    def factors(self) -> tuple[Term, ...]:
        """What a product multiplies that is not summed; else the term alone."""
        if not self.operands or self.over:
            return (self,)
        return self.inside


_Sides = tuple[tuple[Term, ...], tuple[Term, ...]]


def term_of(operands: Iterable[Term], over: tuple[str, ...] = ()) -> Term:
    """Some terms, multiplied and summed."""
    operands = tuple(operands)
    axes = dict.fromkeys(axis for part in operands for axis in part.axes)
    return (
        operands[0]
        if len(operands) == 1 and not over
        else Term(tuple(a for a in axes if a not in over), operands, over)
    )


def are_many(terms: Sequence[Term]) -> bool:
    """Whether there is an order to choose: of three factors or more, none of which only scales another."""
    sets = {frozenset(term.axes) for term in terms}
    return sum(not any(one < other for other in sets) for one in sets) > 2 and len(terms) <= MOST


def in_order(found: Term, terms: Sequence[Term], lengths: Mapping[str, int], fixed: Mapping[str, int]) -> Term:
    """The sum of a product of some terms in the order of the least time, unless that found is not clearly slower.

    Products of factors have a term of their own where storing them is clearly faster than to multiply in a prologue.
    Of some `lengths`, those that are `fixed` also tell which kernels there are.
    """
    times = _Times(lengths, fixed)
    best = _cheapest(terms, found.axes, times)
    return times.settled(best if times.of(found) > CLEARLY * times.of(best) else found)


def _cheapest(terms: Sequence[Term], result_axes: tuple[str, ...], times: _Times) -> Term:
    """The fastest order, of equal ones the first: by sets of terms, each a number with a bit for every term."""
    best: dict[int, Term] = {}
    for chosen in range(1, 2 ** len(terms)):
        inside, others = ([term for n, term in enumerate(terms) if chosen >> n & 1 == wanted] for wanted in (1, 0))
        needed = {*result_axes, *(axis for term in others for axis in term.axes)}
        halves = [half for half in range(1, chosen) if half & chosen == half < chosen ^ half]
        splits: list[tuple[Term, ...]] = [(best[half], best[chosen ^ half]) for half in halves] or [(*inside,)]
        every = [_summed(operands, needed) for operands in splits]
        best[chosen] = min(every, key=times.of)
    return best[2 ** len(terms) - 1]


def _summed(operands: tuple[Term, ...], needed: set[str]) -> Term:
    return term_of(operands, tuple(dict.fromkeys(a for part in operands for a in part.axes if a not in needed)))


class _Times:
    """The times that terms take until they are in memory, where axes have some lengths."""

    def __init__(self, lengths: Mapping[str, int], fixed: Mapping[str, int]) -> None:
        self.lengths, self.fixed = lengths, fixed
        self.known: dict[Term, float] = {}

    def of(self, term: Term) -> float:
        if term not in self.known:
            self.known[term] = self.found(term)
        return self.known[term]

    def found(self, term: Term) -> float:
        if not term.operands:
            return 0.0
        if not term.over:
            return self.product(term)
        return self.matmul(term, term.sides, self.moving(term)) if term.sides else self.reduction(term)

    def moving(self, *terms: Term) -> float:
        """How long it takes to write what terms give, or to read it."""
        return sum(stored(term.axes, self.lengths) for term in terms) / BANDWIDTH

    def product(self, term: Term) -> float:
        """That of a product, in the epilogue of a factor if that has all axes of it."""
        before = sum(map(self.of, term.inside))
        full = next((one for one in term.inside if one.over and {*one.axes} == {*term.axes}), None)
        if full:
            return before + self.moving(*(one for one in term.inside if one != full))
        return before + kernel(self.moving(term, *term.inside))

    def matmul(self, term: Term, sides: _Sides, written: float) -> float:
        return min(self.both(term, sides, written))

    def both(self, term: Term, sides: _Sides, written: float) -> tuple[float, float]:
        """The times of a matmul of sides that are stored before, and of one that multiplies their factors itself."""
        left, right = (free_axes(side, term.over) for side in sides)
        if not all({*term.over} <= {axis for one in side for axis in one.axes} for side in sides):
            return math.inf, math.inf  # No kernel sums one side alone.
        axes = (left & right, left - right, right - left, term.over)
        roles = batch, rows, cols, inner = tuple(count(one, self.lengths) for one in axes)
        programs = batch * math.ceil(rows / TILE) * math.ceil(cols / TILE) * math.ceil(inner / PART)
        working = multiplied(*roles) * max(1.0, SMS / programs)
        full = [term_of(side) for side in sides]
        copied = self.moving(*(one for one in full if _is_parted(one, term.over, left & right)))
        plain = sum(map(self.of, full)) + kernel(self.moving(*full) + 2 * copied + written, working)
        if not any(one.operands and not one.over for one in full):
            return plain, math.inf
        slower = outer(*roles) if any(map(are_outer, sides)) else PROLOGUE
        factors = [one for side in sides for one in side]
        return plain, sum(map(self.of, factors)) + kernel(self.moving(*factors) + written, working * slower)

    def reduction(self, term: Term) -> float:
        """That of a sum of rows, or in the epilogue of a matmul that has all axes of what is summed."""
        found = [one for one in term.inside if one.sides]
        others = [one for one in term.inside if one not in found]
        before, axes = sum(map(self.of, others)), {axis for one in term.inside for axis in one.axes}
        if len(found) == 1 and axes == {*found[0].axes} and found[0].sides:
            written = self.moving(term, *others)
            if self.are_groups(found[0].sides, found[0].over, term.over):
                return before + self.matmul(found[0], found[0].sides, written)
            if _are_strips(found[0].sides, found[0].over, term.over):
                partial = 2 * self.moving(found[0]) / STRIP_COLS  # in float32
                return before + self.matmul(found[0], found[0].sides, written + 2 * partial) + LAUNCH
        reading = max(self.moving(term, *term.inside), count(axes, self.lengths) / SCALAR_RATE)
        return before + sum(map(self.of, found)) + kernel(reading)

    def are_groups(self, sides: _Sides, over: tuple[str, ...], summed: tuple[str, ...]) -> bool:
        """Whether axes of a matmul's result are groups of adjacent columns that a tile has in full."""
        width = math.prod(self.fixed.get(axis, 0) for axis in summed)
        side = next((side for side in sides if {*summed} < free_axes(side, over)), ())
        lasts = [[axis for axis in one.axes if axis not in over][-len(summed) :] for one in side]
        return 1 < width <= WIDEST_GROUP and width & (width - 1) == 0 and all({*one} == {*summed} for one in lasts)

    def settled(self, term: Term) -> Term:
        """The term, in which products that are clearly better stored are terms of their own, and no others are."""
        term = replace(term, operands=tuple(map(self.settled, term.operands)))
        sides = term.sides
        flat = replace(term, operands=term.inside)
        if not sides or not any(map(are_outer, sides)):
            return flat
        plain, multiplying = self.both(term, sides, self.moving(term))
        if multiplying <= CLEARLY * plain:
            return flat
        operands = [(term_of(side),) if are_outer(side) else side for side in sides]
        return replace(term, operands=tuple(part for side in operands for part in side))


def _is_parted(term: Term, over: tuple[str, ...], batch: frozenset[str]) -> bool:
    """Whether free axes of a factor lie both before and behind those that are summed."""
    runs = [kind for kind, _ in groupby(axis in over for axis in term.axes if axis not in batch)]
    return not term.operands and runs.count(False) > 1


def _are_strips(sides: _Sides, over: tuple[str, ...], summed: tuple[str, ...]) -> bool:
    """Whether axes of a matmul's result are all its rows or all its columns."""
    left, right = (free_axes(side, over) for side in sides)
    return {*summed} in (left - right, right - left)
