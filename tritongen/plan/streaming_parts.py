"""What streams in a forward of several steps: its gradient is that of what follows, and then its own."""

from __future__ import annotations

from dataclasses import replace

from ..families.family import Step
from ..families.stream import Stream
from ..lang.ir import Op, fresh
from ..passes.structure import reached, references
from ..spec.types import Output
from .weighted_means import renamed


def streamed_in(forward: Step) -> tuple[Op, Stream] | None:
    """A forward, as what one of its steps streams and what others make of that; None where it has no such step.

    Nor has it one where several steps stream, or where the one that does reads what others have stored.
    """
    stream = forward.family.stream(forward.program)
    if stream is not None:
        return forward.op, stream
    streams = [(step, step.family.stream(step.program)) for step in forward.family.steps(forward.program)]
    found = [(step, stream) for step, stream in streams if stream is not None]
    if len(found) != 1:
        return None
    op, (step, stream) = forward.op, found[0]
    made, given = ({one.name for one in named} for named in (_outputs(step.op), op.inputs))
    if not made <= op.names or any(tensor.name not in given for tensor in step.op.inputs):
        return None
    outputs = {one.name for one in _outputs(op)}
    refs = {value.name: references(value.node) for value in op.values}
    behind = tuple(value for value in op.values if value.name in reached(refs, outputs, made) - made)
    inside = {value.name: value for value in step.op.values}
    other = [value.name for value in behind if value.name in inside and value.node != inside[value.name].node]
    if outputs.intersection(other):
        return None
    taken = {*op.names, *step.op.names}
    behind = renamed(replace(op, values=behind), {name: fresh(name, taken) for name in other}).values
    return replace(op, values=(*step.op.values, *(one for one in behind if one.name not in inside))), stream


def _outputs(op: Op) -> list[Output]:
    return [result.output for result in op.results]
