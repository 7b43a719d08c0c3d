"""Cuts an operator into steps: chooses the values that are stored between kernels.

The search starts at the cheapest choice whose steps families take: at most `MOST` stored values, all lines except at
most `MOST`, all lines, reductions and factors, or all lines and attentions without scores. If there is none, it stores
all reductions, scans and row-wise values computed from them; else all storable values, at last without storing (or
reading) rounded operands of a maximum that a gradient compares. Else values with a runtime dtype may be stored, too.
Then values are added to the stored ones, or removed, as long as that lowers the cost: in each round the best change,
and then those of the others that lower the cost further. In the end steps are merged.
If all lines and reductions are stored, a change affects only adjacent steps, which are small, so that families are
offered few subgraphs per line. If no lines were stored, each step would compute all lines before it.
Cuts that do not store the scores of attention count as cheaper than any that do: lengths of heads are unknown, but
scores are known to be many.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import or_
from typing import TYPE_CHECKING

from ..lang.ir import Op, Reduce, Ref, Result, Scan
from ..passes.structure import with_read_values
from .cost import least_time, time_of
from .naming import factors_named, rows_named, scattered_named, sums_parted, takes_resolved, with_plain_axes
from .starts import choices, scores_of
from .stored import always_stored, may_be_stored
from .strips import by_strips, reduced_by_strips
from .subgraphs import MadeOf, Subgraph, Subgraphs, TakeAlone

if TYPE_CHECKING:
    from ..families.family import Step


@dataclass(frozen=True, slots=True)
class Cut:
    """Steps in the order in which they run, and the values that are stored for them."""

    steps: tuple[Step, ...]
    stored: frozenset[str]
    cost: _Cost


# Whether scores of attention are stored, the time of the steps, and the number of function calls in row-wise steps.
_Cost = tuple[bool, float, int]
_Level = tuple[bool, *tuple[MadeOf, ...]]  # whether it is the last, and the results that may be computed together
_Group = tuple[tuple[Result, ...], Subgraph]  # results that are computed together; none for steps of an unfused line


@dataclass(frozen=True, slots=True)
class _Together:
    """The groups of a level, or None if no family takes one; `certain` is the time of those that others read."""

    groups: list[_Group] | None
    certain: float


def cut(op: Op, take: TakeAlone) -> Cut | None:
    """The cheapest cut of an operator whose reductions have names, or by lines if it is unfused; None if there is none.

    Values with a runtime dtype are stored only if there is no cut without them.
    """
    plain = _plain(op)
    named = factors_named(plain)
    own = {value.name for value in op.values}
    variants = dict.fromkeys(map(with_read_values, (named, rows_named(sums_parted(named)), *by_strips(named), plain)))
    for runtime_dtypes in (False, True):
        best = None if op.fuse else _line_by_line(plain, take, runtime_dtypes)
        for one in variants if op.fuse else ():
            found = _least(one, own, take, runtime_dtypes, best.stored if best else take.near)
            if found and (best is None or found.cost < best.cost):
                best = found
        if best:
            return best
    return None


def unclaimed(op: Op, take: TakeAlone) -> tuple[Op, Op]:
    """The operator as steps see it, and the first subgraph that no family takes if all storable values are stored."""
    plain = factors_named(_plain(op))
    search = _Search(plain, take)
    stored = search.bits_of(value.name for value in plain.values if may_be_stored(plain, value, runtime_dtypes=True))
    each = search.each_made_of(stored)
    return plain, next((search.op_of(one) for one in each if search.step_of(one).step is None), plain)


def _plain(op: Op) -> Op:
    """The operator as steps see it. Lines that nothing reads any more, because sums read their factors, are dropped;
    else values that only they read would be stored for nothing.
    """
    return with_read_values(scattered_named(rows_named(takes_resolved(with_plain_axes(op)))))


def _least(plain: Op, own: set[str], take: TakeAlone, runtime_dtypes: bool, near: AbstractSet[str]) -> Cut | None:
    """The cheapest cut of an operator whose storable values have names; `near` are the values that the steps of a
    similar operator store.
    """
    names = [value.name for value in plain.values if may_be_stored(plain, value, runtime_dtypes)]
    always = [*always_stored(plain), *reduced_by_strips(plain)]
    if not set(always) <= set(names):
        return None
    search = _Search(plain, take)
    others = [name for name in names if name not in always]
    reduced = {value.name for value in plain.values if isinstance(value.node, Reduce | Scan)}
    rows = reduced.union(always, {value.name for value in plain.values} - own)
    lines = search.steps(search.bits_of([*always, *(name for name in others if name in plain.lines)]))
    results = {result.node.name for result in plain.results if isinstance(result.node, Ref)}  # stored if need be
    similar = [tuple(name for name in others if name in near - results)] if near else []
    few = [*similar, *choices(plain, others, rows, search.saved_values)]
    best = search.least([[*always, *chosen] for chosen in few], lines)
    if best:
        return search.merged(search.improved(best, others))
    first = (
        search.steps(search.bits_of(rows.intersection(names)))
        or search.steps(search.bits_of(names))
        or search.steps(search.bits_of(search.without_rounded_ties(names)))
    )
    if first is None:
        search = _Search(plain, take, exact_ties=True)
        first = search.steps(search.bits_of(names))
    return search.merged(search.improved(first, others)) if first else None


def _line_by_line(op: Op, take: TakeAlone, runtime_dtypes: bool) -> Cut | None:
    """The cut with a step for each line that may be stored, or several if no family computes the line."""
    stored = {*op.lines, *(result.output.name for result in op.results), *always_stored(op)}
    chosen = [value.name for value in op.values if value.name in stored and may_be_stored(op, value, runtime_dtypes)]
    search = _Search(op, take, frozenset(op.lines))
    return search.steps(search.bits_of(chosen))


class _Search(Subgraphs):
    """Tries cuts of an operator. Lines in `unfused` are each computed by steps of their own (`fuse = false`)."""

    def __init__(
        self, op: Op, take: TakeAlone, unfused: frozenset[str] = frozenset(), exact_ties: bool = False
    ) -> None:
        super().__init__(op, take, exact_ties)
        self.unfused = unfused
        self.scores = self.bits_of(scores_of(op))
        self.known: dict[_Level, _Together] = {}
        self.bounds: dict[_Level, float] = {}

    def improved(self, best: Cut, names: list[str]) -> Cut:
        """The cut after storing values, no longer storing them, or storing an operand instead, as long as the cost
        falls.
        """
        bits = [self.bits[name] for name in names]
        edges = [self.bits[name] | self.bits[other] for name in names for other in names if other in self.refs[name]]
        while True:
            stored = self.bits_of(best.stored)
            changes = [*bits, *(edge for edge in edges if (edge & stored).bit_count() == 1)]
            found = [cut for change in changes if (cut := self.changed(best, change)) and cut.cost < best.cost]
            if not found:
                return best
            first, *others = sorted(found, key=lambda one: one.cost)
            for other in others:
                both = self.changed(first, self.bits_of(other.stored) ^ stored)
                first = both if both and both.cost < first.cost else first
            best = first

    def changed(self, best: Cut, change: int) -> Cut | None:
        """The cut with the values in `change` added to the stored ones or removed; None if it costs more for sure."""
        stored = self.bits_of(best.stored) ^ change
        return self.steps(stored, self.limit(best.cost, stored))

    def limit(self, cost: _Cost, stored: int) -> float:
        """The time beyond which storing these values costs more than `cost`."""
        stores, time, _ = cost
        return math.inf if stores and not stored & self.scores else time

    def least(self, choices: Iterable[Iterable[str]], other: Cut | None) -> Cut | None:
        """The cut of the cheapest choice, the first of equals; None if families take none, or `other` costs less."""
        best: Cut | None = None
        for stored in map(self.bits_of, choices):
            known = best or other
            limit = self.limit(known.cost, stored) if known else math.inf
            found = self.steps(stored, limit * (1 + 1 / 2**40))  # tolerance: equal times added in another order differ
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        return best

    def steps(self, stored: int, limit: float = math.inf) -> Cut | None:
        """The cut that stores these values; None if no family takes one of its steps, or their time certainly exceeds
        `limit`.
        """
        groups = self.groups(stored, limit)
        return self.cut_of(groups, stored) if groups is not None else None

    def cut_of(self, groups: Iterable[_Group], stored: int) -> Cut:
        subgraphs = [subgraph for _, subgraph in groups]
        steps = tuple(subgraph.step for subgraph in subgraphs if subgraph.step)
        time, calls = sum(subgraph.time for subgraph in subgraphs), sum(subgraph.calls for subgraph in subgraphs)
        names = frozenset(name for name, bit in self.bits.items() if stored & bit)
        return Cut(steps, names, (bool(stored & self.scores), time, calls))

    def groups(self, stored: int, limit: float = math.inf) -> list[_Group] | None:
        """The groups of results that are computed together, in order; None as in `steps`."""
        levels = self.levels(stored)
        times: list[float] = []
        for level in levels:
            one = self.known.get(level)
            if one is not None and one.groups is None:
                return None
            times.append(self.least_of(level) if one is None else one.certain)
        groups: list[_Group] = []
        for place, level in enumerate(levels):
            if level not in self.known:
                if sum(times) > limit:
                    return None
                self.known[level] = self.together(level, stored)
            one = self.known[level]
            times[place] = one.certain
            if one.groups is None:
                return None
            groups += one.groups
        return self.with_unread_later(groups, stored) if sum(times) <= limit else None

    def is_certain(self, is_last: bool, targets: Iterable[Result]) -> bool:
        """Whether no later step may compute the results: other steps read them, or their level is the last."""
        return bool(is_last or self.unfused) or self.is_read(targets)

    def is_read(self, targets: Iterable[Result]) -> bool:
        """Whether any of the results is stored for other steps."""
        return any(id(target) in self.stored_bits for target in targets)

    def merged(self, best: Cut) -> Cut:
        """The cut with steps merged into later ones that read their values, where that costs less.

        Merged steps read the same tensors once, and values that only they read are not stored. A forward that saves
        values for a backward goes on reading stored values rounded, as its backward does. Groups of results merge with
        fewer others than each result by itself would, so that both are tried.
        """
        stored = self.bits_of(best.stored)
        groups = self.groups(stored)
        if groups is None or self.unfused:
            return best
        exact = self.bits_of(
            name for name in best.stored if self.stored[name].dtype.rule == "compute" or not self.saved_values
        )
        alone: list[_Group] = [
            ((target,), self.subgraph((target,), stored)) for targets, _ in groups for target in targets
        ]
        found = [self.merged_from(groups, stored, exact)]
        if len(alone) > len(groups) and all(subgraph.step for _, subgraph in alone):
            found.append(self.merged_from(alone, stored, exact))
        return min([best, *found], key=lambda one: one.cost)

    def merged_from(self, groups: list[_Group], stored: int, exact: int) -> Cut:
        """The cut of the groups, each merged with a later one as long as that costs less."""
        place = 0
        while place < len(groups):
            joint = self.merged_later(place, groups, stored, exact)
            if joint is None:
                place += 1
            else:
                groups, stored = joint
                place = 0
        return self.cut_of(self.joined(groups, stored), stored)

    def joined(self, groups: list[_Group], stored: int) -> list[_Group]:
        """The groups, each merged into an earlier one if that costs less and it reads nothing computed since."""
        found: list[_Group] = []
        made: list[int] = []
        for one in groups:
            made_of = self.made_of(one[0], stored)
            first = max((place + 1 for place, values in enumerate(made) if values & made_of.bits), default=0)
            for place, before in enumerate(found[first:], first):
                both = self.both(before, one, stored)
                if both:
                    found[place] = both
                    made[place] |= made_of.targets.made
                    break
            else:
                found.append(one)
                made.append(made_of.targets.made)
        return found

    def both(self, one: _Group, other: _Group, stored: int) -> _Group | None:
        """Two groups computed together, if they are needed under the same conditions and that costs less."""
        (targets, subgraph), (others, after) = one, other
        if self.needed(targets[0], stored) != self.needed(others[0], stored):
            return None
        joint = self.subgraph((*targets, *others), stored)
        return ((*targets, *others), joint) if joint.time < subgraph.time + after.time else None

    def merged_later(
        self, place: int, groups: list[_Group], stored: int, exact: int
    ) -> tuple[list[_Group], int] | None:
        """The groups with the one at `place` merged into a later one that reads it, and the values still stored; None
        if no merge costs less.
        """
        targets, subgraph = groups[place]
        each = [self.made_of(group, stored) for group, _ in groups]
        made, read = [one.targets.made for one in each], [one.bits for one in each]
        for later, (others, after) in enumerate(groups[place + 1 :], place + 1):
            taken = made[place] & read[later]
            if not taken or taken & ~exact or self.needed(others[0], stored) != self.needed(targets[0], stored):
                continue
            at = _place_of_both(place, later, made, read)
            if at is None:
                continue
            elsewhere = functools.reduce(or_, (bits for one, bits in enumerate(read) if one != later))
            remaining = [t for t in targets if t.output.name in self.outputs or self.bits[self.value_of(t)] & elsewhere]
            left = stored & ~taken | self.made_by(remaining)
            joint = self.subgraph((*remaining, *others), left)
            if joint.time < subgraph.time + after.time:
                rest = [group for one, group in enumerate(groups) if one not in (place, later)]
                return [*rest[:at], ((*remaining, *others), joint), *rest[at:]], left
        return None

    def levels(self, stored: int) -> list[_Level]:
        """The results that may be computed together, in order."""
        levels: list[list[MadeOf]] = []
        made: list[int] = []  # by each level; values refer only to those before them
        for made_of in self.each_made_of(stored):
            bits, depth = made_of.bits, len(made)
            while depth and not made[depth - 1] & bits:
                depth -= 1
            if depth == len(made):
                levels.append([])
                made.append(0)
            levels[depth].append(made_of)
            made[depth] |= made_of.targets.made
        return [(level is levels[-1], *level) for level in levels]

    def least_of(self, level: _Level) -> float:
        """A lower bound of the time of the level's results that no later step may compute."""
        if level not in self.bounds:
            is_last, *each = level
            each = [one for one in each if self.is_certain(is_last, one.targets.results)]
            names = {name for made_of in each for name in made_of.reads} - self.gathered
            computed, read, loads = 0, 0, 0
            for made_of in each:
                computed, read, loads = computed | made_of.computed, read | made_of.bits, loads | made_of.loads
            if computed & read:  # One result reads a stored value that another computes: a step of both reads it.
                loads = 0
            moved = sum([self.bytes[name] for name in names]) + sum([one.targets.written for one in each])
            moved += sum([moved for place, moved in enumerate(self.bytes_loaded) if loads >> place & 1])
            self.bounds[level] = least_time(moved) if each else 0.0
        return self.bounds[level]

    def with_unread_later(self, groups: list[_Group], stored: int) -> list[_Group]:
        """The groups, with those that no others read merged into later ones where that costs less."""
        if self.unfused:
            return groups
        groups, moved = [*groups], set[int]()
        for place, one in enumerate(groups):
            if self.is_read(one[0]):
                continue
            for later, other in enumerate(groups[place + 1 :], place + 1):
                both = self.both(other, one, stored)
                if both:
                    groups[later] = both
                    moved.add(place)
                    break
        return [group for place, group in enumerate(groups) if place not in moved]

    def together(self, level: _Level, stored: int) -> _Together:
        """As `put_together`, with the time of the groups that no later step may compute."""
        is_last, *each = level
        groups = self.put_together(each, stored)
        certain = (subgraph.time for group, subgraph in groups or () if self.is_certain(is_last, group))
        return _Together(groups, sum(certain))

    def put_together(self, level: Iterable[MadeOf], stored: int) -> list[_Group] | None:
        """Groups of results that do not depend on each other: together, in their order, if that costs less, or if no
        family takes one by itself.

        Results that only one side of a choice needs get a step of their own, which runs if that side is chosen.
        """
        groups: list[_Group] = []
        cuts: list[_Group] = []
        each = [(made_of, self.step_of(made_of)) for made_of in level]
        for made_of, alone in sorted(each, key=lambda one: one[1].step is None):
            targets = made_of.targets.results
            for place, group in enumerate(() if targets[0].output.name in self.unfused else groups):
                both = self.both(group, (targets, alone), stored)
                if both:
                    groups[place] = both
                    break
            else:
                if alone.step is not None:
                    groups.append((targets, alone))
                elif self.unfused and (found := cut(self.op_of(made_of), self.take)) is not None:
                    cuts += [((), Subgraph(step, time_of(step))) for step in found.steps]
                else:
                    return None
        return [*groups, *cuts]


def _place_of_both(place: int, later: int, made: Sequence[int], read: Sequence[int]) -> int | None:
    """The position of two merged groups, by the values that groups make and read: that of the first, or else of the
    other; None if a group in between needs the first, and one in between is needed by the other.
    """
    between = range(place + 1, later)
    if not any(made[one] & read[later] for one in between):
        return place
    return None if any(made[place] & read[one] for one in between) else later - 1
