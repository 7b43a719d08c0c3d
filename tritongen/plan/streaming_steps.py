"""The steps of a gradient of what streams: those along the rows together, and those along what is streamed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..autodiff.gradient import Gradient
from ..families.family import Families, Step
from ..families.registry import single_step_of
from ..families.stream import StoredScores, Stream
from ..families.streaming.family import STREAMING, STREAMING_GRADIENTS
from ..families.streaming.stored import stores
from ..families.streaming.tile_sums import TILE_SUMS
from ..lang.ir import COMPUTE, Dtype, Load, Node, Op, Reduce, Ref, Result, ScatterSum, Value, walk
from ..lang.rewrite import as_loads, replaced
from ..lowering.tile import needed
from ..passes.structure import reads, references
from ..planner.naming import scattered_named
from ..planner.steps import informed, restricted, typed_as
from ..planner.stored import as_input
from ..spec.types import COMPUTED, Input, Output, plain_shape
from .backward import Planner
from .split_reductions import in_tiles, split_reductions


class StreamPlanner(Planner):
    """Plans the gradients by what lies along the rows together, and those by what is streamed: each needs one pass.

    The first that reads delta, if it is of rows, tells it to others; else it has a step of its own. Of what is summed
    over both axes, or over the batch besides, a pass stores partial sums, which an ordinary step reduces.
    """

    def __init__(
        self,
        gradient: Gradient,
        stream: Stream,
        families: Families,
        delta: tuple[tuple[Input, ...], Value] | None = None,
        between: Mapping[str, Dtype] | None = None,
    ) -> None:
        super().__init__(gradient, (), families, between)
        self.stream, self.delta = stream, delta
        self.delta_name = delta[1].name if delta is not None else ""
        self.is_known, self.is_first = False, True
        self.stored: StoredScores | None = None
        self.partials: dict[str, tuple[str, ...]] = {}  # partial sums that passes store, and the results that read them

    def split(self, results: tuple[Result, ...]) -> list[Step]:
        op, partials = split_reductions(scattered_named(self.op), results, self.stream)
        behind = {own: [v for v in needed(op.values, [own]) if v in partials] for own in _names(results)}
        plain = [result for result in results if not behind[result.output.name]]
        steps = self.passes(op, plain, partials)
        both = {self.stream.rows, self.stream.streamed}
        steps += self.tiles(op, [result for result in plain if both <= {*result.axes}], _made_by(steps))
        taken = _made_by(steps)
        within = {own: in_tiles(op, own, self.stream) for own in _names(results) if own not in taken}
        steps += self.tiles_within(op, within, taken)
        taken = _made_by(steps)
        computed = self.read_behind({own: [*values, *within.get(own, ())] for own, values in behind.items()}, taken)
        own = {*_names(results), self.delta_name} - {value.name for value in computed}
        made = [one for step in steps for one in _shaped(step.op) if one.output.name not in own]
        self.op = _reading(op, made) if made else self.op
        return self.with_others(tuple(result for result in results if result.output.name not in taken), steps, computed)

    def with_others(self, left: tuple[Result, ...], steps: list[Step], computed: tuple[Value, ...]) -> list[Step]:
        """Steps that stream or are tiles, with those that what is left needs."""
        steps = [*self.delta_first(left, steps), *steps]
        others = self.others(left, steps)
        self.stored = self.scores_stored(left, others, computed)
        return [*steps, *others]

    def tiles_within(self, op: Op, within: Mapping[str, Sequence[Value]], taken: Container[str]) -> list[Step]:
        """The steps of tiles that results are made of."""
        terms = dict.fromkeys(value for values in within.values() for value in values)
        tiles = self.tiles(op, [computed_result(value) for value in terms if value.name not in taken], taken)
        return _read_by(op, within, tiles)

    def passes(self, op: Op, results: Sequence[Result], partials: Sequence[Value]) -> list[Step]:
        """The steps along the rows, and along what streams, of results and sums that lie along one of them."""
        pair = {self.stream.rows, self.stream.streamed}
        every = (*results, *map(computed_result, partials))
        steps: list[Step | None] = []
        for axis in (self.stream.rows, self.stream.streamed):
            gradients = tuple(result for result in results if pair & {*result.axes} == {axis})
            sums = tuple(computed_result(value) for value in partials if axis in value.node.axes)
            together = self.step(op, (*gradients, *sums), every)
            groups = () if together is not None else (*_of_same_batch(gradients, self.stream), sums)
            steps += [together, *(self.step(op, group, every) for group in groups)]
        return [step for step in steps if step is not None]

    def read_behind(self, behind: Mapping[str, Sequence[Value]], taken: Container[str]) -> tuple[Value, ...]:
        """The values that results are made of and passes have taken, with the results that each is in."""
        every = dict.fromkeys(value for values in behind.values() for value in values)
        computed = tuple(value for value in every if value.name in taken)
        self.partials = {v.name: tuple(own for own, values in behind.items() if v in values) for v in computed}
        return computed

    def delta_first(self, left: tuple[Result, ...], steps: list[Step]) -> list[Step]:
        """The step that computes delta, where steps or the results that are left read it, and none makes it."""
        if self.delta is None or self.delta_name in _made_by(steps):
            return []
        reads = self.reads_delta(self.op, left) or any(t.name == self.delta_name for s in steps for t in s.op.inputs)
        return [self.before(self.delta)] if reads else []

    def others(self, left: tuple[Result, ...], steps: list[Step]) -> list[Step]:
        """The steps of the results that no pass takes, called otherwise than passes are."""
        found = super().split(left)
        names = {step.op.name for step in steps}
        if any(one.op.name in names for other in found for one in other.family.steps(other.program)):
            self.is_first = False
            found = super().split(left)
        return found

    def tiles(self, op: Op, results: Sequence[Result], made: Container[str]) -> list[Step]:
        """The steps that compute results with both axes of scores, tile by tile, where that can be.

        Tiles sum no matrix by itself, as norms of rows do, which passes along the rows may: steps before do that,
        unless the sum is `made` already.
        """
        found: dict[str, Step] = {}
        for one in results:
            own = restricted(op, (one,), f"_{one.output.name}")
            sums = tuple(map(computed_result, _sums_of_a_side(own, self.stream)))
            step = self.found(tile_step_of, _reading(own, sums) if sums else own)
            if step is not None:
                for name, computed in zip(_names(sums), sums, strict=True):
                    if name not in made:
                        found[name] = single_step_of(restricted(op, (computed,), f"_{name}"), self.families)
                found[one.output.name] = step
        return [*found.values()]

    def restricted(self, results: Sequence[Result], place: int) -> Op:
        """The operator of some results alone; not called as all of them where its steps would be called as passes."""
        return super().restricted(results, place if self.is_first else place + 1)

    def scores_stored(
        self, left: tuple[Result, ...], steps: list[Step], computed: tuple[Value, ...]
    ) -> StoredScores | None:
        """The scores that steps store for results that no pass computes, or that a pass stores for the full batch."""
        axes = (self.stream.rows, self.stream.streamed)
        batch = (*self.stream.batch, *self.stream.heads, *self.stream.outer_axes)
        full = [value.name for value in computed if {*axes, *batch} <= {*value.node.axes}]
        if not full and not stores(steps, axes, _names(left)):
            return None
        for name, result in zip(self.gradient.wrt, self.op.results, strict=True):
            values = needed(self.op.values, [result.output.name]) if result.output.name in _names(left) else []
            nodes = [value.node for value in values if value.node.dtype.kind == "float"]
            read = {part.name for node in nodes for part in walk(node) if isinstance(part, Load)}
            if read.intersection(full) or any({*axes} <= {*node.axes} for node in nodes):
                scattered = any(isinstance(part, ScatterSum) for node in nodes for part in walk(node))
                what = "is scattered to what was taken" if scattered else "has no pass that sums it up"
                return StoredScores(axes, f"the gradient by {name} {what}")
        return None

    def step(self, op: Op, results: tuple[Result, ...], every: tuple[Result, ...]) -> Step | None:
        """The step for results that lie along the same axis; the first of rows computes delta, and tells it others."""
        if not results:
            return None
        computed: tuple[Result, ...] = ()
        suffix = "_".join(("", *_names(results)))
        if self.delta is not None and not self.is_known and self.is_of_rows(results) and self.reads_delta(op, results):
            others = tuple(result for result in every if result not in results)
            computed = (computed_result(self.delta[1]),) if self.reads_delta(op, others) else ()
            op = _with_delta(op, *self.delta)
        step = self.found(_stream_step_of, restricted(op, (*results, *computed), suffix))
        self.is_known |= bool(computed) and step is not None
        return step

    def is_of_rows(self, results: tuple[Result, ...]) -> bool:
        return self.stream.rows in results[0].axes

    def reads_delta(self, op: Op, results: tuple[Result, ...]) -> bool:
        read = needed(op.values, _names(results))
        return any(isinstance(part, Load) and part.name == self.delta_name for one in read for part in walk(one.node))

    def before(self, delta: tuple[tuple[Input, ...], Value]) -> Step:
        """The step that computes delta alone."""
        inputs, value = delta
        read = {part.name for part in walk(value.node) if isinstance(part, Load)} - {tensor.name for tensor in inputs}
        inputs = (*inputs, *(tensor for tensor in self.op.inputs if tensor.name in read))
        op = replace(self.op, inputs=inputs, params=(), values=(value,), results=(computed_result(value),))
        return single_step_of(replace(op, name=f"{self.op.name}_{delta[1].name}"), self.families)

    def informed(self, step: Step, users: dict[str, list[str]]) -> Step:
        """What another step reads is computed wherever that step is."""
        users = users | {part: [user for own in owns for user in users[own]] for part, owns in self.partials.items()}
        if self.delta_name not in _names(step.op.results):
            return super().informed(step, users)
        step = informed(self.gradient, step, step.family.leaves(step.program))
        return replace(step, before=step.family.before(step.program))


def _stream_step_of(op: Op, families: Families) -> Step:
    """The step that computes results in a pass along rows, or along what streams."""
    return single_step_of(op, tuple(STREAMING_GRADIENTS if family is STREAMING else family for family in families))


def tile_step_of(op: Op, _: Families) -> Step:
    """The step that computes a result with both axes of scores, tile by tile."""
    return single_step_of(op, (TILE_SUMS,))


def _of_same_batch(results: tuple[Result, ...], stream: Stream) -> list[tuple[Result, ...]]:
    """Results in groups that one pass may have: of inputs that heads share, it goes through these in turn."""
    found: dict[frozenset[str], tuple[Result, ...]] = {}
    for result in results:
        batch = frozenset(result.axes) - {*stream.widths}
        found[batch] = (*found.get(batch, ()), result)
    return [*found.values()]


def _made_by(steps: Sequence[Step]) -> set[str]:
    return {name for step in steps for name in _names(step.op.results)}


def _read_by(op: Op, names: Iterable[str], steps: Sequence[Step]) -> list[Step]:
    """Those of some steps that results of these names read, or others of the steps."""
    after = _reading(op, [result for step in steps for result in step.op.results])
    read = {name for value in needed(after.values, names) for name in reads(value.node)}
    read.update(tensor.name for step in steps for tensor in step.op.inputs)
    return [step for step in steps if not read.isdisjoint(_names(step.op.results))]


def _names(results: Sequence[Result]) -> list[str]:
    return [result.output.name for result in results]


def own_result(value: Value) -> Result:
    node = value.node
    return Result(Output(value.name), value.ref, node.axes, node.dtype)


def computed_result(value: Value) -> Result:
    """A value as a result of a step, for others."""
    axes = value.node.axes
    return Result(Output(value.name, "auto", plain_shape(axes)), value.ref, axes, COMPUTE)


def _with_delta(op: Op, inputs: tuple[Input, ...], delta: Value) -> Op:
    """The operator with delta among its values."""

    def replacing(node: Node) -> Node:
        if isinstance(node, Load) and node.name == delta.name:
            return Ref(delta.name, node.axes, node.dtype)
        return node

    own = {tensor.name for tensor in inputs}
    others = (tensor for tensor in op.inputs if tensor.name not in {*own, delta.name})
    values = op.with_nodes(lambda node: replaced(node, replacing)).values
    return replace(op, inputs=(*inputs, *others), values=(delta, *values))


def _sums_of_a_side(op: Op, stream: Stream) -> list[Value]:
    """What is summed of the rows alone, or of what streams, along the dimension of a matrix."""
    along, widths = {stream.rows, stream.streamed}, {*stream.widths}
    reduced = [value for value in op.values if isinstance(value.node, Reduce) and widths.issuperset(value.node.over)]
    return [value for value in reduced if not along <= {*value.node.axes}]


def _shaped(op: Op) -> Iterator[Result]:
    """The results of a step, with the dimensions that they have."""
    return (replace(result, output=replace(result.output, shape=op.grouping(result))) for result in op.results)


def _reading(op: Op, passed: Sequence[Result]) -> Op:
    """The operator that reads some values, which a step has stored."""
    names = {result.output.name: result.output.name for result in passed}
    computed = {tensor.name for tensor in op.inputs if tensor.type.dtypes == COMPUTED}
    # What is made of them has the dtype of the computation by them, whether or not it reads what they are made of.
    alike = {leaf: result.output.name for result in passed for leaf in result.node.dtype.of if leaf in computed}
    values: list[Value] = []
    made: set[str] = set()
    for value in op.values:
        if value.name in names:
            continue
        node = as_loads(value.node, names)
        if names.keys() & reads(node) or made & references(node):
            made.add(value.name)
            node = typed_as(node, alike)
        values.append(replace(value, node=node))
    return replace(op, inputs=(*op.inputs, *(as_input(op, result) for result in passed)), values=tuple(values))
