"""Where an operator is cut into steps: which of its values are stored between kernels.

The search starts at the cheapest choice of at most `MOST` values to store whose steps families take, or of all lines
but at most so many, or of all lines, reductions and factors, or of all lines and attentions without scores; if none of
these will do, at all reductions, scans and the row-wise values computed from them, or else at everything that may be
stored, but for what a largest must not be looked for among, rounded. Where that finds no cut either, values whose dtype
only a call tells may be stored, too. Then values are added to the stored ones, or removed from them, as long as that
lowers the cost: in each round the best such change, and of the others those that lower it further. In the end steps are
merged.
Where all lines and reductions are stored, a change concerns the steps next to it alone, and these are small: so the
subgraphs that are offered to families are few per line. Without lines, each step would compute all lines before it.
Steps that do not store the scores of attention cost less than any that do: lengths of heads are not known, but how many
scores there are is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..lang.ir import Op, Reduce, Ref, Result, Scan
from ..passes.structure import with_read_values
from .cost import least_time, time_of
from .naming import factors_named, rows_named, scattered_named, sums_parted, takes_resolved, with_plain_axes
from .starts import choices, scores_of
from .stored import always_stored, may_be_stored
from .strips import by_strips, reduced_by_strips
from .subgraphs import MadeOf, Stored, Subgraph, Subgraphs, TakeAlone

if TYPE_CHECKING:
    from ..families.family import Step


@dataclass(frozen=True, slots=True)
class Cut:
    """Steps in the order in which they run, and the values that are stored for them."""

    steps: tuple[Step, ...]
    stored: frozenset[str]
    # Whether scores of attention are stored, the time of steps, and then the number of function calls in row-wise ones.
    cost: tuple[bool, float, int]


_Level = list[tuple[Result, MadeOf]]  # results that may be computed together, and what they are made of
_Key = tuple[bool, *tuple[int, ...]]  # whether results are last, and the ids of what each is made of
_Group = tuple[tuple[Result, ...], Subgraph]  # results that are computed together; none for steps of an unfused line


@dataclass(frozen=True, slots=True)
class _Together:
    """The groups of a level, None where no family takes one, and their time without those that no other reads."""

    groups: list[_Group] | None
    certain: float


def cut(op: Op, take: TakeAlone) -> Cut | None:
    """The steps of an operator whose reductions have names; None where no family takes one of them.

    Values whose dtype is known only at run time are stored where nothing else will do.
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


def untaken(op: Op, take: TakeAlone) -> tuple[Op, Op]:
    """An operator as steps see it, and the first subgraph that no family takes with all storable values stored."""
    plain = factors_named(_plain(op))
    search = _Search(plain, take)
    stored = search.storing(value.name for value in plain.values if may_be_stored(plain, value, runtime_dtypes=True))
    targets = search.targets(stored)
    subgraphs = (search.op_of((one,), stored) for one in targets if search.part((one,), stored).step is None)
    return plain, next(subgraphs, plain)


def _plain(op: Op) -> Op:
    """The operator as steps see it. A line whose factors a sum reads is read no more: what only it reads would be
    stored for nothing.
    """
    return with_read_values(scattered_named(rows_named(takes_resolved(with_plain_axes(op)))))


def _least(plain: Op, own: set[str], take: TakeAlone, runtime_dtypes: bool, near: AbstractSet[str]) -> Cut | None:
    """The cheapest steps of an operator, in which values that may be stored have names; those of a similar one store
    what is `near`.
    """
    names = [value.name for value in plain.values if may_be_stored(plain, value, runtime_dtypes)]
    always = [*always_stored(plain), *reduced_by_strips(plain)]
    if not set(always) <= set(names):
        return None
    search = _Search(plain, take)
    others = [name for name in names if name not in always]
    reduced = {value.name for value in plain.values if isinstance(value.node, Reduce | Scan)}
    rows = reduced.union(always, {value.name for value in plain.values} - own)
    lines = search.steps([*always, *(name for name in others if name in plain.lines)])
    results = {result.node.name for result in plain.results if isinstance(result.node, Ref)}  # stored if need be
    similar = [tuple(name for name in others if name in near - results)] if near else []
    few = [*similar, *choices(plain, others, rows, search.saved_values)]
    best = search.least([[*always, *chosen] for chosen in few], lines)
    if best:
        return search.merged(search.improved(best, others))
    first = (
        search.steps([name for name in names if name in rows])
        or search.steps(names)
        or search.steps(search.without_rounded_ties(names))
    )
    if first is None:
        search = _Search(plain, take, exact_ties=True)
        first = search.steps(names)
    return search.merged(search.improved(first, others)) if first else None


def _line_by_line(op: Op, take: TakeAlone, runtime_dtypes: bool) -> Cut | None:
    """A step for each line that may be stored, or several if no family computes the line."""
    stored = {*op.lines, *(result.output.name for result in op.results), *always_stored(op)}
    chosen = [value.name for value in op.values if value.name in stored and may_be_stored(op, value, runtime_dtypes)]
    return _Search(op, take, frozenset(op.lines)).steps(chosen)


class _Search(Subgraphs):
    """Tries cuts of an operator. Lines in `unfused` are each computed by steps of their own (`fuse = false`)."""

    def __init__(
        self, op: Op, take: TakeAlone, unfused: frozenset[str] = frozenset(), exact_ties: bool = False
    ) -> None:
        super().__init__(op, take, exact_ties)
        self.unfused = unfused
        self.scores = scores_of(op)
        self.known: dict[_Key, _Together] = {}
        self.bounds: dict[_Key, float] = {}

    def improved(self, best: Cut, names: list[str]) -> Cut:
        """Adds values to the stored ones, removes them, or swaps them for values that they are made of, as long as the
        steps cost less.
        """
        edges = [{name, other} for name in names for other in names if other in self.refs[name]]
        while True:
            stored = self.storing(best.stored)
            targets = self.targets(stored)
            self.before = dict(zip(map(id, targets), self.each_made_of(targets, stored), strict=True))
            changes = [*({name} for name in names), *(edge for edge in edges if len(edge & best.stored) == 1)]
            found = [cut for change in changes if (cut := self.changed(best, change)) and cut.cost < best.cost]
            if not found:
                return best
            first, *others = sorted(found, key=lambda one: one.cost)
            for other in others:
                both = self.changed(first, other.stored ^ best.stored)
                first = both if both and both.cost < first.cost else first
            best = first

    def changed(self, best: Cut, change: AbstractSet[str]) -> Cut | None:
        """The cut with values added to the stored ones or removed; None if it certainly costs more."""
        names = best.stored ^ change
        stores, time, _ = best.cost
        chosen = [name for name in self.names if name in names]
        return self.steps(chosen, math.inf if stores and not self.stores_scores(chosen) else time)

    def least(self, choices: Iterable[Sequence[str]], other: Cut | None) -> Cut | None:
        """The first of the cheapest choices, among which is another cut."""
        best: Cut | None = None
        for chosen in choices:
            stores, time, _ = best.cost if best else other.cost if other else (False, math.inf, 0)
            time += time / 2**40  # of equal times, the sums of which are not
            found = self.steps(chosen, math.inf if stores and not self.stores_scores(chosen) else time)
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        return best

    def steps(self, chosen: Sequence[str], limit: float = math.inf) -> Cut | None:
        """The steps if some values are stored; None if no family takes one of them, or they certainly exceed a limit
        of time.
        """
        stored = self.storing(chosen)
        groups = self.groups(stored, limit)
        return self.cut_of(groups, stored) if groups is not None else None

    def cut_of(self, groups: Iterable[_Group], stored: Iterable[str]) -> Cut:
        subgraphs = [part for _, part in groups]
        steps = tuple(part.step for part in subgraphs if part.step)
        time, calls = sum(part.time for part in subgraphs), sum(part.calls for part in subgraphs)
        return Cut(steps, frozenset(stored), (self.stores_scores(stored), time, calls))

    def stores_scores(self, stored: Iterable[str]) -> bool:
        return not self.scores.isdisjoint(stored)

    def targets(self, stored: Stored) -> list[Result]:
        """All that steps compute: what is stored, and the results that are none of it."""
        made = {result.output.name for result in stored.values()}
        return [*stored.values(), *(result for result in self.op.results if result.output.name not in made)]

    def groups(self, stored: Stored, limit: float = math.inf) -> list[_Group] | None:
        """The results that are computed together, in order; None as in `steps`."""
        levels = self.levels(self.targets(stored), stored)
        keys = [_key(level, level is levels[-1]) for level in levels]
        found = [*map(self.known.get, keys)]
        if any(one is not None and one.groups is None for one in found):
            return None
        times = [
            self.least_of(key, level, stored) if one is None else one.certain
            for key, level, one in zip(keys, levels, found, strict=True)
        ]
        groups: list[_Group] = []
        for place, one in enumerate(found):
            if one is None:
                if sum(times) > limit:
                    return None
                one = self.known[keys[place]] = self.together(keys[place], levels[place], stored)
                times[place] = one.certain
            if one.groups is None:
                return None
            groups += one.groups
        return self.with_unread_later(groups, stored) if sum(times) <= limit else None

    def is_certain(self, key: _Key, targets: Iterable[Result]) -> bool:
        """Whether no later step computes some results: other steps read them, or there is none."""
        return bool(key[0] or self.unfused) or self.is_read(targets)

    def is_read(self, targets: Iterable[Result]) -> bool:
        """Whether other steps read some results, which are stored for them."""
        return any(id(target) in self.stored_bits for target in targets)

    def merged(self, best: Cut) -> Cut:
        """The cut, whose steps compute what others store for them themselves where that costs less.

        Both then read the same tensors once, and what only they read is not stored. In a forward whose backward
        computes again what it has read, all that reads a rounded matrix goes on doing so. Results that are computed
        together merge with less than each by itself would, so that both are tried.
        """
        stored = self.storing(name for name in self.names if name in best.stored)
        groups = self.groups(stored)
        if groups is None or self.unfused:
            return best
        exact = {name for name, one in stored.items() if one.dtype.rule == "compute" or not self.saved_values}
        alone: list[_Group] = [((target,), self.part((target,), stored)) for targets, _ in groups for target in targets]
        found = [self.merged_from(groups, stored, exact)]
        if len(alone) > len(groups) and all(part.step for _, part in alone):
            found.append(self.merged_from(alone, stored, exact))
        return min([best, *found], key=lambda one: one.cost)

    def made_by(self, targets: Sequence[Result], stored: Stored) -> set[str]:
        """The values that later groups read from some results; not one that is stored for them beside an output."""
        return {name for target in targets if stored.get(name := self.value_of(target)) is target}

    def merged_from(self, groups: list[_Group], stored: Stored, exact: set[str]) -> Cut:
        """The cut of some groups, each merged with a later one as long as one costs less."""
        place = 0
        while place < len(groups):
            joint = self.merged_later(place, groups, stored, exact)
            if joint is None:
                place += 1
            else:
                groups, stored = joint
                place = 0
        return self.cut_of(self.joined(groups, stored), stored)

    def joined(self, groups: list[_Group], stored: Stored) -> list[_Group]:
        """The groups, each merged into an earlier one where that costs less and it reads nothing computed since."""
        found: list[_Group] = []
        made: list[set[str]] = []
        for one in groups:
            reads, makes = {*self.made_of(one[0], stored).reads}, self.made_by(one[0], stored)
            first = max((place + 1 for place, names in enumerate(made) if names & reads), default=0)
            for place, before in enumerate(found[first:], first):
                both = self.both(before, one, stored)
                if both:
                    found[place] = both
                    made[place] |= makes
                    break
            else:
                found.append(one)
                made.append(makes)
        return found

    def both(self, one: _Group, other: _Group, stored: Stored) -> _Group | None:
        """Two groups computed together, if they are needed under the same conditions and that costs less."""
        (targets, part), (others, after) = one, other
        if self.needed(targets[0], stored) != self.needed(others[0], stored):
            return None
        joint = self.part((*targets, *others), stored)
        return ((*targets, *others), joint) if joint.time < part.time + after.time else None

    def merged_later(
        self, place: int, groups: list[_Group], stored: Stored, exact: set[str]
    ) -> tuple[list[_Group], Stored] | None:
        """The groups, one of which is computed with a later one that reads it, and what is still stored; None where
        that costs no less.
        """
        targets, part = groups[place]
        made = [self.made_by(group, stored) for group, _ in groups]
        read = [{*self.made_of(group, stored).reads} for group, _ in groups]
        for later, (others, after) in enumerate(groups[place + 1 :], place + 1):
            taken = made[place] & read[later]
            if not taken or not taken <= exact or self.needed(others[0], stored) != self.needed(targets[0], stored):
                continue
            at = _place_of_both(place, later, made, read)
            if at is None:
                continue
            elsewhere = set[str]().union(*(names for one, names in enumerate(read) if one != later))
            remaining = [t for t in targets if t.output.name in self.outputs or self.value_of(t) in elsewhere]
            left = self.storing(name for name in stored if name not in taken or stored[name] in remaining)
            joint = self.part((*remaining, *others), left)
            if joint.time < part.time + after.time:
                rest = [group for one, group in enumerate(groups) if one not in (place, later)]
                return [*rest[:at], ((*remaining, *others), joint), *rest[at:]], left
        return None

    def levels(self, targets: list[Result], stored: Stored) -> list[_Level]:
        """The results that may be computed together, in order."""
        found = self.each_made_of(targets, stored)
        depths: dict[str, int] = {}  # of what is stored, which refers to values before it
        by_name = dict(zip(stored, found, strict=False))
        for name in sorted(stored, key=self.bits.__getitem__):
            depths[name] = 1 + max(map(depths.__getitem__, by_name[name].reads), default=-1)
        places = [depths[name] for name in stored]
        places += [1 + max(map(depths.__getitem__, each.reads), default=-1) for each in found[len(places) :]]
        levels: list[_Level] = [[] for _ in range(1 + max(places))]
        for place, target, made_of in zip(places, targets, found, strict=True):
            levels[place].append((target, made_of))
        return levels

    def least_of(self, key: _Key, level: _Level, stored: Stored) -> float:
        """A lower bound of the certain time of results that are computed together."""
        if key not in self.bounds:
            level = [one for one in level if self.is_certain(key, one[:1])]
            names, computed, read, loads = set[str](), 0, 0, 0
            for _, made_of in level:
                names.update(made_of.reads)
                computed, read, loads = computed | made_of.computed, read | made_of.bits, loads | made_of.loads
            if computed & read:  # A step that has both reads what only one of two computes for itself.
                loads = 0
            inputs = [tensor.type.axes for place, tensor in enumerate(self.op.inputs) if loads >> place & 1]
            tensors = [stored[name].axes for name in names - self.gathered]
            tensors += [target.axes for target, _ in level]
            self.bounds[key] = least_time(self.op, [*inputs, *tensors]) if level else 0.0
        return self.bounds[key]

    def with_unread_later(self, groups: list[_Group], stored: Stored) -> list[_Group]:
        """The groups, of which those that no other reads are computed with one after them where that costs less."""
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

    def together(self, key: _Key, level: _Level, stored: Stored) -> _Together:
        """As `put_together`, with the time of groups but those which a later step may compute."""
        groups = self.put_together([target for target, _ in level], stored)
        certain = (part.time for group, part in groups or () if self.is_certain(key, group))
        return _Together(groups, sum(certain))

    def put_together(self, targets: list[Result], stored: Stored) -> list[_Group] | None:
        """The subgraphs of results none of which is made of another: together, in their order, where that costs less,
        or where no family takes one by itself.

        What only one side of a choice needs is a step of its own, which runs where that side is chosen.
        """
        groups: list[_Group] = []
        cuts: list[_Group] = []
        each = [(target, self.part((target,), stored)) for target in targets]
        for target, alone in sorted(each, key=lambda one: one[1].step is None):
            for place, group in enumerate(() if target.output.name in self.unfused else groups):
                both = self.both(group, ((target,), alone), stored)
                if both:
                    groups[place] = both
                    break
            else:
                if alone.step is not None:
                    groups.append(((target,), alone))
                elif self.unfused and (found := cut(self.op_of((target,), stored), self.take)) is not None:
                    cuts += [((), Subgraph(step, time_of(step))) for step in found.steps]
                else:
                    return None
        return [*groups, *cuts]


def _place_of_both(
    place: int, later: int, made: Sequence[AbstractSet[str]], read: Sequence[AbstractSet[str]]
) -> int | None:
    """Where two of some groups run together, by what groups make and read: in place of the first, or else of the other;
    None where those between need the first, and the other needs these.
    """
    between = range(place + 1, later)
    if not any(made[one] & read[later] for one in between):
        return place
    return None if any(made[place] & read[one] for one in between) else later - 1


def _key(level: _Level, is_last: bool) -> _Key:
    """What tells results from others that may be computed together."""
    return is_last, *[id(made_of) for _, made_of in level]
