"""The steps of a gradient of what streams: those along the rows together, and those along what is streamed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ..autodiff.gradient import Gradient
from ..families.family import Families, Step
from ..families.registry import single_step_of
from ..families.stream import StoredScores, Stream
from ..families.streaming.family import STREAMING, STREAMING_GRADIENTS
from ..families.streaming.stored import stores
from ..families.streaming.tile_sums import TILE_SUMS
from ..lang.ir import COMPUTE, Call, Constant, Dtype, Node, Op, Reduce, Ref, Result, ScatterSum, Take, Value, walk
from ..lang.names import fresh
from ..lang.promotion import promote
from ..lang.rewrite import as_lines
from ..lang.unparse import spelled
from ..lowering.tile import needed
from ..passes.contractions import product_of
from ..passes.factors import flat_product
from ..passes.structure import name_reductions, reads, references
from ..planner.naming import scattered_named
from ..planner.steps import informed, restricted, typed_as
from ..planner.stored import as_input, reading, result_of
from ..spec.types import COMPUTED, Input, Output
from .backward import Planner


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
        op, partials = _split_reductions(scattered_named(self.op), results, self.stream)
        behind = {own: [v for v in needed(op.values, [own]) if v in partials] for own in _names(results)}
        plain = [result for result in results if not behind[result.output.name]]
        steps = self.passes(op, plain, partials)
        both = {self.stream.rows, self.stream.streamed}
        steps += self.tiles(op, [result for result in plain if both <= {*result.axes}], _made_by(steps))
        taken = _made_by(steps)
        within = {own: _in_tiles(op, own, self.stream) for own in _names(results) if own not in taken}
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
        own = restricted(_with_delta(self.op, *self.delta), (computed_result(self.delta[1]),), f"_{self.delta_name}")
        return [single_step_of(own, self.families)] if reads else []

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
            if any(reads(node).intersection(full) or {*axes} <= {*node.axes} for node in nodes):
                scattered = any(ScatterSum in node.kinds for node in nodes)
                what = "is scattered to what was taken" if scattered else "has no pass that sums it up"
                return StoredScores(axes, f"the gradient by {name} {what}")
        return None

    def step(self, op: Op, results: tuple[Result, ...], every: tuple[Result, ...]) -> Step | None:
        """The step for results that lie along the same axis; the first of rows computes delta, and tells it others."""
        if not results:
            return None
        computed: tuple[Result, ...] = ()
        suffix = "_".join(("", *_names(results)))
        is_first = not self.is_known and self.stream.rows in results[0].axes
        if self.delta is not None and is_first and self.reads_delta(op, results):
            others = tuple(result for result in every if result not in results)
            computed = (computed_result(self.delta[1]),) if self.reads_delta(op, others) else ()
            op = _with_delta(op, *self.delta)
        step = self.found(_stream_step_of, restricted(op, (*results, *computed), suffix))
        self.is_known |= bool(computed) and step is not None
        return step

    def reads_delta(self, op: Op, results: tuple[Result, ...]) -> bool:
        return any(self.delta_name in reads(one.node) for one in needed(op.values, _names(results)))

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
    return result_of(value, COMPUTE)


def _with_delta(op: Op, inputs: tuple[Input, ...], delta: Value) -> Op:
    """The operator with delta among its values."""
    own = {tensor.name for tensor in inputs}
    others = (tensor for tensor in op.inputs if tensor.name not in {*own, delta.name})
    values = op.with_nodes(lambda node: as_lines(node, {delta.name: delta.ref})).values
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
    found = reading(op, (as_input(op, result) for result in passed))
    names = {*_names(passed)}
    computed = {tensor.name for tensor in op.inputs if tensor.type.dtypes == COMPUTED}
    # What is made of them has the dtype of the computation by them, whether or not it reads what they are made of.
    alike = {leaf: result.output.name for result in passed for leaf in result.node.dtype.of if leaf in computed}
    values: list[Value] = []
    for value in found.values:
        if names & reads(value.node) or names & references(value.node):
            names.add(value.name)
            value = replace(value, node=typed_as(value.node, alike))
        values.append(value)
    return replace(found, values=tuple(values))


def _split_reductions(op: Op, results: Sequence[Result], stream: Stream) -> tuple[Op, tuple[Value, ...]]:
    """The operator whose sums of scores over more than one axis reduce partial sums; and the partial sums.

    Those are summed along what streams, or else along the rows, and have all the other axes of the scores. So are sums
    over one of these axes of which a result is made that no pass can have, as by positions that are taken.
    """
    op = name_reductions(op)
    taken = op.names
    values: list[Value] = []
    partials: list[Value] = []
    separate = {value.name for result in results for value in _separate(op, result, stream)}
    for value in op.values:
        node = _at_once(op, value.node, stream)
        if node == value.node and value.name in separate:
            partials.append(value)
        elif isinstance(node, Reduce) and _is_of_scores(node, stream):
            part, rest = _halved(node, stream)
            name = next((one.name for one in partials if one.node == part), "")
            if not name:
                name = fresh(f"{value.name}_by_{'row' if stream.streamed in part.over else 'column'}", taken)
                partials.append(Value(name, part, spelled(part)))
                values.append(partials[-1])
            value = replace(value, node=replace(node, arg=Ref(name, part.axes, node.dtype), over=rest))
        values.append(value)
    own = {part.name for part in partials}
    # Sums along one axis are read no more where a sum over both is made at once of what they sum.
    read = {value.name for value in needed(tuple(values), [result.output.name for result in results])}
    remaining = tuple(value for value in values if value.name in read or value.name not in own)
    return replace(op, values=remaining), tuple(part for part in partials if part.name in read)


def _halved(node: Reduce, stream: Stream) -> tuple[Reduce, tuple[str, ...]]:
    """The part of a sum of scores along what streams, or else along the rows, and the axes that are left."""
    along = stream.positions if stream.streamed in node.over else (stream.rows,)
    over = tuple(axis for axis in node.over if axis in along)
    axes = tuple(axis for axis in node.arg.axes if axis not in over)
    return replace(node, over=over, axes=axes), tuple(axis for axis in node.over if axis not in over)


def _at_once(op: Op, node: Node, stream: Stream) -> Node:
    """A sum of what another sum of scores multiplies, as one sum: sum(sum(x, B) * y, M) is sum(x * y, B, M)."""
    if not isinstance(node, Reduce) or node.kind != "sum":
        return node
    found = _summed_in(op, node.arg, stream)
    if found is None:
        return node
    arg, inner = found
    over = tuple(axis for axis in op.axes if axis in (*inner, *node.over))
    return _at_once(op, replace(node, arg=arg, over=over), stream)


def _summed_in(op: Op, node: Node, stream: Stream) -> tuple[Node, tuple[str, ...]] | None:
    """A node that is the sum over some axes of another, and that; None where no sum of scores multiplies it."""
    match node:
        case Ref(name=name):
            return _summed_in(op, op.value(name).node, stream)
        case Reduce(kind="sum", arg=arg, over=over) if _has_axes_of_scores(arg, stream):
            return arg, over
        case Call(function="mul"):
            factors = tuple(flat_product(node))
            for place, factor in enumerate(factors):
                found = _summed_in(op, factor, stream)
                others = (*factors[:place], *factors[place + 1 :])
                if found and not any(set(other.axes) & set(found[1]) for other in others):
                    return _mapped(found[0], partial(_times, others)), found[1]
        case Call(function="neg" | "div", args=(arg, *others)):
            found = _summed_in(op, arg, stream)
            if found and not any(set(other.axes) & set(found[1]) for other in others):
                return _mapped(found[0], lambda one: _with_args(node, (one, *others))), found[1]
        case Call(function="where", args=(test, *_)) if (chosen := _chosen(node)) is not None:
            found = _summed_in(op, chosen, stream)
            if found and not set(test.axes) & set(found[1]):
                return _choosing(node, found[0]), found[1]
    return None


def _in_tiles(op: Op, name: str, stream: Stream) -> list[Value]:
    """What has the axes of scores in a result: what that scatters or shifts, or sums over the batch and maps."""
    values = needed(op.values, [name])
    args = [part.arg for value in values for part in walk(value.node) if isinstance(part, ScatterSum | Take)]
    names = {arg.name for arg in args if isinstance(arg, Ref)}
    batch = {*stream.batch, *stream.heads}
    names |= {v.name for v in values[:-1] if isinstance(v.node, Reduce) and batch.issuperset(v.node.over)}
    return [value for value in values if value.name in names and _has_axes_of_scores(value.node, stream)]


def _times(factors: tuple[Node, ...], node: Node) -> Node:
    return product_of((node, *factors))


def _mapped(node: Node, of: Callable[[Node], Node]) -> Node:
    """What is made of a node, but not where that is chosen to be 0: factors may be infinite there."""
    chosen = _chosen(node)
    if chosen is None or not isinstance(node, Call):
        return of(node)
    return _choosing(node, of(chosen))


def _chosen(node: Node) -> Node | None:
    """What a node chooses or else 0; None for what is no such choice."""
    match node:
        case Call(function="where", args=(_, Constant(value=0.0), chosen) | (_, chosen, Constant(value=0.0))):
            return chosen
    return None


def _choosing(node: Call, chosen: Node) -> Call:
    """A choice between something else and 0."""
    own = _chosen(node)
    return _with_args(node, tuple(chosen if arg is own else arg for arg in node.args))


def _with_args(node: Call, args: tuple[Node, ...]) -> Call:
    """The call with other arguments, and their axes in the order of the one that has most: `...` comes first."""
    widest_first = sorted(args, key=lambda arg: -len(arg.axes))
    axes = tuple(dict.fromkeys(axis for arg in widest_first for axis in arg.axes))
    dtype = promote(*(arg for arg in args if arg.dtype.kind == "float"))
    return replace(node, args=args, axes=axes, dtype=dtype)


def _is_of_scores(node: Reduce, stream: Stream) -> bool:
    """Whether what has the axes of scores, and none across matrices, is summed over several."""
    is_sum = node.kind == "sum" and len(node.over) > 1 and bool({stream.rows, stream.streamed} & set(node.over))
    is_sum &= not {*node.over} <= {*stream.positions}
    return is_sum and _has_axes_of_scores(node.arg, stream)


def _separate(op: Op, result: Result, stream: Stream) -> list[Value]:
    """The sums along rows, or along what streams, that a result is made of where one of them lies along an axis that
    the result lacks.
    """
    sums = [value for value in needed(op.values, [result.output.name]) if _is_along(value.node, stream)]
    lying = {axis for one in sums for axis in one.node.axes if axis in (stream.rows, stream.streamed)}
    return [] if lying <= {*result.axes} else sums


def _is_along(node: Node, stream: Stream) -> bool:
    """Whether a node is a sum of scores along the rows, or along what streams."""
    if not isinstance(node, Reduce) or node.kind != "sum" or node.over not in ((stream.rows,), (stream.streamed,)):
        return False
    return _has_axes_of_scores(node.arg, stream)


def _has_axes_of_scores(node: Node, stream: Stream) -> bool:
    return {stream.rows, stream.streamed} <= set(node.axes) and not set(node.axes) & set(stream.widths)
