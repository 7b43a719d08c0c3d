"""Scores of attention that steps store, and why: what `tritongen plan` tells of them."""

from __future__ import annotations

from collections.abc import Container, Iterable

from ...lang.ir import Load, Op, Reduce, Ref
from ...lowering.tile import needed
from ...passes.attentions import Attention, attentions
from ...passes.contractions import sides_of
from ...passes.exponentials import resolve
from ...passes.structure import line_of, reached, references
from ...planner.steps import restricted
from ...planner.stored import as_input, reading, result_of
from ..family import Step
from ..stream import NotStreamed, StoredScores, write_instead
from .streams import Finder, merged_axes


def stored_scores(op: Op, steps: Iterable[Step]) -> StoredScores | None:
    """The first scores of attention that the steps of an operator store; None where they store none."""
    steps = tuple(steps)
    refs = op.refs
    for found in attentions(op):
        axes = (found.rows, found.streamed)
        others = {name for name in refs if found.score not in reached(refs, [name], ())}
        kinds = "float", op.value(found.score).node.dtype.kind
        if stores(steps, axes, others, kinds):
            return StoredScores(axes, _why(op, found) + write_instead(op, found.streamed))
    return None


def stores(
    steps: Iterable[Step], axes: tuple[str, str], results: Container[str] = (), kinds: Container[str] = ("float",)
) -> bool:
    """Whether steps store floats, or what is of other kinds, with both axes, but for some results."""
    every = (one for step in steps for one in (step.family.steps(step.program) or (step,)))
    found = (result for step in every for result in step.op.results if result.dtype.kind in kinds)
    return any({*axes} <= {*result.axes} and result.output.name not in results for result in found)


def _why(op: Op, found: Attention) -> str:
    if not op.fuse:
        return "fuse = false computes each line by itself"
    alone = result_of(found.total)
    ops = (restricted(one, (alone,), "") for one in (op, _of_inputs(op, found)))
    refused = [_refused(one, found.streamed) for one in ops]
    if all(refused):
        return refused[-1]
    return _read_besides(op, found) or "steps that store them are reckoned to take less time"


def _refused(op: Op, streamed: str) -> str:
    """Why a kernel streams no axis of an operator; "" where one does."""
    try:
        Finder((merged := merged_axes(op, streamed)).joined(op), merged.of(streamed)).found()
    except NotStreamed as refused:
        return str(refused)
    return ""


def _of_inputs(op: Op, found: Attention) -> Op:
    """The operator as if its matrices that are computed were inputs, which steps before have stored."""
    refs = op.refs
    sides = (side for node in (op.value(found.score).node, found.total.node) for side in (sides_of(op, node) or ())[:2])
    names = dict.fromkeys(
        side.name
        for side in sides
        if isinstance(side, Ref)
        and not isinstance(resolve(op, side), Load)
        and found.score not in reached(refs, [side.name], ())
    )
    return reading(op, (as_input(op, result_of(op.value(name))) for name in names))


def _read_besides(op: Op, found: Attention) -> str:
    """What is made of scores otherwise than by the sum; "" if nothing is."""
    reduced = {value.name: value.node for value in op.values if isinstance(value.node, Reduce)}
    online = {name for name, node in reduced.items() if found.streamed in node.over and node.kind in ("sum", "max")}
    refs = {value.name: references(value.node) for value in op.values if value.name not in online}
    for result in op.results:
        names = reached(refs, [result.output.name], ())
        if found.score not in names:
            continue
        if {found.rows, found.streamed} <= {*result.axes}:
            return f"{result.output.name} is a result, and has both axes"
        for value in needed(op.values, [result.output.name]):
            node = reduced.get(value.name)
            if node and value.name in names and (along := {found.rows, found.streamed} & {*node.over}):
                return f"{line_of(op, value)} takes their {node.kind} along {' and '.join(sorted(along))}, too"
        return f"{result.output.name} is made of them otherwise, too"
    return ""
