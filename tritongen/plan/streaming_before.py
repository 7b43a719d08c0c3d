"""The gradient of a forward with several streams, or with a stream that reads values of earlier steps.

It begins at the last stream, with the gradient of this stream and of the math after it, by the operator's inputs and by
values that earlier steps computed for both. These gradients are the seeds of an operator for the rest: the math before
the stream, or other streams and the math around them. So heads that are normed, rotated or projected in the same spec
are streamed forward and backward, and so are several attentions that are added, or one on top of another. The forward
saves the values that it computed for the streams, since their gradients read these; the rest is recomputed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..autodiff.gradient import Gradient, changes_smoothly, derive
from ..autodiff.sharing import values_in_order
from ..diagnostics.report import Mistakes
from ..families.family import Families, Step
from ..families.stream import NotStreamed, StoredScores, Stream, write_instead
from ..families.streaming.stored import stores
from ..lang.ir import Dtype, Op, Ref, Result, Value
from ..lang.names import fresh, numbered
from ..lang.rewrite import as_lines, renamed_value
from ..lowering.tile import needed
from ..passes.structure import reached, references
from ..planner.naming import factors_named, rows_named, sums_parted
from ..planner.steps import informed, with_dtypes
from ..planner.stored import as_input, reading
from ..spec.types import Grad, Input, Output
from .backward import Backward, Plan, Planner
from .streaming_gradient import (
    Outgoing,
    added,
    by_name,
    gradient_input,
    load,
    outgoing_of,
    plan_streaming_backward,
    read_by,
)
from .streaming_steps import own_result

Streams = Sequence[tuple[Step, Stream]]
SUBEXPRESSION = "what follows the sums is made of a part of a line"


def plan_streams_backward(forward: Step, streams: Streams, grad: Grad, families: Families) -> Backward:
    """Plan the gradient of a forward with `streams`. Raises `NotStreamed` if it would store scores."""
    forward = with_names(forward)
    copies = copies_of_results(forward)
    op = with_copies(forward, copies)
    found = last_streamed(op, steps_of(forward), streams)
    if not found.before and len(streams) == 1:
        op = replace(found.op, values=without_copies(found.op.values, copies))
        return plan_streaming_backward(op, found.stream, grad, families)
    try:
        return _Streams(op, steps_of(forward), copies, grad, families).backward(streams)
    except Mistakes as refused:
        raise NotStreamed(refused.mistakes[0].message) from None


@dataclass(frozen=True, slots=True)
class _Subplan:
    """A subgraph of a gradient: its plan and the inputs of this, and values of the forward, some of them saved."""

    plan: Plan
    inputs: tuple[Input, ...]
    values: tuple[Value, ...]
    saved: Mapping[str, str] = field(default_factory=dict)  # the value of the forward for each name of an input
    dtypes: Mapping[str, Dtype] = field(default_factory=dict)  # of saved values
    stored: StoredScores | None = None


class _Streams:
    """Plans the gradient of each stream, from the last one to the first, and of the math before it."""

    def __init__(
        self, op: Op, steps: Sequence[Step], copies: Mapping[str, str], grad: Grad, families: Families
    ) -> None:
        self.op, self.steps, self.copies, self.grad, self.families = op, steps, copies, grad, families
        self.outgoing = outgoing_of(self.op)
        self.named: set[str] = set()  # names of the steps so far
        self.pairs: list[tuple[str, str]] = []  # the axis of rows and the streamed axis of each stream

    def backward(self, streams: Streams) -> Backward:
        """The gradient of the full operator, and the forward that saves the values that it reads."""
        self.pairs = [(stream.rows, stream.streamed) for _, stream in streams]
        subplan = self.subplan(self.op, streams, self.grad.wrt, self.outgoing)
        made = {result.output.name for step in subplan.plan.steps for result in step.op.results}
        inputs = tuple(tensor for tensor in subplan.inputs if tensor.name not in made)
        read = {tensor.name for tensor in inputs}
        outputs = tuple(result.output.name for result in self.op.results if result.output.name in read)
        saved = tuple((own, self.copies.get(name, name)) for own, name in subplan.saved.items() if own not in outputs)
        op = replace(self.op, name=self.outgoing.name, inputs=inputs, values=(), results=())
        forward = replace(self.op, values=without_copies(subplan.values, self.copies))
        gradient = Gradient(forward, op, self.grad.wrt, self.outgoing.pairs, saved, outputs)
        planner = Planner(gradient, (), self.families)
        # A subgraph took dtypes and shapes from gradients of intermediates that are results of it alone.
        steps = tuple(informed(gradient, step, step.family.leaves(step.program)) for step in subplan.plan.steps)
        plan = replace(subplan.plan, steps=steps, spelled={name: subplan.plan.spelled[name] for name in self.grad.wrt})
        return Backward(gradient, planner.step_of(planner.saving(subplan.dtypes)), plan, stored=subplan.stored)

    def subplan(self, op: Op, streams: Streams, wrt: tuple[str, ...], outgoing: Outgoing) -> _Subplan:
        """The gradient of an operator whose results are stored by steps: of its last stream, then of the rest."""
        streams = streams_for(op, streams)
        if not streams:
            return self.without_streams(op, wrt, outgoing)
        found = last_streamed(op, self.steps, streams)
        stored, own = found.before, {result.output.name for result in found.op.results}
        separate = [name for name in outgoing.seeds if name not in own]
        before = tuple(dict.fromkeys((*stored, *separate)))
        results = {**{result.output.name: result for result in op.results}, **stored}
        smooth = _smooth(found.op, stored)
        followed = {*separate, *smooth}
        going_on = (name for name in before if name in followed and _smooth_by(op, name, wrt))
        rest = replace(op, results=tuple(results[name] for name in going_on))
        here, further = _smooth(found.op, wrt), _smooth(rest, wrt)
        between = {one.output.name: one.dtype for one in rest.results if one.output.name in smooth}
        between |= {name: Dtype("float", (name,)) for name in here if name in further}
        asked = tuple(dict.fromkeys((*between, *here)))
        others = {**outgoing.others, **{name: outgoing.seeds[name] for name in separate}}
        after = self.after(outgoing, found, between, _only(others, asked))
        inner = plan_streaming_backward(found.op, found.stream, replace(self.grad, wrt=asked), self.families, after)
        known = self.known(found.op, inner, outgoing, between)
        others |= {name: known[inner.plan.own(name)] for name in between}
        self.named |= {step.op.name for step in inner.plan.steps}
        before_it = Outgoing(
            {one.output.name: others[one.output.name] for one in rest.results},
            _only(others, further),
            {},
            numbered(self.outgoing.name, self.named),
            self.op,
            tuple(known.values()),
            shapes_of={**outgoing.shapes_of, **{name: op.grouping(results[name]) for name in before}},
        )
        return self.joined(inner, self.subplan(rest, streams[:-1], further, before_it), found, before)

    def after(
        self, outgoing: Outgoing, found: Streamed, between: Mapping[str, Dtype], others: Mapping[str, Input]
    ) -> Outgoing:
        """The outgoing gradients from which the gradient of a stream and of the math after it starts."""
        own = {result.output.name for result in found.op.results}
        return replace(
            outgoing,
            seeds=_only(outgoing.seeds, own),
            others=others,
            between=between,
            known=(*outgoing.known, *outgoing.seeds.values()),
            dtypes={name: one.dtype for name, one in found.before.items()},
        )

    def without_streams(self, op: Op, wrt: tuple[str, ...], outgoing: Outgoing) -> _Subplan:
        """The gradient of values before all streams, in steps of other families."""
        if not wrt:
            return _Subplan(Plan((), {}), (), ())
        values = tuple(needed(op.values, [result.output.name for result in op.results]))
        head = replace(op, inputs=by_name(*op.inputs, *outgoing.seeds.values(), *outgoing.known), values=values)
        given = {name: load(seed.name, seed.type.axes) for name, seed in outgoing.seeds.items()}
        gradient = added(derive(head, Grad(wrt), given, saves=False), outgoing.others)
        named = replace(gradient.op, name=outgoing.name)
        gradient = replace(gradient, op=named, forward=self.op, seeds=self.outgoing.pairs)
        steps, texts = Planner(gradient, (), self.families).plan()
        self.named |= {step.op.name for step in steps}
        return _Subplan(Plan(steps, texts), (), values, stored=self.scores_stored(steps, gradient, outgoing))

    def scores_stored(self, steps: Iterable[Step], gradient: Gradient, outgoing: Outgoing) -> StoredScores | None:
        """The scores that `steps`, which compute gradients before all streams, store; None if there are none."""
        steps, own = tuple(steps), {result.output.name for result in gradient.op.results}
        axes = next((one for one in self.pairs if stores(steps, one, own)), None)
        if axes is None:
            return None
        names = ", ".join(outgoing.seeds)
        why = f"no pass takes the gradient by {names}, which a separate step computes"
        return StoredScores(axes, why + write_instead(self.op, axes[1]))

    def known(self, op: Op, inner: Backward, outgoing: Outgoing, between: Iterable[str]) -> dict[str, Input]:
        """The tensors that steps so far have computed or read, except inputs of `op`, as inputs of later steps.

        The gradients by `between` have the dtypes of the inputs that they are by.
        """
        results = (result for step in inner.plan.steps for result in step.op.results)
        every = (*outgoing.known, *outgoing.seeds.values(), *inner.gradient.op.inputs)
        given = {tensor.name for tensor in op.inputs}
        found = {tensor.name: tensor for tensor in every if tensor.name not in given}
        found |= {result.output.name: as_input(op, result) for result in results}
        for name in between:
            own = found[inner.plan.own(name)]
            found[own.name] = gradient_input(op.input(name), own.name, own.type.shape, own.vanishes)
        return found

    def together(
        self, inner: Backward, outer: _Subplan, stored: Container[str], before: tuple[str, ...]
    ) -> tuple[tuple[Value, ...], Mapping[str, str], Mapping[str, str]]:
        """The values of both subgraphs, and the new names in each of them."""
        known = {value.name for value in outer.values}
        done = known.intersection(before)
        others = tuple(value for value in self.op.values if value.name not in done)
        separate = needed(others, [name for name in before if name not in done])
        lines = {name: value.ref for name, value in self.op.by_name.items() if name in stored}
        after = [value.of(as_lines(value.node, lines)) for value in inner.gradient.forward.values]
        values, _, _ = _together(outer.values, separate, known)
        return _together(values, after, {*before, *outer.saved})

    def joined(self, inner: Backward, outer: _Subplan, found: Streamed, before: tuple[str, ...]) -> _Subplan:
        """The steps of both subgraphs, and the values of the forward that they read."""
        dtypes = {name: one.dtype for name, one in found.before.items()}
        values, first, second = self.together(inner, outer, dtypes, before)
        renames = {name: dtype.of[0] for name, dtype in dtypes.items() if len(dtype.of) == 1}
        values = with_dtypes(replace(self.op, values=values, results=()), renames).values
        forward = with_dtypes(inner.forward.op, renames)
        own = {result.output.name: result.dtype for result in forward.results if result.saved}
        steps = (*(_in_dtypes_of(renames, step) for step in inner.plan.steps), *outer.plan.steps)
        read = {tensor.name for step in steps for tensor in step.op.inputs}
        saved = {name: first.get(value, value) for name, value in outer.saved.items()}
        saved |= {name: second.get(value, value) for name, value in inner.gradient.saved}
        saved |= {name: name for name in dtypes if name in read}
        return _Subplan(
            Plan(steps, {**inner.plan.spelled, **outer.plan.spelled}),
            by_name(*inner.gradient.op.inputs, *(tensor for step in steps for tensor in step.op.inputs)),
            values,
            saved,
            {**outer.dtypes, **own, **dtypes},
            inner.stored or outer.stored,
        )


def _only(tensors: Mapping[str, Input], names: Container[str]) -> dict[str, Input]:
    return {name: tensor for name, tensor in tensors.items() if name in names}


def _in_dtypes_of(renames: Mapping[str, str], step: Step) -> Step:
    """The step, with dtypes expressed by the operator's own inputs instead of tensors that it does not get."""
    known = {*step.dtypes, *(tensor.name for tensor in step.op.inputs)}
    others = {name: own for name, own in renames.items() if name not in known}
    return replace(step, program=replace(step.program, op=with_dtypes(step.op, others)))


def _smooth(op: Op, wrt: Iterable[str]) -> tuple[str, ...]:
    """The inputs in `wrt` with which any result changes smoothly."""
    read = read_by(needed(op.values, [one.output.name for one in op.results]))
    return tuple(name for name in wrt if name in read and changes_smoothly(op, name))


def _smooth_by(op: Op, name: str, wrt: Iterable[str]) -> bool:
    """Whether the value `name` changes smoothly with any input in `wrt`."""
    return bool(_smooth(replace(op, results=(own_result(op.value(name)),)), wrt))


def _together(
    first: Sequence[Value], second: Sequence[Value], required: Container[str]
) -> tuple[tuple[Value, ...], dict[str, str], dict[str, str]]:
    """The values of `first` and `second` without duplicates; and new names for each where different values share one.

    Values in `required` keep their names: those of `second` are renamed instead.
    """
    nodes = {value.name: value.node for value in first}
    second = [value for value in second if nodes.get(value.name) != value.node]
    used = {*nodes, *(value.name for value in second)}
    clash = [value.name for value in second if value.name in nodes]
    ours = {name: fresh(name, used) for name in clash if name not in required}
    theirs = {name: fresh(name, used) for name in clash if name in required}
    values = [renamed_value(value, ours) for value in first] + [renamed_value(value, theirs) for value in second]
    return tuple(values), ours, theirs


# The streams of a multi-step forward, and the math before and after them


def streams_in(forward: Step) -> list[tuple[Step, Stream]]:
    return [(step, stream) for step in steps_of(forward) if (stream := step.family.stream(step.program))]


def steps_of(forward: Step) -> tuple[Step, ...]:
    return forward.family.steps(forward.program) or (forward,)


def copies_of_results(forward: Step) -> dict[str, str]:
    """The copies of results that steps store unrounded for other steps, with the names of the lines that they equal."""
    own = {one.output.name for one in forward.op.results}
    results = (result for step in steps_of(forward) for result in step.op.results)
    pairs = ((one.output.name, one.node.name) for one in results if isinstance(one.node, Ref))
    return {copy: name for copy, name in pairs if name in own and copy not in forward.op.names}


def with_copies(forward: Step, copies: Mapping[str, str]) -> Op:
    """The operator of a forward with `copies` of lines, which the values of other steps read."""
    op = forward.op
    for copy, name in copies.items():
        own = next(s.op.by_name for s in steps_of(forward) if any(r.output.name == copy for r in s.op.results))
        line = op.value(name)
        values = (value if value.name in own else renamed_value(value, {name: copy}) for value in op.values)
        added = Value(copy, line.ref, "")
        op = replace(
            op, values=tuple(v for value in values for v in ((value, added) if value.name == name else (value,)))
        )
    return op


def without_copies(values: Iterable[Value], copies: Mapping[str, str]) -> tuple[Value, ...]:
    return tuple(renamed_value(value, copies) for value in values if value.name not in copies)


def with_names(forward: Step) -> Step:
    """A forward of several steps, whose operator has names for the subexpressions of lines that steps store."""
    stored = {one.output.name for step in steps_of(forward) for one in step.op.results} - {*copies_of_results(forward)}
    if stored <= forward.op.names:
        return forward
    by_factors, by_rows = factors_named(forward.op), rows_named(forward.op)
    by_both = factors_named(by_rows)
    for named in (by_factors, by_rows, by_both, rows_named(sums_parted(by_both))):
        if stored <= named.names:
            return replace(forward, program=replace(forward.program, op=named))
    return forward


def streams_for(op: Op, streams: Streams) -> Streams:
    """The `streams` that the results of an operator depend on."""
    made_of = {value.name for value in needed(op.values, [result.output.name for result in op.results])}
    return [(step, stream) for step, stream in streams if made_of & {one.output.name for one in step.op.results}]


@dataclass(frozen=True, slots=True)
class Streamed:
    """The stream of one step, and an operator of this step and the math after it. Values that earlier steps computed
    for both are among its inputs, and in `before` as they are stored.
    """

    op: Op
    stream: Stream
    before: Mapping[str, Result] = field(default_factory=dict)


def last_streamed(op: Op, steps: Sequence[Step], streams: Streams) -> Streamed:
    """The last of `streams`, with an operator of this stream and the math after it.

    Results of the other streams are inputs of that operator instead of results. Raises `NotStreamed` if the math after
    the stream reads a subexpression of a line.
    """
    *others, (step, stream) = streams
    if step.op is op:
        return Streamed(op, stream)
    stored = {one.output.name: one for one in _stored_by(steps)}
    read = (_read_in_loop(step.op, stream) | _made_of_scores(op, stream)) & stored.keys()
    given = [one.output.name for other, _ in others for one in other.op.results]
    names = dict.fromkeys((*(tensor.name for tensor in step.op.inputs if tensor.name in read), *given))
    own, lines = op.names, {value.name: value.source for value in op.values}
    remaining = tuple(result for result in op.results if result.output.name not in names)
    again = {value.name for value in step.op.values}
    read_as = {name: as_input(op, _seen(op, stored[name])) for name in names if name not in again}
    found = _reading(replace(op, results=remaining), read_as)
    inputs = {tensor.name for tensor in op.inputs}
    made = {result.output.name for result in step.op.results}
    computed = {tensor.name for tensor in step.op.inputs} - {tensor.name for tensor in found.inputs}
    if not made | computed | names.keys() <= own:
        raise NotStreamed(SUBEXPRESSION)
    before = {one.name: one.type for one in found.inputs if one.name not in inputs}
    refs = {name: value.ref for name, value in found.by_name.items() if name in computed}
    sourced = (replace(value, source=lines.get(value.name, "")) for value in step.op.values)
    inside = {value.name: value.of(as_lines(value.node, refs)) for value in sourced}
    values = _around(inside, found, made, computed, {*found.names, *step.op.names})
    results = {
        name: Result(Output(name, "auto", own.shape), op.value(name).ref, own.axes, stored[name].dtype)
        for name, own in before.items()
    }
    return Streamed(replace(found, values=values), stream, results)


def _seen(op: Op, stored: Result) -> Result:
    """A result of a step as a backward reads it: with the groups of axes of the operator's result that it is."""
    shape = next((op.grouping(one) for one in op.results if one.output.name == stored.output.name), stored.output.shape)
    return replace(stored, output=replace(stored.output, shape=shape))


def _around(inside: dict[str, Value], op: Op, made: set[str], computed: set[str], used: set[str]) -> tuple[Value, ...]:
    """The values inside of a step, and the values of an operator that depend on those it has `made` or `computed`."""
    refs, outputs = op.refs, {result.output.name for result in op.results}
    disjoint = (reached(refs, outputs, made) | reached(refs, computed, ())) - made
    other = [value.name for value in op.values if value.name in inside and value.node != inside[value.name].node]
    if disjoint.intersection(other, {*outputs, *computed}):
        raise NotStreamed(SUBEXPRESSION)
    renamed = {name: fresh(name, used) for name in other if name in disjoint}
    outside = [renamed_value(value, renamed) for value in op.values if value.name in disjoint]
    first = reached({value.name: references(value.node) for value in outside}, computed, ())
    alone = {value.name: value for value in outside if value.name not in inside}
    # Values that come first may read values inside: `any(kept, N)` reads the mask of the scores.
    return values_in_order({name: value for name, value in alone.items() if name in first} | inside | alone)


def _stored_by(steps: Iterable[Step]) -> Iterator[Result]:
    """The results of steps, with dtypes expressed by inputs instead of results of other steps where possible."""
    same: dict[str, tuple[str, ...]] = {}
    for result in (result for step in steps for result in step.op.results):
        of = tuple(leaf for name in result.dtype.of for leaf in same.get(name, (name,)))
        if not result.dtype.rule and not result.dtype.otherwise:
            same[result.output.name] = of
        yield replace(result, dtype=replace(result.dtype, of=of))


def _reading(op: Op, before: Mapping[str, Input]) -> Op:
    """The operator that reads values in `before` as inputs, where it reads them."""
    found = reading(op, before.values())
    values = needed(found.values, [name for result in found.results for name in references(result.node)])
    read = read_by(values)
    inputs = (*op.inputs, *(tensor for name, tensor in before.items() if name in read))
    return replace(found, inputs=inputs, values=tuple(values))


def _read_in_loop(op: Op, stream: Stream) -> set[str]:
    """The inputs that scores and sums depend on."""
    return read_by(needed(op.values, [*(one.name for one in stream.scores), *(one.name for one in stream.sums)]))


def _made_of_scores(op: Op, stream: Stream) -> set[str]:
    """The values of an operator that are computed from scores."""
    scores = {one.name for one in stream.scores}
    refs = op.refs
    return {name for name in refs if reached(refs, refs[name], ()) & scores}
