"""Where an operator is cut into steps: which of its values are stored between kernels.

The search starts at the cheapest choice of at most `MOST` values to store whose steps families take, or of all lines
but at most so many, or of all lines and attentions without scores; if none of these will do, at all reductions and
the row-wise values computed from them, or else at everything that may be stored. Then values are added to the stored
ones, or removed from them, one by one, as long as that lowers the cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from ...diagnostics.report import Mistakes
from ...lang.ir import ALWAYS, Call, Cast, Op, Path, Reduce, Ref, Result, Value, as_loads, walk
from ...lang.unparse import spelled
from ...lowering.choices import Choices
from ...passes.contractions import comes_of_matmuls, is_product
from ...passes.structure import is_extremum, reached, reads, references, taken_from
from ...spec.types import COMPUTED, FLOATS, Input
from ..family import Step
from ..steps import restricted, with_dtypes
from ..streaming.stored import attentions
from .cost import least_time, time_of
from .naming import factors_named, rows_named, scattered_named, sums_parted, takes_resolved, with_plain_axes
from .stored import always_stored, as_input, may_be_stored, stored_result
from .strips import by_strips, made_for, reduced_by_strips, spreads

MOST = 2  # the number of stored values up to which all combinations are tried

TakeAlone = Callable[[Op], Step]  # raises `Mistakes` for math that it does not take


@dataclass(frozen=True, slots=True)
class Cut:
    """Steps in the order in which they run, and the values that are stored for them."""

    steps: tuple[Step, ...]
    stored: frozenset[str]
    cost: tuple[float, int]  # their time, and then the number of function calls in row-wise steps


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the results, their step if a family takes them, and its time."""

    op: Op
    step: Step | None
    time: float


_Group = tuple[tuple[Result, ...], _Part]  # results that are computed together; none for steps of a line kept apart


def cut(op: Op, take: TakeAlone) -> Cut | None:
    """The steps of an operator whose reductions have names; None if values without a known dtype would be stored."""
    plain = scattered_named(rows_named(takes_resolved(with_plain_axes(op))))
    if not op.fuse:
        return _lines_apart(plain, take)
    named = factors_named(plain)
    own = {value.name for value in op.values}
    tried = [_least(one, own, take) for one in dict.fromkeys((named, sums_parted(named), *by_strips(named), plain))]
    return min(filter(None, tried), key=lambda one: one.cost, default=None)


def _least(plain: Op, own: set[str], take: TakeAlone) -> Cut | None:
    """The cheapest steps of an operator, in which values that may be stored have names."""
    names = [value.name for value in plain.values if may_be_stored(plain, value)]
    always = [*always_stored(plain), *reduced_by_strips(plain)]
    if not set(always) <= set(names):
        return None
    search = _Search(plain, take)
    others = [name for name in names if name not in always]
    few = _few(others)
    few += [tuple(name for name in others if name in plain.lines and name not in left) for left in _few(plain.lines)]
    few += _but_scores(plain, others, search.kept)
    best = search.least([[*always, *chosen] for chosen in dict.fromkeys(few)])
    if best:
        return search.improved(best, others)
    made = {value.name for value in plain.values} - own
    reduced = {name for name in names if isinstance(plain.value(name).node, Reduce)}
    rows = [name for name in names if name in made | reduced | set(always)]
    first = search.steps(rows) or search.steps(names)
    return search.improved(first, others) if first else None


def _but_scores(op: Op, names: Sequence[str], kept: Container[str]) -> list[tuple[str, ...]]:
    """All lines and attentions but what has the axes of their scores, and all lines and what is kept but that."""
    found = tuple(attentions(op))
    scores = {v.name for v in op.values if any({one.rows, one.streamed} <= {*v.node.axes} for one in found)}
    others = [value for value in op.values if value.name in names and value.name not in scores]
    totals = {one.total.name for one in found}
    return [tuple(v.name for v in others if v.source or v.name in more) for more in (totals, kept) if found]


def _few(names: Sequence[str]) -> list[tuple[str, ...]]:
    return [chosen for count in range(MOST + 1) for chosen in combinations(names, count)]


def _lines_apart(op: Op, take: TakeAlone) -> Cut | None:
    """A step for each line that may be stored, or several if no family computes the line."""
    stored = {*op.lines, *(result.output.name for result in op.results), *always_stored(op)}
    chosen = [value.name for value in op.values if value.name in stored and may_be_stored(op, value)]
    return _Search(op, take, frozenset(op.lines)).steps(chosen)


class _Search:
    """Tries cuts of an operator, and caches parts that several of them share.

    Lines in `apart` are each computed by steps of their own.
    """

    def __init__(self, op: Op, take: TakeAlone, apart: frozenset[str] = frozenset()) -> None:
        self.op, self.take, self.apart = op, take, apart
        self.outputs = {result.output.name for result in op.results}
        self.paths = Choices(op).paths
        self.refs = {value.name: references(value.node) for value in op.values}
        self.in_parts = taken_from(op)
        self.loads = {value.name: reads(value.node) - self.in_parts for value in op.values}
        self.ways = {name: made_for(op, name) for name in reduced_by_strips(op)}
        reductions = {value.name: value.node for value in op.values if isinstance(value.node, Reduce)}
        # Matrices whose strips are reduced are computed once for both.
        saved = {self.value_of(result) for result in op.results if result.saved}
        saved |= {name for one in saved if isinstance(op.value(one).node, Ref) for name in self.refs[one]}
        self.kept = saved
        self.saved = {name for name in saved & reductions.keys() if not is_product(op, reductions[name])}
        # What the gradient reads as steps of the forward store it, or stores as they do.
        products = {name for name, node in reductions.items() if is_product(op, node)}
        of_matmuls = {name for name in self.outputs if comes_of_matmuls(op, name)}
        self.alike = saved | products | of_matmuls | {*always_stored(op)}
        self.compared = _compared_with_saved(op)
        self.results: dict[str, Result] = {}
        self.read: dict[tuple[str, frozenset[str], bool], Value] = {}
        self.reached: dict[tuple[str, ...], set[str]] = {}
        self.found: dict[tuple[tuple[str, ...], frozenset[str]], set[str]] = {}
        self.parts: dict[tuple[tuple[str, ...], tuple[str, ...]], _Part] = {}

    def improved(self, best: Cut, names: list[str]) -> Cut:
        """Adds values to the stored ones, removes them, or swaps them for values that they are made of, as long as the
        steps cost less.
        """
        edges = [{name, other} for name in names for other in names if other in self.refs[name]]
        while True:
            changes = [*({name} for name in names), *(edge for edge in edges if len(edge & best.stored) == 1)]
            sets = [best.stored ^ change for change in changes]
            chosen = [[value.name for value in self.op.values if value.name in one] for one in sets]
            better = self.least(chosen, best)
            if better is None or better is best:
                return best
            best = better

    def least(self, choices: Iterable[Sequence[str]], best: Cut | None = None) -> Cut | None:
        """The first of the cheapest choices, if one is cheaper than the best so far."""
        for chosen in choices:
            found = self.steps(chosen, best.cost[0] if best else math.inf)
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        return best

    def steps(self, chosen: Sequence[str], limit: float = math.inf) -> Cut | None:
        """The steps if some values are stored; None if no family takes one of them, or they certainly exceed a limit
        of time.
        """
        stored = {name: self.stored(name) for name in chosen}
        made = {result.output.name for result in stored.values()}
        targets = [*stored.values(), *(result for result in self.op.results if result.output.name not in made)]
        levels = self.levels(targets, stored)
        if levels is None:
            return None
        groups: list[_Group] = []
        for place, (level, _) in enumerate(levels):
            if sum(part.time for _, part in groups) + sum(least for _, least in levels[place:]) > limit:
                return None
            together = self.together(level, stored)
            if together is None:
                return None
            groups += together
        parts = [part for _, part in self.with_unread_later(groups, stored)]
        steps = tuple(part.step for part in parts if part.step)
        cost = sum(part.time for part in parts), sum(_repeated(step.op) for step in steps)
        return Cut(steps, frozenset(chosen), cost)

    def levels(self, targets: list[Result], stored: dict[str, Result]) -> list[tuple[list[Result], float]] | None:
        """The groups of results that may be computed together, in order, and a lower bound of their time; None for a
        cycle.
        """
        found = {target.output.name: self.made_of((target,), stored) for target in targets}
        reads = {own: {stored[name].output.name for name in names} for own, (_, names) in found.items()}
        levels: list[tuple[list[Result], float]] = []
        done: set[str] = set()
        while targets:
            ready = [target for target in targets if reads[target.output.name] <= done]
            if not ready:
                return None
            names = {name for target in ready for name in found[target.output.name][1]}
            values = {name for target in ready for name in found[target.output.name][0]} - names
            inputs = {name for value in values for name in self.loads[value]}
            tensors = [stored[name].axes for name in names - self.in_parts] + [target.axes for target in ready]
            levels.append((ready, least_time(self.op, inputs, tensors)))
            done |= {target.output.name for target in ready}
            targets = [target for target in targets if target not in ready]
        return levels

    def with_unread_later(self, groups: list[_Group], stored: dict[str, Result]) -> list[_Group]:
        """The groups, of which those that no other reads are computed with one after them where that costs less."""
        if self.apart:
            return groups
        read = {result.output.name for result in stored.values()}
        groups, moved = [*groups], set[int]()
        for place, (targets, part) in enumerate(groups):
            if any(target.output.name in read for target in targets):
                continue
            for later, (others, after) in enumerate(groups[place + 1 :], place + 1):
                if self.needed(others[0], stored) != self.needed(targets[0], stored):
                    continue
                joint = self.part((*others, *targets), stored)
                if joint.time < part.time + after.time:
                    groups[later] = (*others, *targets), joint
                    moved.add(place)
                    break
        return [group for place, group in enumerate(groups) if place not in moved]

    def together(self, targets: list[Result], stored: dict[str, Result]) -> list[_Group] | None:
        """The parts of results none of which is made of another: together, in their order, where that costs less, or
        where no family takes one by itself.

        What only one side of a choice needs is a step of its own, which runs where that side is chosen.
        """
        groups: list[_Group] = []
        cuts: list[_Group] = []
        for target in sorted(targets, key=lambda target: self.part((target,), stored).step is None):
            alone = self.part((target,), stored)
            for place, (group, part) in enumerate(() if target.output.name in self.apart else groups):
                if self.needed(group[0], stored) != self.needed(target, stored):
                    continue
                joint = self.part((*group, target), stored)
                if joint.time < part.time + alone.time:
                    groups[place] = (*group, target), joint
                    break
            else:
                if alone.step is not None:
                    groups.append(((target,), alone))
                elif self.apart and (found := cut(alone.op, self.take)) is not None:
                    cuts += [((), _Part(step.op, step, time_of(step))) for step in found.steps]
                else:
                    return None
        return [*groups, *cuts]

    def stored(self, name: str) -> Result:
        """A value as the result of a step."""
        if name not in self.results:
            self.results[name] = stored_result(self.op, name)
        return self.results[name]

    def needed(self, target: Result, stored: dict[str, Result]) -> tuple[Path, ...]:
        """The paths on which something is made of what is stored."""
        name = self.value_of(target)
        return self.paths[name] if name in stored and name in self.paths else ALWAYS

    def value_of(self, target: Result) -> str:
        """The value that a target is: an output is the one of its name, what is stored refers to one."""
        if target.output.name in self.outputs:
            return target.output.name
        assert isinstance(target.node, Ref)
        return target.node.name

    def made_of(self, targets: tuple[Result, ...], stored: dict[str, Result]) -> tuple[set[str], tuple[str, ...]]:
        """The values that some results are made of, and those among them that other steps have stored."""
        names = tuple(target.output.name for target in targets)
        if names not in self.reached:
            self.reached[names] = reached(self.refs, self.roots(targets), ())
        own = {self.value_of(target) for target in targets}
        unread = {name for target in own & self.ways.keys() for name in self.ways[target]}
        known = frozenset((stored.keys() & self.reached[names]) - own - unread)
        if (names, known) not in self.found:
            self.found[names, known] = reached(self.refs, self.roots(targets), known)
        found = self.found[names, known]
        return found, tuple(name for name in stored if name in known and name in found)

    def roots(self, targets: Iterable[Result]) -> set[str]:
        return {name for target in targets for name in (target.output.name, *references(target.node))}

    def part(self, targets: tuple[Result, ...], stored: dict[str, Result]) -> _Part:
        """The operator of some results, which reads what other steps have stored."""
        made_of, reads = self.made_of(targets, stored)
        key = tuple(target.output.name for target in targets), reads
        if key not in self.parts:
            self.parts[key] = self.made(targets, made_of, {name: stored[name] for name in reads})
        return self.parts[key]

    def made(self, targets: tuple[Result, ...], made_of: set[str], reads: dict[str, Result]) -> _Part:
        own = {self.value_of(target) for target in targets}
        names = {name: result.output.name for name, result in reads.items()}
        kept = [value for value in self.op.values if value.name in made_of - reads.keys()]
        values = tuple(self.spelled(value, names, value.name in own) for value in kept)
        for target in targets:
            if target.output.name not in {value.name for value in values}:
                values = (*values, Value(target.output.name, target.node, ""))
        inputs = (as_input(self.op, result) for result in reads.values())
        whole = replace(self.op, inputs=(*self.op.inputs, *inputs), values=values)
        part = restricted(whole, targets, f"_{targets[0].output.name}")
        part = replace(part, inputs=(*self.telling(part), *part.inputs))
        op = self.in_own_types(part)
        computed = made_of - reads.keys()
        step = None if self.parts_ties(computed, own) or self.rounds_ties(computed, reads) else self.taken(op)
        return _Part(op, step, time_of(step) if step else math.inf)

    def telling(self, part: Op) -> tuple[Input, ...]:
        """An input that tells the device, or whether to compute in float64, where all that is read may be left out."""
        there = [tensor for tensor in part.inputs if tensor.default is None]
        floats = [tensor for tensor in part.inputs if set(tensor.type.dtypes) & set(FLOATS)]
        if there and (not floats or any(tensor in there for tensor in floats)):
            return ()
        others = [tensor for tensor in self.op.inputs if tensor.default is None and tensor not in there]
        others.sort(key=lambda tensor: not set(tensor.type.dtypes) & set(FLOATS))
        return tuple(others[:1])

    def parts_ties(self, computed: set[str], own: set[str]) -> bool:
        """Whether a largest or smallest is of what a step computes itself and another step saves for the gradient.

        Where the gradient looks for the elements that it is, it has to find the same numbers to the last bit, and
        reductions in another order give others.
        """
        others = self.saved & computed - own
        extrema = {name for name in computed if is_extremum(self.op.value(name).node)}
        return bool(others & reached(self.refs, extrema, set()))

    def rounds_ties(self, computed: set[str], reads: Mapping[str, Result]) -> bool:
        """Whether a step of the forward computes a largest or smallest, or one of the gradient looks for its elements,
        among numbers that another step has stored rounded, where the other of the two does not round them.
        """
        rounded = {name for name, one in reads.items() if one.dtype.kind == "float" and one.dtype.rule != "compute"}
        extrema = {name for name in computed & self.saved if is_extremum(self.op.value(name).node)}
        compared = set().union(*(self.compared[name] for name in computed & self.compared.keys()))
        return bool((rounded - self.alike) & reached(self.refs, extrema | compared, reads.keys()))

    def spelled(self, value: Value, names: Mapping[str, str], is_target: bool) -> Value:
        """The value, which reads what is stored, with a line for readers where it has one or is computed for another
        step.
        """
        key = value.name, frozenset(self.refs[value.name] & names.keys()), is_target
        if key not in self.read:
            node = as_loads(value.node, names)
            line = value.source if node == value.node and value.source else ""
            self.read[key] = Value(value.name, node, line or (spelled(node) if value.source or is_target else ""))
        return self.read[key]

    def in_own_types(self, part: Op) -> Op:
        """The part, with dtypes of its own inputs, unless these are optional, where they have the type of others."""
        own = {tensor.type.variable: tensor.name for tensor in reversed(part.inputs) if tensor.default is None}
        names = {tensor.name for tensor in part.inputs}
        others = [tensor for tensor in self.op.inputs if tensor.name not in names and tensor.type.variable]
        alike = {tensor.name: own[tensor.type.variable] for tensor in others if tensor.type.variable in own}
        return with_dtypes(part, alike)

    def casts_to_others(self, op: Op) -> bool:
        """Whether a value is cast to the dtype of an input of the whole that the part does not have."""
        others = {tensor.name for tensor in self.op.inputs} - {tensor.name for tensor in op.inputs}
        nodes = (node for value in op.values for node in walk(value.node))
        return any(isinstance(node, Cast) and not others.isdisjoint(node.dtype.of) for node in nodes)

    def taken(self, op: Op) -> Step | None:
        """The step, whose only result is made wherever it is called."""
        if spreads(op) or self.casts_to_others(op):
            return None
        if len(op.results) == 1:
            op = replace(op, results=(replace(op.results[0], when="", paths=ALWAYS),))
        try:
            return self.take(op)
        except Mistakes:
            return None


def _compared_with_saved(op: Op) -> dict[str, set[str]]:
    """What values compare with numbers that a forward has saved: of a gradient, to find the elements of a largest."""
    saved = {tensor.name for tensor in op.inputs if tensor.type.dtypes == COMPUTED}
    found: dict[str, set[str]] = {}
    for value in op.values:
        for node in walk(value.node):
            if isinstance(node, Call) and node.function == "eq" and reads(node) & saved:
                found.setdefault(value.name, set()).update(references(node))
    return found


def _repeated(op: Op) -> int:
    """The calls that passes over long rows repeat; those in the epilogue of a matmul are computed once."""
    nodes = [node for value in op.values for node in walk(value.node)]
    reduces = any(isinstance(node, Reduce) and not is_product(op, node) for node in nodes)
    return sum(isinstance(node, Call) for node in nodes) if reduces else 0
