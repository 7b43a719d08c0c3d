"""Parts of an operator as steps, which a search for the best cut puts together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...lang.ir import ALWAYS, Call, Cast, Op, Path, Reduce, Ref, Result, Value, as_loads, walk
from ...lang.unparse import spelled
from ...lowering.choices import Choices
from ...passes.contractions import comes_of_matmuls, is_product
from ...passes.structure import is_extremum, reached, reads, references, taken_from
from ...spec.types import COMPUTED, FLOATS, Input
from ..family import Step
from ..steps import cast_as, restricted, result_as, typed_as
from .cost import time_of
from .stored import always_stored, as_input, stored_result
from .strips import made_for, reduced_by_strips, spreads

_Pairs = frozenset[tuple[str, str]]
TakeAlone = Callable[[Op], Step | None]  # None for math that no family takes


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the results, their step if a family takes them, and its time."""

    op: Op
    step: Step | None
    time: float


class Stored(dict[str, Result]):
    """Values that are stored, as results of steps, and a bit for each. They do not change."""

    def __init__(self, results: Mapping[str, Result], bits: Mapping[str, int]) -> None:
        super().__init__(results)
        self.mask = sum(bits[name] for name in results)


class Parts:
    """The parts of an operator, each with its step and its time, cached since several cuts share them."""

    def __init__(self, op: Op, take: TakeAlone) -> None:
        self.op, self.take = op, take
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
        self.casts = {value.name: leaves for value in op.values if (leaves := _cast_to(value))}
        self.results: dict[str, Result] = {}
        self.read: dict[tuple[str, frozenset[str], bool], Value] = {}
        self.own: dict[tuple[int, _Pairs, _Pairs], tuple[Value, Value]] = {}  # by the ids of values
        self.bits = {value.name: 1 << place for place, value in enumerate(op.values)}
        self.reached: dict[tuple[str, ...], int] = {}
        self.found: dict[tuple[tuple[str, ...], int], tuple[set[str], tuple[str, ...]]] = {}
        self.parts: dict[tuple[tuple[int, ...], tuple[str, ...]], Part] = {}  # by the ids of results

    def storing(self, names: Iterable[str]) -> Stored:
        """Values as results of steps."""
        return Stored({name: self.stored(name) for name in names}, self.bits)

    def stored(self, name: str) -> Result:
        """A value as the result of a step."""
        if name not in self.results:
            self.results[name] = stored_result(self.op, name)
        return self.results[name]

    def needed(self, target: Result, stored: Stored) -> tuple[Path, ...]:
        """The paths on which something is made of what is stored."""
        name = self.value_of(target)
        return self.paths[name] if name in stored and name in self.paths else ALWAYS

    def value_of(self, target: Result) -> str:
        """The value that a target is: an output is the one of its name, what is stored refers to one."""
        if target.output.name in self.outputs:
            return target.output.name
        assert isinstance(target.node, Ref)
        return target.node.name

    def made_of(self, targets: tuple[Result, ...], stored: Stored) -> tuple[set[str], tuple[str, ...]]:
        """The values that some results are made of, and those among them that other steps have stored, in order."""
        names = tuple([target.output.name for target in targets])
        if names not in self.reached:
            self.reached[names] = sum(self.bits[name] for name in self.readable(targets))
        known = stored.mask & self.reached[names]
        if (names, known) not in self.found:
            others = {name for name, bit in self.bits.items() if known & bit}
            found = reached(self.refs, self.roots(targets), others)
            self.found[names, known] = found, tuple(name for name in self.bits if name in others and name in found)
        return self.found[names, known]

    def readable(self, targets: tuple[Result, ...]) -> set[str]:
        """What some results may read where other steps have stored it."""
        own = {self.value_of(target) for target in targets}
        unread = {name for target in own & self.ways.keys() for name in self.ways[target]}
        return reached(self.refs, self.roots(targets), ()) - own - unread

    def roots(self, targets: Iterable[Result]) -> set[str]:
        return {name for target in targets for name in (target.output.name, *references(target.node))}

    def part(self, targets: tuple[Result, ...], stored: Stored) -> Part:
        """The operator of some results, which reads what other steps have stored."""
        made_of, reads = self.made_of(targets, stored)
        key = tuple(map(id, targets)), reads
        if key not in self.parts:
            self.parts[key] = self.made(targets, made_of, {name: stored[name] for name in reads})
        return self.parts[key]

    def made(self, targets: tuple[Result, ...], made_of: set[str], reads: dict[str, Result]) -> Part:
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
        stored = _stored_as(reads.values())
        part = replace(part, inputs=(*part.inputs, *self.cast_to(part, stored)))
        op = self.in_own_types(part, stored)
        computed = made_of - reads.keys()
        step = None if self.parts_ties(computed, own) or self.rounds_ties(computed, reads) else self.taken(op)
        return Part(op, step, time_of(step) if step else math.inf)

    def telling(self, part: Op) -> tuple[Input, ...]:
        """An input that tells the device, or whether to compute in float64, where all that is read may be left out."""
        there = [tensor for tensor in part.inputs if tensor.default is None]
        floats = [tensor for tensor in part.inputs if set(tensor.type.dtypes) & set(FLOATS)]
        if there and (not floats or any(tensor in there for tensor in floats)):
            return ()
        others = [tensor for tensor in self.op.inputs if tensor.default is None and tensor not in there]
        others.sort(key=lambda tensor: not set(tensor.type.dtypes) & set(FLOATS))
        return tuple(others[:1])

    def cast_to(self, part: Op, stored: Mapping[str, str]) -> list[Input]:
        """Other inputs to whose dtype the part casts, where no input has that type, and nothing is `stored` in it."""
        names = {tensor.name for tensor in part.inputs} | stored.keys()
        types = {tensor.type.variable for tensor in part.inputs if tensor.default is None} - {""}
        wanted = set().union(*(self.casts.get(value.name, ()) for value in part.values)) - names
        others = [tensor for tensor in self.op.inputs if tensor.name in wanted and tensor.default is None]
        return [tensor for tensor in others if tensor.type.variable not in types]

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
        rounded = {name for name, one in reads.items() if is_rounded(one)}
        extrema = {name for name in computed & self.saved if is_extremum(self.op.value(name).node)}
        compared = set().union(*(self.compared[name] for name in computed & self.compared.keys()))
        return bool((rounded - self.alike) & reached(self.refs, extrema | compared, reads.keys()))

    def without_rounded_ties(self, names: Sequence[str]) -> list[str]:
        """Values to store, but for those that a largest or smallest would find rounded that is computed or looked for
        among numbers that are not.
        """
        rounded = {name for name in names if is_rounded(self.stored(name))} - self.alike
        extrema = {name for name in self.saved if is_extremum(self.op.value(name).node)}
        found = set().union(*(self.refs[name] for name in extrema), *self.compared.values())
        ties = reached(self.refs, found, {*names} - rounded)
        return [name for name in names if name not in rounded & ties]

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

    def in_own_types(self, part: Op, stored: Mapping[str, str]) -> Op:
        """The part, with dtypes of its own inputs, unless these are optional, where they have the type of others. What
        is cast to the dtype of an input that it lacks is cast to that of what is `stored` in this dtype.
        """
        own = {tensor.type.variable: tensor.name for tensor in reversed(part.inputs) if tensor.default is None}
        names = {tensor.name for tensor in part.inputs}
        others = [tensor for tensor in self.op.inputs if tensor.name not in names and tensor.type.variable]
        alike = {tensor.name: own[tensor.type.variable] for tensor in others if tensor.type.variable in own}
        told = {leaf: name for leaf, name in stored.items() if leaf not in names}
        values = tuple(self.typed(value, alike, told) for value in part.values)
        return replace(part, values=values, results=tuple(result_as(result, alike) for result in part.results))

    def typed(self, value: Value, alike: Mapping[str, str], told: Mapping[str, str]) -> Value:
        """The value, with dtypes of inputs that are alike, and cast to those that are told."""
        leaves = value.node.leaves
        pairs = frozenset((leaf, alike[leaf]) for leaf in leaves & alike.keys())
        key = id(value), pairs, frozenset((leaf, told[leaf]) for leaf in leaves & told.keys())
        if key not in self.own:
            self.own[key] = value, value.of(cast_as(typed_as(value.node, alike), told))
        return self.own[key][1]

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
        return self.take(op)


def _stored_as(results: Iterable[Result]) -> dict[str, str]:
    """By the inputs in whose dtypes alone floats are stored: one of the results that is."""
    floats = [one for one in results if one.dtype.kind == "float" and not one.dtype.rule and len(one.dtype.of) == 1]
    return {one.dtype.of[0]: one.output.name for one in floats}


def _cast_to(value: Value) -> set[str]:
    """The dtypes and inputs to whose dtypes parts of a value are cast."""
    return {leaf for node in walk(value.node) if isinstance(node, Cast) for leaf in node.dtype.of}


def is_rounded(stored: Result) -> bool:
    """Whether a value is stored in another dtype than that of the computation."""
    return stored.dtype.kind == "float" and stored.dtype.rule != "compute"


def _compared_with_saved(op: Op) -> dict[str, set[str]]:
    """What values compare with numbers that a forward has saved: of a gradient, to find the elements of a largest."""
    saved = {tensor.name for tensor in op.inputs if tensor.type.dtypes == COMPUTED}
    found: dict[str, set[str]] = {}
    for value in op.values:
        for node in walk(value.node):
            if isinstance(node, Call) and node.function == "eq" and reads(node) & saved:
                found.setdefault(value.name, set()).update(references(node))
    return found
