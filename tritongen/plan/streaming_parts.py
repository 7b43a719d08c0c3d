"""What streams in a forward of several steps: its gradient is that of what follows, and then its own."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from ..families.family import Step
from ..families.stream import NotStreamed, Stream
from ..lang.ir import Load, Node, Op, Ref, Value, fresh, replaced
from ..lowering.tile import needed
from ..passes.structure import reached, reads, references
from .weighted_means import renamed_values


def streams_in(forward: Step) -> list[tuple[Step, Stream]]:
    """The steps of a forward that stream, and what."""
    steps = forward.family.steps(forward.program) or (forward,)
    return [(step, stream) for step in steps if (stream := step.family.stream(step.program))]


def streamed_first(forward: Step, streams: list[tuple[Step, Stream]]) -> tuple[Op, Stream]:
    """A forward, as what one of its steps streams and what others make of that.

    Raises `NotStreamed` where several steps stream, or what does is computed by a step before.
    """
    (step, stream), *others = streams
    op = forward.op
    if step is forward:
        return op, stream
    if others:
        raise NotStreamed("several steps of the forward stream")
    made, outputs = ({result.output.name for result in one.results} for one in (step.op, op))
    computed = {tensor.name for tensor in step.op.inputs} - {tensor.name for tensor in op.inputs}
    if first := sorted(computed & _read_in_loop(step.op, stream)):
        raise NotStreamed(f"{' and '.join(first)} is computed before it is streamed")
    inside = {value.name: _with_lines(value, computed) for value in step.op.values}
    refs = {value.name: references(value.node) for value in op.values}
    apart = (reached(refs, outputs, made) | reached(refs, computed, ())) - made
    other = [value.name for value in op.values if value.name in inside and value.node != inside[value.name].node]
    if not made | computed <= op.names or apart.intersection(other, {*outputs, *computed}):
        raise NotStreamed("what follows the sums is made of a part of a line")
    taken = {*op.names, *step.op.names}
    names = {name: fresh(name, taken) for name in other if name in apart}
    values = renamed_values(
        replace(op, values=tuple(value for value in op.values if value.name in apart)), names
    ).values
    before = reached({value.name: references(value.node) for value in values}, computed, ())
    own = [value for value in values if value.name not in inside]
    own.sort(key=lambda value: value.name not in before)
    count = sum(value.name in before for value in own)
    return replace(op, values=(*own[:count], *inside.values(), *own[count:])), stream


def _read_in_loop(op: Op, stream: Stream) -> set[str]:
    """The inputs of which scores and sums are made."""
    values = needed(op.values, [*(one.name for one in stream.scores), *(one.name for one in stream.sums)])
    return {name for value in values for name in reads(value.node)}


def _with_lines(value: Value, names: Container[str]) -> Value:
    """A value that refers to lines where it read what they had stored."""

    def line(node: Node) -> Node:
        if isinstance(node, Load) and node.name in names and not node.at:
            return Ref(node.name, node.axes, node.dtype)
        return node

    return replace(value, node=replaced(value.node, line))
