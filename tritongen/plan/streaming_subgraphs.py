"""What streams in a forward of several steps, what comes before it, and what follows it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..autodiff.sharing import values_in_order
from ..families.family import Step
from ..families.stream import NotStreamed, Stream
from ..lang.ir import Dtype, Load, Node, Op, Ref, Result, Take, Value
from ..lang.names import fresh
from ..lang.rewrite import as_loads, renamed_value, replaced
from ..lowering.tile import needed
from ..passes.structure import reached, reads, references
from ..planner.naming import factors_named, rows_named, sums_parted
from ..planner.stored import as_input
from ..spec.types import Input

Streams = Sequence[tuple[Step, Stream]]
PART_OF_A_LINE = "what follows the sums is made of a part of a line"


def streams_in(forward: Step) -> list[tuple[Step, Stream]]:
    return [(step, stream) for step in steps_of(forward) if (stream := step.family.stream(step.program))]


def steps_of(forward: Step) -> tuple[Step, ...]:
    return forward.family.steps(forward.program) or (forward,)


def copies_of_results(forward: Step) -> dict[str, str]:
    """What steps store for others besides a result that it is rounded to, by name, and the lines that it is."""
    own = {one.output.name for one in forward.op.results}
    results = (result for step in steps_of(forward) for result in step.op.results)
    pairs = ((one.output.name, one.node.name) for one in results if isinstance(one.node, Ref))
    return {copy: name for copy, name in pairs if name in own and copy not in forward.op.names}


def with_copies(forward: Step, copies: Mapping[str, str]) -> Op:
    """The operator of a forward with copies of lines, which what other steps compute is made of."""
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
    """Those of some streams that the results of an operator are made of."""
    made_of = {value.name for value in needed(op.values, [result.output.name for result in op.results])}
    return [(step, stream) for step, stream in streams if made_of & {one.output.name for one in step.op.results}]


@dataclass(frozen=True, slots=True)
class Streamed:
    """What one step of a forward streams, and an operator of that and of what follows: what steps before have computed
    for both is among its inputs, `before` with the dtypes in which it is stored.
    """

    op: Op
    stream: Stream
    before: tuple[tuple[Input, Dtype], ...] = ()


def last_streamed(op: Op, steps: Sequence[Step], streams: Streams) -> Streamed:
    """What the last of some streams goes along in an operator, of whose steps they are some.

    What the others give it, or give what follows it, is computed before, and is no result. Raises `NotStreamed` where
    what follows is made of a part of a line.
    """
    *others, (step, stream) = streams
    if step.op is op:
        return Streamed(op, stream)
    stored = {one.output.name: (as_input(op, one), one.dtype) for one in _stored_by(steps)}
    read = (_read_in_loop(step.op, stream) | _made_of_scores(op, stream)) & stored.keys()
    given = [one.output.name for other, _ in others for one in other.op.results]
    names = dict.fromkeys((*(tensor.name for tensor in step.op.inputs if tensor.name in read), *given))
    own, lines = op.names, {value.name: value.source for value in op.values}
    remaining = tuple(result for result in op.results if result.output.name not in names)
    again = {value.name for value in step.op.values}
    found = _reading(replace(op, results=remaining), {name: stored[name][0] for name in names if name not in again})
    inputs = {tensor.name for tensor in op.inputs}
    before = tuple(stored[tensor.name] for tensor in found.inputs if tensor.name not in inputs)
    made = {result.output.name for result in step.op.results}
    computed = {tensor.name for tensor in step.op.inputs} - {tensor.name for tensor in found.inputs}
    if not made | computed | names.keys() <= own:
        raise NotStreamed(PART_OF_A_LINE)
    sourced = (replace(value, source=lines.get(value.name, "")) for value in step.op.values)
    inside = {value.name: with_lines(value, computed, found) for value in sourced}
    values = _around(inside, found, made, computed, {*found.names, *step.op.names})
    return Streamed(replace(found, values=values), stream, before)


def _around(inside: dict[str, Value], op: Op, made: set[str], computed: set[str], taken: set[str]) -> tuple[Value, ...]:
    """The values inside of a step, and those of an operator that are computed of what it has made or `computed`."""
    refs, outputs = op.refs, {result.output.name for result in op.results}
    disjoint = (reached(refs, outputs, made) | reached(refs, computed, ())) - made
    other = [value.name for value in op.values if value.name in inside and value.node != inside[value.name].node]
    if disjoint.intersection(other, {*outputs, *computed}):
        raise NotStreamed(PART_OF_A_LINE)
    renamed = {name: fresh(name, taken) for name in other if name in disjoint}
    outside = [renamed_value(value, renamed) for value in op.values if value.name in disjoint]
    first = reached({value.name: references(value.node) for value in outside}, computed, ())
    alone = {value.name: value for value in outside if value.name not in inside}
    # What comes first may be made of what is inside, as `any(kept, N)` is of the mask of the scores.
    return values_in_order({name: value for name, value in alone.items() if name in first} | inside | alone)


def _stored_by(steps: Iterable[Step]) -> Iterator[Result]:
    """What steps store: in the dtype of an input, where one has that of what another has stored."""
    same: dict[str, tuple[str, ...]] = {}
    for result in (result for step in steps for result in step.op.results):
        of = tuple(leaf for name in result.dtype.of for leaf in same.get(name, (name,)))
        if not result.dtype.rule and not result.dtype.otherwise:
            same[result.output.name] = of
        yield replace(result, dtype=replace(result.dtype, of=of))


def _reading(op: Op, before: Mapping[str, Input]) -> Op:
    """The operator that reads what is computed before as inputs, where it does."""
    names = {name: name for name in before}
    values = (replace(value, node=as_loads(value.node, names)) for value in op.values if value.name not in names)
    results = tuple(replace(result, node=as_loads(result.node, names)) for result in op.results)
    needed_for = needed(tuple(values), [name for result in results for name in references(result.node)])
    read = {name for value in needed_for for name in reads(value.node)}
    inputs = (*op.inputs, *(tensor for name, tensor in before.items() if name in read))
    return replace(op, inputs=inputs, values=tuple(needed_for), results=results)


def _read_in_loop(op: Op, stream: Stream) -> set[str]:
    """The inputs of which scores and sums are made."""
    values = needed(op.values, [*(one.name for one in stream.scores), *(one.name for one in stream.sums)])
    return {name for value in values for name in reads(value.node)}


def _made_of_scores(op: Op, stream: Stream) -> set[str]:
    """The values of an operator that are computed from scores."""
    scores = {one.name for one in stream.scores}
    refs = op.refs
    return {name for name in refs if reached(refs, refs[name], ()) & scores}


def with_lines(value: Value, names: Container[str], op: Op) -> Value:
    """A value that refers to lines of an operator where it read what they had stored."""

    def line(node: Node) -> Node:
        if not isinstance(node, Load) or node.name not in names:
            return node
        if not node.at:
            return Ref(node.name, node.axes, node.dtype)
        return Take(op.value(node.name).ref, node.at, node.axes, node.dtype)

    return replace(value, node=replaced(value.node, line))
