"""What streams in a forward of several steps, what comes before it, and what follows it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from ..families.family import Step
from ..families.stream import NotStreamed, Stream
from ..lang.ir import Dtype, Load, Node, Op, Ref, Value, as_loads, fresh, replaced
from ..lowering.tile import needed
from ..passes.structure import reached, reads, references
from ..spec.types import Input
from .weighted_means import renamed_values


def streams_in(forward: Step) -> list[tuple[Step, Stream]]:
    """The steps of a forward that stream, and what."""
    steps = forward.family.steps(forward.program) or (forward,)
    return [(step, stream) for step in steps if (stream := step.family.stream(step.program))]


@dataclass(frozen=True, slots=True)
class Streamed:
    """What one step of a forward streams, and an operator of that and of what follows: what steps before have computed
    for it is among its inputs, `before` with the dtypes in which it is stored.
    """

    op: Op
    stream: Stream
    before: tuple[tuple[Input, Dtype], ...] = ()


def streamed_in(forward: Step, streams: list[tuple[Step, Stream]]) -> Streamed:
    """What one of the steps of a forward streams, which compute what others stream or make of it.

    Raises `NotStreamed` where several steps stream.
    """
    (step, stream), *others = streams
    if step is forward:
        return Streamed(forward.op, stream)
    if others:
        raise NotStreamed("several steps of the forward stream")
    before = _computed_before(forward, step, stream)
    names = {tensor.name for tensor, _ in before}
    op = _reading(forward.op, tuple(tensor for tensor, _ in before))
    made, outputs = ({result.output.name for result in one.results} for one in (step.op, op))
    computed = {tensor.name for tensor in step.op.inputs} - {tensor.name for tensor in op.inputs}
    inside = {value.name: with_lines(value, computed) for value in step.op.values}
    refs = {value.name: references(value.node) for value in op.values}
    apart = (reached(refs, outputs, made) | reached(refs, computed, ())) - made
    other = [value.name for value in op.values if value.name in inside and value.node != inside[value.name].node]
    if not made | computed | names <= forward.op.names or apart.intersection(other, {*outputs, *computed}):
        raise NotStreamed("what follows the sums is made of a part of a line")
    taken = {*op.names, *step.op.names}
    renamed = {name: fresh(name, taken) for name in other if name in apart}
    values = renamed_values(
        replace(op, values=tuple(value for value in op.values if value.name in apart)), renamed
    ).values
    first = reached({value.name: references(value.node) for value in values}, computed, ())
    own = [value for value in values if value.name not in inside]
    own.sort(key=lambda value: value.name not in first)
    count = sum(value.name in first for value in own)
    return Streamed(replace(op, values=(*own[:count], *inside.values(), *own[count:])), stream, before)


def _computed_before(forward: Step, step: Step, stream: Stream) -> tuple[tuple[Input, Dtype], ...]:
    """What other steps compute of which a step makes scores and sums."""
    given = {tensor.name for tensor in forward.op.inputs}
    read = _read_in_loop(step.op, stream) - given
    dtypes = {one.output.name: one.dtype for other in forward.family.steps(forward.program) for one in other.op.results}
    return tuple((tensor, dtypes[tensor.name]) for tensor in step.op.inputs if tensor.name in read)


def _reading(op: Op, before: tuple[Input, ...]) -> Op:
    """The operator that reads what is computed before as inputs."""
    names = {tensor.name: tensor.name for tensor in before}
    values = (replace(value, node=as_loads(value.node, names)) for value in op.values if value.name not in names)
    results = tuple(replace(result, node=as_loads(result.node, names)) for result in op.results)
    needed_for = needed(tuple(values), [name for result in results for name in references(result.node)])
    return replace(op, inputs=(*op.inputs, *before), values=tuple(needed_for), results=results)


def _read_in_loop(op: Op, stream: Stream) -> set[str]:
    """The inputs of which scores and sums are made."""
    values = needed(op.values, [*(one.name for one in stream.scores), *(one.name for one in stream.sums)])
    return {name for value in values for name in reads(value.node)}


def with_lines(value: Value, names: Container[str]) -> Value:
    """A value that refers to lines where it read what they had stored."""

    def line(node: Node) -> Node:
        if isinstance(node, Load) and node.name in names and not node.at:
            return Ref(node.name, node.axes, node.dtype)
        return node

    return replace(value, node=replaced(value.node, line))
