"""Subgraphs of an operator as steps, which a search for the best cut combines."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import or_
from typing import TYPE_CHECKING, Protocol

from ..lang.ir import ALWAYS, Call, Op, Path, Reduce, Ref, Result, Scan, Value, walk
from ..lowering.choices import Choices
from ..passes.contractions import comes_of_matmuls, is_product
from ..passes.structure import is_extremum, reached, reads, references, taken_from
from ..spec.types import COMPUTED, FLOATS
from .cost import bytes_read, bytes_written, lengths_of
from .operators import same_op, same_result, same_value, subgraph_of
from .pruning import Pruning
from .stored import always_stored, may_be_stored, stored_result
from .strips import made_for, merged_strips, reduced_by_strips, spreads

if TYPE_CHECKING:
    from ..families.family import Step


@dataclass(frozen=True)
class Subgraph:
    """The step that computes a subgraph, None if no family takes it, and its time."""

    step: Step | None
    time: float

    @cached_property
    def calls(self) -> int:
        """The number of calls that passes over long rows repeat; 0 without reductions, as calls then run once."""
        if self.step is None:
            return 0
        op = self.step.op
        reduces = any(isinstance(value.node, Reduce) and not is_product(op, value.node) for value in op.values)
        return sum(isinstance(node, Call) for node in op.nodes) if reduces else 0


UNCLAIMED = Subgraph(None, math.inf)


class TakeAlone(Protocol):
    """Finds the family that takes an operator; returns `UNCLAIMED` for math that none takes."""

    def __call__(self, op: Op) -> Subgraph: ...

    @property
    def is_ours(self) -> bool:
        """Whether all families are of this package, for which `Pruning` knows subgraphs that no kernel computes."""
        ...

    @property
    def near(self) -> frozenset[str]:
        """The values that the steps of a similar operator store; these steps are likely to store them, too."""
        ...


@dataclass(slots=True, eq=False)
class Targets:
    """Results that a step computes, with bits of their own values (`roots`), of those that they may read, of their axes
    (`space`), and of the values that other steps read from them (`made`); and the bytes `written`.

    The subgraphs `found` have recent ones first; `before` is that in the cut that is being changed.
    """

    results: tuple[Result, ...]
    roots: int
    readable: int
    space: int
    made: int
    written: int
    found: list[MadeOf] = field(default_factory=list)
    last: MadeOf | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MadeOf:
    """The subgraph of some `targets`: the `bits` of the values that its step reads, and those of the `computed` ones.

    `space` has the bits of all axes that the step iterates over, `loads` of the inputs that it reads. The subgraph is
    valid for all cuts in which, of the values in `mask`, exactly those that it reads are stored.
    """

    targets: Targets
    computed: int
    reads: tuple[str, ...]
    bits: int
    mask: int
    space: int
    loads: int


class Subgraphs:
    """The subgraphs of an operator, each with its step and its time, cached since several cuts share them. Sets of
    values are integers with a bit for each value.

    With `exact_ties`, steps that compute a max or min whose elements a gradient looks for, or look for them, do not
    read operands that others have stored rounded, but compute these themselves.
    """

    def __init__(self, op: Op, take: TakeAlone, exact_ties: bool = False) -> None:
        self.op, self.take, self.exact_ties = op.of(map(same_value, op.values)), take, exact_ties
        self.of_strips = merged_strips(op)
        self.pruning = Pruning(op) if take.is_ours else None
        self.outputs = {result.output.name for result in op.results}
        self.paths = Choices(op).paths
        self.refs = op.refs
        self.gathered = taken_from(op)
        given = {tensor.name: 1 << place for place, tensor in enumerate(op.inputs) if tensor.name not in self.gathered}
        self.loads = [sum(given.get(name, 0) for name in value.node.reads) for value in op.values]
        self.sources = {name: made_for(op, name) for name in reduced_by_strips(op)}
        reductions = {value.name: value.node for value in op.values if isinstance(value.node, Reduce)}
        # Matrices whose strips are reduced are computed once for both.
        saved = {self.value_of(result) for result in op.results if result.saved}
        saved |= {name for one in saved if isinstance(op.value(one).node, Ref) for name in self.refs[one]}
        self.saved_values = saved
        self.saved = {name for name in saved & reductions.keys() if not is_product(op, reductions[name])}
        self.stored_as_read = saved | _stored_as_read(op)
        self.compared = _compared_with_saved(op)
        self.enclosing: dict[frozenset[str], Op] = {}  # by the inputs that matter to subgraphs
        self.typing = _typing(op)
        self.inputs = {value.name: value.node.leaves | value.node.reads for value in op.values}
        strips = {strips.axis for strips in op.strips}
        self.axis_bits = {axis: 0 if axis in strips else 1 << place for place, axis in enumerate(op.axes)}
        self.axes = [self.space_of(_axes(value)) for value in op.values]
        self.names = [value.name for value in op.values]
        self.bits = {name: 1 << place for place, name in enumerate(self.names)}
        self.stored = {name: same_result(stored_result(self.op, name)) for name in self.names}  # as results of steps
        self.stored_bits = {id(one): self.bits[name] for name, one in self.stored.items()}  # by the ids of the results
        self.below = [self.bits_of(self.refs[one]) for one in self.names]
        # For each value together with all that it depends on: their bits, those of their axes, and of inputs they read.
        self.every = self.with_below([*self.bits.values()])
        self.spaces, self.every_load = self.with_below(self.axes), self.with_below(self.loads)
        self.lengths = lengths_of(op)
        self.bytes = {name: bytes_written(one, self.lengths) for name, one in self.stored.items()}
        self.bytes_loaded = [bytes_read(tensor, self.lengths) for tensor in op.inputs]
        self.targets: dict[tuple[int, ...], Targets] = {}  # by the ids of the results
        self.each_stored = [(self.bits[name], self.targets_of((one,))) for name, one in self.stored.items()]
        # The results of the operator, each with the bit of the stored value that is the same tensor.
        names = [result.output.name for result in op.results]
        same = [self.bits[name] if self.stored[name].output.name == name else 0 for name in names]
        self.each_result = [(bit, self.targets_of((one,))) for bit, one in zip(same, op.results, strict=True)]
        self.subgraphs: dict[MadeOf, Subgraph] = {}

    def with_below(self, bits: Sequence[int]) -> list[int]:
        """The `bits` of each value, combined with the bits of all values that it depends on."""
        found: list[int] = []
        for own, below in zip(bits, self.below, strict=True):
            found.append(functools.reduce(or_, (one for place, one in enumerate(found) if below >> place & 1), own))
        return found

    def made_by(self, targets: Iterable[Result]) -> int:
        """The values that other steps read from `targets`; not an output whose value is stored separately."""
        return functools.reduce(or_, (self.stored_bits.get(id(target), 0) for target in targets), 0)

    def needed(self, target: Result, stored: int) -> tuple[Path, ...]:
        """The paths on which a stored value is needed; results that are not stored are always computed."""
        name = self.value_of(target)
        return self.paths[name] if name in self.paths and stored & self.bits[name] else ALWAYS

    def value_of(self, target: Result) -> str:
        """The name of a target's value: the name of an output, or of the value that a stored result refers to."""
        if target.output.name in self.outputs:
            return target.output.name
        assert isinstance(target.node, Ref)
        return target.node.name

    def each_target(self, stored: int) -> list[Targets]:
        """All results that steps compute: the stored values, and the results of the operator that are not stored."""
        found = [one for bit, one in self.each_stored if stored & bit]
        return found + [one for same, one in self.each_result if not stored & same]

    def each_made_of(self, stored: int) -> list[MadeOf]:
        """The subgraphs of all results that steps compute, mostly the same as in the cut before."""
        return [
            made_of if (made_of := one.last) and stored & made_of.mask == made_of.bits else self.found_of(one, stored)
            for one in self.each_target(stored)
        ]

    def made_of(self, targets: tuple[Result, ...], stored: int) -> MadeOf:
        """The subgraph of the targets, if other steps store the values in `stored`."""
        return self.found_of(self.targets_of(targets), stored)

    def targets_of(self, results: tuple[Result, ...]) -> Targets:
        key = tuple(map(id, results))
        if key not in self.targets:
            roots, readable = self.bits_of(self.roots(results)), self.bits_of(self.readable(results))
            space = self.space_of(axis for result in results for axis in result.axes)
            written = sum(bytes_written(result, self.lengths) for result in results)
            self.targets[key] = Targets(results, roots, readable, space, self.made_by(results), written)
        return self.targets[key]

    def found_of(self, targets: Targets, stored: int) -> MadeOf:
        """The subgraph of the targets, if other steps store the values in `stored`."""
        found = targets.found
        for place, made_of in enumerate(found):
            if stored & made_of.mask == made_of.bits:
                if place > 1:  # Cuts tried in sequence are variants of one cut: keep recent subgraphs at the front.
                    found.insert(0, found.pop(place))
                targets.last = made_of
                return made_of
        targets.last = self.found_for(targets, stored & targets.readable)
        found.insert(0, targets.last)
        return targets.last

    def bits_of(self, names: Iterable[str]) -> int:
        return sum(self.bits[name] for name in names if name in self.bits)

    def found_for(self, targets: Targets, may_read: int) -> MadeOf:
        """The subgraph of the targets, which may read the stored values `may_read`."""
        left, space = targets.roots, targets.space
        reads, computed, read, loads = list[str](), 0, 0, 0
        while left:  # Values refer to those before them.
            place = left.bit_length() - 1
            bit = 1 << place
            if may_read & bit:
                read |= bit
                reads.append(self.names[place])
                left ^= bit
            elif may_read & self.every[place]:
                computed |= bit
                loads |= self.loads[place]
                space |= self.axes[place]
                left = left ^ bit | self.below[place]
            else:
                computed |= self.every[place]
                loads |= self.every_load[place]
                space |= self.spaces[place]
                left &= ~self.every[place]
        mask = (read | computed) & targets.readable
        return MadeOf(targets, computed, tuple(reversed(reads)), read, mask, space, loads)

    def in_order(self, made_of: MadeOf) -> list[str]:
        """The names of the values that a step computes, in the operator's order."""
        return [name for name, bit in self.bits.items() if made_of.computed & bit]

    def space_of(self, axes: Iterable[str]) -> int:
        """Axes as bits, except axes of strips."""
        return functools.reduce(or_, (self.axis_bits[axis] for axis in axes), 0)

    def readable(self, targets: tuple[Result, ...]) -> set[str]:
        """The values that the targets may read if other steps have stored them."""
        own = {self.value_of(target) for target in targets}
        unread = {name for target in own & self.sources.keys() for name in self.sources[target]}
        found = reached(self.refs, self.roots(targets), ()) - own - unread
        if self.exact_ties and not own.isdisjoint(self.ties):
            return {name for name in found if not self.is_rounded_elsewhere(name)}
        return found

    def is_rounded_elsewhere(self, name: str) -> bool:
        """Whether other steps may store a value rounded, though a step that computes it itself does not round it."""
        is_stored = name not in self.stored_as_read and may_be_stored(self.op, self.op.value(name))
        return is_stored and is_rounded(self.stored[name])

    @cached_property
    def ties(self) -> set[str]:
        """The saved max and min reductions, and the values of a gradient that look for their elements."""
        return {name for name in self.saved if is_extremum(self.op.value(name).node)} | {*self.compared}

    def roots(self, targets: Iterable[Result]) -> set[str]:
        return {name for target in targets for name in (target.output.name, *references(target.node))}

    def subgraph(self, targets: tuple[Result, ...], stored: int) -> Subgraph:
        """The subgraph that computes the targets from values that other steps have stored."""
        if len(targets) > 1 and not self.have_one_space(targets, stored):
            return UNCLAIMED
        return self.step_of(self.made_of(targets, stored))

    def step_of(self, made_of: MadeOf) -> Subgraph:
        if made_of not in self.subgraphs:
            self.subgraphs[made_of] = UNCLAIMED if self.is_refused(made_of) else self.claimed(self.op_of(made_of))
        return self.subgraphs[made_of]

    def have_one_space(self, targets: tuple[Result, ...], stored: int) -> bool:
        """Whether one kernel may compute the targets: one of them has all axes that the kernel iterates over."""
        spaces = [self.made_of((target,), stored).space for target in targets]
        return functools.reduce(or_, spaces) in spaces

    def is_refused(self, made_of: MadeOf) -> bool:
        """Whether certainly no kernel computes the subgraph, or its results would differ from other steps' values."""
        targets, computed = made_of.targets.results, frozenset(self.in_order(made_of))
        merged = [axes for name, axes in self.of_strips.items() if name in computed]
        if spreads(merged, targets) or (self.pruning is not None and self.pruning.refuses(computed, targets)):
            return True
        own = {self.value_of(target) for target in targets}
        return self.separates_ties(computed, own) or self.rounds_ties(computed, made_of.reads)

    def op_of(self, made_of: MadeOf) -> Op:
        targets = made_of.targets.results
        values = tuple([self.op.value(name) for name in self.in_order(made_of)])
        own = frozenset([self.value_of(target) for target in targets])
        reads = tuple([(name, self.stored[name]) for name in made_of.reads])
        leaves = [leaf for one in (*targets, *(result for _, result in reads)) for leaf in one.dtype.leaves]
        leaves += [leaf for target in targets for leaf in target.node.leaves]
        return subgraph_of(self.enclosing_of(values, leaves), values, own, targets, reads)

    def enclosing_of(self, values: Iterable[Value], leaves: Iterable[str]) -> Op:
        """The operator without values, results, and inputs that do not matter to the subgraph, so that it is cached:
        plans of a gradient that differ in their saved values have most subgraphs in common.
        """
        names = self.typing.union(leaves, *(self.inputs[value.name] for value in values))
        if names not in self.enclosing:
            inputs = tuple([tensor for tensor in self.op.inputs if tensor.name in names])
            self.enclosing[names] = same_op(replace(self.op, inputs=inputs, values=(), results=()))
        return self.enclosing[names]

    def separates_ties(self, computed: AbstractSet[str], own: AbstractSet[str]) -> bool:
        """Whether a step computes a max or min from a reduction that it recomputes, while another step saves it.

        A gradient that looks for the elements of the max has to find bitwise equal values, which reductions in another
        order do not give.
        """
        others = self.saved & computed - own
        extrema = {name for name in computed if others and is_extremum(self.op.value(name).node)}
        return bool(others & reached(self.refs, extrema, set()))

    def rounds_ties(self, computed: AbstractSet[str], reads: Collection[str]) -> bool:
        """Whether a step computes a saved max or min, or a step of the gradient looks for its elements, among values
        that another step has stored rounded, although the counterpart does not round them.
        """
        rounded = {name for name in reads if is_rounded(self.stored[name])}
        extrema = {name for name in computed & self.saved if is_extremum(self.op.value(name).node)}
        compared = set().union(*(self.compared[name] for name in computed & self.compared.keys()))
        return bool((rounded - self.stored_as_read) & reached(self.refs, extrema | compared, reads))

    def without_rounded_ties(self, names: Sequence[str]) -> list[str]:
        """The names without values that would be stored rounded and that a saved max or min, or the comparison with it,
        would read.
        """
        rounded = {name for name in names if is_rounded(self.stored[name])} - self.stored_as_read
        extrema = {name for name in self.saved if is_extremum(self.op.value(name).node)}
        found = set().union(*(self.refs[name] for name in extrema), *self.compared.values())
        ties = reached(self.refs, found, {*names} - rounded)
        return [name for name in names if name not in rounded & ties]

    def casts_to_others(self, op: Op) -> bool:
        """Whether a value is cast to the dtype of an input of the operator that the subgraph does not have."""
        others = {tensor.name for tensor in self.op.inputs} - {tensor.name for tensor in op.inputs}
        return not all(others.isdisjoint(value.node.casts) for value in op.values)

    def claimed(self, op: Op) -> Subgraph:
        """Offer an operator to the families; a single result is computed unconditionally when its step is called."""
        if self.casts_to_others(op):
            return UNCLAIMED
        if len(op.results) == 1 and (op.results[0].when or op.results[0].paths != ALWAYS):
            op = replace(op, results=(replace(op.results[0], when="", paths=ALWAYS),))
        return self.take(op)


def _stored_as_read(op: Op) -> set[str]:
    """The values that the gradient reads as the forward's steps store them, or stores in the same way."""
    products = {value.name for value in op.values if is_product(op, value.node)}
    of_matmuls = {one.output.name for one in op.results if comes_of_matmuls(op, one.output.name)}
    scans = {value.name for value in op.values if isinstance(value.node, Scan)}
    return products | of_matmuls | scans | {*always_stored(op)}


def _typing(op: Op) -> frozenset[str]:
    """The inputs that may determine the device and the dtypes of others."""
    required = [tensor for tensor in op.inputs if tensor.default is None]
    floats = [tensor for tensor in required if {*tensor.type.dtypes} & {*FLOATS}]
    shared = [tensor for tensor in op.inputs if tensor.type.variable]
    return frozenset(tensor.name for tensor in (*required[:1], *floats[:1], *shared))


def _axes(value: Value) -> frozenset[str]:
    nodes = walk(value.node)
    return frozenset(axis for node in nodes for axis in (*node.axes, *(node.over if isinstance(node, Reduce) else ())))


def is_rounded(stored: Result) -> bool:
    """Whether a float value is stored in a dtype other than the compute dtype."""
    return stored.dtype.kind == "float" and stored.dtype.rule != "compute"


def _compared_with_saved(op: Op) -> dict[str, set[str]]:
    """The values that compare others with saved ones to find the elements of a max, with the values compared."""
    saved = {tensor.name for tensor in op.inputs if tensor.type.dtypes == COMPUTED}
    found: dict[str, set[str]] = {}
    for value in op.values:
        for node in walk(value.node):
            if isinstance(node, Call) and node.function == "eq" and reads(node) & saved:
                found.setdefault(value.name, set()).update(references(node))
    return found
