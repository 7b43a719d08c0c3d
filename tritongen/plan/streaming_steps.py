"""The steps of a streaming gradient: a pass for gradients along the rows, and one for those along the streamed axis."""

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
    """Plans one pass for the gradients along the rows, and one for those along the streamed axis.

    The first pass along the rows that reads delta computes it for later steps; else delta has its own step. For sums
    over both axes, or over the batch too, a pass stores partial sums, which an ordinary step reduces.
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
        stored = _made_by(steps)
        within = {own: _in_tiles(op, own, self.stream) for own in _names(results) if own not in stored}
        steps += self.tiles_within(op, within, stored)
        stored = _made_by(steps)
        computed = self.read_behind({own: [*values, *within.get(own, ())] for own, values in behind.items()}, stored)
        own = {*_names(results), self.delta_name} - {value.name for value in computed}
        made = [one for step in steps for one in _shaped(step.op) if one.output.name not in own]
        self.op = _reading(op, made) if made else self.op
        return self.with_others(
            tuple(result for result in results if result.output.name not in stored), steps, computed
        )

    def with_others(self, left: tuple[Result, ...], steps: list[Step], computed: tuple[Value, ...]) -> list[Step]:
        """The `steps`, after one for delta if that is needed, and before the steps of the results `left`."""
        steps = [*self.delta_first(left, steps), *steps]
        others = self.others(left, steps)
        self.stored = self.scores_stored(left, others, computed)
        return [*steps, *others]

    def tiles_within(self, op: Op, within: Mapping[str, Sequence[Value]], made: Container[str]) -> list[Step]:
        """The tile steps of the values `within` results, if these results or other tile steps read them."""
        terms = dict.fromkeys(value for values in within.values() for value in values)
        tiles = self.tiles(op, [computed_result(value) for value in terms if value.name not in made], made)
        return _read_by(op, within, tiles)

    def passes(self, op: Op, results: Sequence[Result], partials: Sequence[Value]) -> list[Step]:
        """The passes of results and `partials` along each axis: one for all, or if that fails one for each group."""
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

    def read_behind(self, behind: Mapping[str, Sequence[Value]], made: Container[str]) -> tuple[Value, ...]:
        """The values in `behind` that steps have computed; sets `partials` to the results that read each."""
        every = dict.fromkeys(value for values in behind.values() for value in values)
        computed = tuple(value for value in every if value.name in made)
        self.partials = {v.name: tuple(own for own, values in behind.items() if v in values) for v in computed}
        return computed

    def delta_first(self, left: tuple[Result, ...], steps: list[Step]) -> list[Step]:
        """The step that computes delta, if `steps` or the results `left` read it and none of `steps` computes it."""
        if self.delta is None or self.delta_name in _made_by(steps):
            return []
        reads = self.reads_delta(self.op, left) or any(t.name == self.delta_name for s in steps for t in s.op.inputs)
        own = restricted(_with_delta(self.op, *self.delta), (computed_result(self.delta[1]),), f"_{self.delta_name}")
        return [single_step_of(own, self.families)] if reads else []

    def others(self, left: tuple[Result, ...], steps: list[Step]) -> list[Step]:
        """The steps of the results that no pass computes, with names that differ from those of the passes."""
        found = super().split(left)
        names = {step.op.name for step in steps}
        if any(one.op.name in names for other in found for one in other.family.steps(other.program)):
            self.is_first = False
            found = super().split(left)
        return found

    def tiles(self, op: Op, results: Sequence[Result], made: Container[str]) -> list[Step]:
        """The steps that compute results with both axes of scores tile by tile, for each result where that is possible.

        Unlike passes along the rows, tiles reduce no single matrix, as norms of rows do: a step before does, unless
        `made` has the sum.
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
        """The operator restricted to `results`; its name has a suffix if a pass has the plain one."""
        return super().restricted(results, place if self.is_first else place + 1)

    def scores_stored(
        self, left: tuple[Result, ...], steps: list[Step], computed: tuple[Value, ...]
    ) -> StoredScores | None:
        """The scores that `steps` store for the results `left`, or a pass for the full batch; None without any."""
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
        """The pass for results along one axis, if there is one; the first along rows computes delta for others, too."""
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
        """The step, whose partial sums are computed whenever a result that reads them is needed."""
        users = users | {name: [user for own in owns for user in users[own]] for name, owns in self.partials.items()}
        if self.delta_name not in _names(step.op.results):
            return super().informed(step, users)
        step = informed(self.gradient, step, step.family.leaves(step.program))
        return replace(step, before=step.family.before(step.program))


def _stream_step_of(op: Op, families: Families) -> Step:
    """The step that computes results in a pass along the rows or the streamed axis."""
    return single_step_of(op, tuple(STREAMING_GRADIENTS if family is STREAMING else family for family in families))


def tile_step_of(op: Op, _: Families) -> Step:
    """The step that computes a result with both axes of scores, tile by tile."""
    return single_step_of(op, (TILE_SUMS,))


def _of_same_batch(results: tuple[Result, ...], stream: Stream) -> list[tuple[Result, ...]]:
    """Results grouped by batch axes, since a pass loops over heads for gradients of inputs that heads share."""
    found: dict[frozenset[str], tuple[Result, ...]] = {}
    for result in results:
        batch = frozenset(result.axes) - {*stream.widths}
        found[batch] = (*found.get(batch, ()), result)
    return [*found.values()]


def _made_by(steps: Sequence[Step]) -> set[str]:
    return {name for step in steps for name in _names(step.op.results)}


def _read_by(op: Op, names: Iterable[str], steps: Sequence[Step]) -> list[Step]:
    """The `steps` whose results are read by the values `names` of the operator, or by another of these steps."""
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
    """The sums over widths, such as a head dim, of the rows or the streamed side alone."""
    along, widths = {stream.rows, stream.streamed}, {*stream.widths}
    reduced = [value for value in op.values if isinstance(value.node, Reduce) and widths.issuperset(value.node.over)]
    return [value for value in reduced if not along <= {*value.node.axes}]


def _shaped(op: Op) -> Iterator[Result]:
    """The results of a step, with their shapes as callers see them."""
    return (replace(result, output=replace(result.output, shape=op.grouping(result))) for result in op.results)


def _reading(op: Op, passed: Sequence[Result]) -> Op:
    """The operator that reads the values `passed`, which a step has stored, as inputs."""
    found = reading(op, (as_input(op, result) for result in passed))
    names = {*_names(passed)}
    computed = {tensor.name for tensor in op.inputs if tensor.type.dtypes == COMPUTED}
    # Values that depend on them take the compute dtype from them, whether or not they read inputs themselves.
    renames = {leaf: result.output.name for result in passed for leaf in result.node.dtype.of if leaf in computed}
    values: list[Value] = []
    for value in found.values:
        if names & reads(value.node) or names & references(value.node):
            names.add(value.name)
            value = replace(value, node=typed_as(value.node, renames))
        values.append(value)
    return replace(found, values=tuple(values))


def _split_reductions(op: Op, results: Sequence[Result], stream: Stream) -> tuple[Op, tuple[Value, ...]]:
    """The operator in which sums of scores over several axes reduce partial sums; and these partial sums.

    A partial sum is over the streamed axis, or else over the rows, and has all other axes of the scores. Sums over one
    of these axes are partial sums, too, if no pass can have the result that reads them, as with gathered positions.
    """
    op = name_reductions(op)
    used = op.names
    values: list[Value] = []
    partials: list[Value] = []
    separate = {value.name for result in results for value in _separate(op, result, stream)}
    for value in op.values:
        node = _at_once(op, value.node, stream)
        if node == value.node and value.name in separate:
            partials.append(value)
        elif isinstance(node, Reduce) and _is_of_scores(node, stream):
            half, rest = _halved(node, stream)
            name = next((one.name for one in partials if one.node == half), "")
            if not name:
                name = fresh(f"{value.name}_by_{'row' if stream.streamed in half.over else 'column'}", used)
                partials.append(Value(name, half, spelled(half)))
                values.append(partials[-1])
            value = replace(value, node=replace(node, arg=Ref(name, half.axes, node.dtype), over=rest))
        values.append(value)
    own = {partial.name for partial in partials}
    # Sums over one axis that were merged into a sum over both (`_at_once`) are no longer read.
    read = {value.name for value in needed(tuple(values), [result.output.name for result in results])}
    remaining = tuple(value for value in values if value.name in read or value.name not in own)
    return replace(op, values=remaining), tuple(partial for partial in partials if partial.name in read)


def _halved(node: Reduce, stream: Stream) -> tuple[Reduce, tuple[str, ...]]:
    """The partial sum over the streamed axis, or else over the rows; and the axes that remain to be summed."""
    along = stream.positions if stream.streamed in node.over else (stream.rows,)
    over = tuple(axis for axis in node.over if axis in along)
    axes = tuple(axis for axis in node.arg.axes if axis not in over)
    return replace(node, over=over, axes=axes), tuple(axis for axis in node.over if axis not in over)


def _at_once(op: Op, node: Node, stream: Stream) -> Node:
    """A sum with another sum of scores as a factor, as one sum: sum(sum(x, B) * y, M) is sum(x * y, B, M)."""
    if not isinstance(node, Reduce) or node.kind != "sum":
        return node
    found = _summed_in(op, node.arg, stream)
    if found is None:
        return node
    arg, inner = found
    over = tuple(axis for axis in op.axes if axis in (*inner, *node.over))
    return _at_once(op, replace(node, arg=arg, over=over), stream)


def _summed_in(op: Op, node: Node, stream: Stream) -> tuple[Node, tuple[str, ...]] | None:
    """The summand and the axes that give a node as one sum; None if no sum of scores is a factor of it."""
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
    """The values with axes of scores that a result scatters or gathers, or sums over the batch and uses further."""
    values = needed(op.values, [name])
    args = [node.arg for value in values for node in walk(value.node) if isinstance(node, ScatterSum | Take)]
    names = {arg.name for arg in args if isinstance(arg, Ref)}
    batch = {*stream.batch, *stream.heads}
    names |= {v.name for v in values[:-1] if isinstance(v.node, Reduce) and batch.issuperset(v.node.over)}
    return [value for value in values if value.name in names and _has_axes_of_scores(value.node, stream)]


def _times(factors: tuple[Node, ...], node: Node) -> Node:
    return product_of((node, *factors))


def _mapped(node: Node, of: Callable[[Node], Node]) -> Node:
    """`of(node)`, or if it chooses 0 elsewhere, of its other operand only, since factors may be infinite there."""
    chosen = _chosen(node)
    if chosen is None or not isinstance(node, Call):
        return of(node)
    return _choosing(node, of(chosen))


def _chosen(node: Node) -> Node | None:
    """The operand that a `where` chooses if it does not choose 0; None for any other node."""
    match node:
        case Call(function="where", args=(_, Constant(value=0.0), chosen) | (_, chosen, Constant(value=0.0))):
            return chosen
    return None


def _choosing(node: Call, chosen: Node) -> Call:
    """The choice with `chosen` in place of its operand that is not 0."""
    own = _chosen(node)
    return _with_args(node, tuple(chosen if arg is own else arg for arg in node.args))


def _with_args(node: Call, args: tuple[Node, ...]) -> Call:
    """The call with other arguments; its axes are in the order of the argument with most axes: `...` comes first."""
    widest_first = sorted(args, key=lambda arg: -len(arg.axes))
    axes = tuple(dict.fromkeys(axis for arg in widest_first for axis in arg.axes))
    dtype = promote(*(arg for arg in args if arg.dtype.kind == "float"))
    return replace(node, args=args, axes=axes, dtype=dtype)


def _is_of_scores(node: Reduce, stream: Stream) -> bool:
    """Whether a node sums scores, without widths, over several axes that are not all streamed positions."""
    is_sum = node.kind == "sum" and len(node.over) > 1 and bool({stream.rows, stream.streamed} & set(node.over))
    is_sum &= not {*node.over} <= {*stream.positions}
    return is_sum and _has_axes_of_scores(node.arg, stream)


def _separate(op: Op, result: Result, stream: Stream) -> list[Value]:
    """The sums over one axis of scores that a result reads; none unless one has the other axis and it lacks that."""
    sums = [value for value in needed(op.values, [result.output.name]) if _is_along(value.node, stream)]
    lying = {axis for one in sums for axis in one.node.axes if axis in (stream.rows, stream.streamed)}
    return [] if lying <= {*result.axes} else sums


def _is_along(node: Node, stream: Stream) -> bool:
    """Whether a node is a sum of scores along the rows or along the streamed axis."""
    if not isinstance(node, Reduce) or node.kind != "sum" or node.over not in ((stream.rows,), (stream.streamed,)):
        return False
    return _has_axes_of_scores(node.arg, stream)


def _has_axes_of_scores(node: Node, stream: Stream) -> bool:
    return {stream.rows, stream.streamed} <= set(node.axes) and not set(node.axes) & set(stream.widths)
