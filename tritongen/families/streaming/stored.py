"""Scores of attention that steps store, and why: what `tritongen plan` tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...lang.ir import Call, Node, Op, Reduce, Ref, Result, Value, walk
from ...lowering.tile import needed
from ...passes.contractions import sides_of
from ...passes.structure import line_of, reached, references
from ...spec.types import BATCH, Output, plain_shape
from ..family import Step
from ..steps import restricted
from ..stream import NotStreamed, StoredScores
from .streams import Finder, likely


@dataclass(frozen=True, slots=True)
class _Attention:
    """A sum along the axis `streamed` of exponentials of scores, a matmul along that and `rows`, times a matrix."""

    total: Value
    score: str
    rows: str
    streamed: str


def stored_scores(op: Op, steps: Iterable[Step]) -> StoredScores | None:
    """The first scores of attention that the steps of an operator store; None where they store none."""
    for found in _attentions(op):
        if stores(steps, found.rows, found.streamed):
            return StoredScores((found.rows, found.streamed), _why(op, found))
    return None


def stores(steps: Iterable[Step], rows: str, streamed: str) -> bool:
    """Whether steps store what has both axes, and none of them streams one along the other."""
    steps = tuple(_each(steps))
    streams = [step.family.stream(step.program) for step in steps]
    if any(one and (one.rows, one.streamed) == (rows, streamed) for one in streams):
        return False
    return any({rows, streamed} <= {*result.axes} for step in steps for result in step.op.results)


def _each(steps: Iterable[Step]) -> Iterator[Step]:
    for step in steps:
        inner = step.family.steps(step.program)
        yield from _each(inner) if inner else (step,)


def _attentions(op: Op) -> Iterator[_Attention]:
    refs = {value.name: references(value.node) for value in op.values}
    for total in op.values:
        sides = sides_of(op, total.node)
        if sides is None or not isinstance(total.node, Reduce):
            continue
        for side in sides[:2]:
            inside = reached(refs, references(side), ())
            for score in (value for value in op.values if value.name in inside):
                above = {name for name in inside if score.name in reached(refs, [name], ())} - {score.name}
                nodes = [side, *(op.value(name).node for name in above)]
                axes = _axes(op, score.node, total.node)
                if axes is not None and any(_is_exponential(part, above | {score.name}) for part in nodes):
                    yield _Attention(total, score.name, *axes)


def _axes(op: Op, score: Node, total: Reduce) -> tuple[str, str] | None:
    """The rows of scores, and the axis of them that is summed; None for what is no matmul of both."""
    sides = sides_of(op, score)
    if sides is None:
        return None
    own = [{*one.axes} - {*other.axes, BATCH} for one, other in (sides[:2], sides[1::-1])]
    for rows, columns in (own, own[::-1]):
        found = [
            max(one, key=lambda axis: likely(op, axis), default="")
            for one in (rows & {*total.axes}, columns & {*total.over})
        ]
        if all(found):
            return found[0], found[1]
    return None


def _is_exponential(node: Node, of: set[str]) -> bool:
    """Whether an exponential of some values is in a node."""
    return any(isinstance(part, Call) and part.function == "exp" and references(part) & of for part in walk(node))


def _why(op: Op, found: _Attention) -> str:
    if not op.fuse:
        return "fuse = false computes each line by itself"
    node = found.total.node
    own = Ref(found.total.name, node.axes, node.dtype)
    alone = Result(Output(own.name, "auto", plain_shape(own.axes)), own, own.axes, own.dtype)
    try:
        Finder(restricted(op, (alone,), ""), found.streamed).found()
    except NotStreamed as refused:
        return str(refused)
    return _read_besides(op, found) or "steps that store them are reckoned to take less time"


def _read_besides(op: Op, found: _Attention) -> str:
    """What is made of scores otherwise than by the sum; "" if nothing is."""
    sums = {value.name for value in op.values if isinstance(value.node, Reduce) and found.streamed in value.node.over}
    refs = {value.name: references(value.node) for value in op.values if value.name not in sums}
    for result in op.results:
        names = reached(refs, [result.output.name], ())
        if found.score not in names:
            continue
        if {found.rows, found.streamed} <= {*result.axes}:
            return f"{result.output.name} is a result, and has both axes"
        for value in needed(op.values, [result.output.name]):
            if value.name in names and isinstance(value.node, Reduce) and found.rows in value.node.over:
                return f"{line_of(op, value)} reduces them along {found.rows}, too"
        return f"{result.output.name} is made of them otherwise, too"
    return ""
