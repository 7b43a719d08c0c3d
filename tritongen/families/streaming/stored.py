"""Scores of attention that steps store, and why: what `tritongen plan` tells of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace

from ...lang.ir import Call, Index, Load, Node, Op, Reduce, Ref, Result, Value, walk
from ...lang.rewrite import as_loads
from ...lowering.tile import needed
from ...passes.contractions import is_product, sides_of
from ...passes.exponentials import resolve
from ...passes.structure import line_of, reached, references
from ...spec.types import BATCH, FLOATS, Input, Output, TensorType, are_alike, plain_shape
from ..family import Step
from ..steps import restricted
from ..stream import NotStreamed, StoredScores
from .positions import by_likelihood
from .streams import Finder, merged_axes


@dataclass(frozen=True, slots=True)
class Attention:
    """A sum along the axis `streamed` of exponentials of scores, a matmul along that and `rows`, times a matrix."""

    total: Value
    score: str
    rows: str
    streamed: str


def stored_scores(op: Op, steps: Iterable[Step]) -> StoredScores | None:
    """The first scores of attention that the steps of an operator store; None where they store none."""
    steps = tuple(steps)
    refs = op.refs
    for found in attentions(op):
        axes = (found.rows, found.streamed)
        others = {name for name in refs if found.score not in reached(refs, [name], ())}
        kinds = "float", op.value(found.score).node.dtype.kind
        if stores(steps, axes, others, kinds):
            return StoredScores(axes, _why(op, found))
    return None


def stores(
    steps: Iterable[Step], axes: tuple[str, str], results: Container[str] = (), kinds: Container[str] = ("float",)
) -> bool:
    """Whether steps store floats, or what is of other kinds, with both axes, but for some results."""
    every = (one for step in steps for one in (step.family.steps(step.program) or (step,)))
    found = (result for step in every for result in step.op.results if result.dtype.kind in kinds)
    return any({*axes} <= {*result.axes} and result.output.name not in results for result in found)


def attentions(op: Op) -> list[Attention]:
    """The attentions in an operator, whether or not any kernel streams them.

    What is summed to scores, such as exponentials of a projection in linear attention, are features, and no weights.
    """
    found = [*_attentions(op)]
    scores = {one.score for one in found}
    return [one for one in found if one.total.name not in scores]


def _attentions(op: Op) -> Iterator[Attention]:
    refs = op.refs
    for total in op.values:
        sides = sides_of(op, total.node)
        if sides is None or not isinstance(total.node, Reduce):
            continue
        for side, matrix in (sides[:2], sides[1::-1]):
            inside = reached(refs, references(side), ())
            for score in (value for value in op.values if value.name in inside):
                above = {name for name in inside if score.name in reached(refs, [name], ())} - {score.name}
                nodes = [side, *(op.value(name).node for name in above)]
                axes = _axes(op, score.node, total.node, matrix)
                if axes is None or not _are_of_attention(nodes, above | {score.name}, axes):
                    continue
                products = (node for name in above if is_product(op, node := op.value(name).node))
                if all(_mixes_heads(op, score.node, node) for node in products):
                    yield Attention(total, score.name, *axes)


def _axes(op: Op, score: Node, total: Reduce, matrix: Node) -> tuple[str, str] | None:
    """The rows of scores, which the matrix lacks, and the axis that is summed; None for what is no matmul of both."""
    sides = sides_of(op, score)
    if sides is None:
        return None
    own = [{*one.axes} - {*other.axes, BATCH} for one, other in (sides[:2], sides[1::-1])]
    for rows, columns in (own, own[::-1]):
        found = [by_likelihood(op, one) for one in ((rows & {*total.axes}) - {*matrix.axes}, columns & {*total.over})]
        if all(found):
            return found[0][0], found[1][0]
    return None


def _mixes_heads(op: Op, score: Node, node: Node) -> bool:
    """Whether a matmul sums scores or probabilities over axes of heads alone, which both sides of the scores have."""
    one, other, *_ = sides_of(op, score) or (score, score)
    return isinstance(node, Reduce) and {*node.over} <= {*one.axes} & {*other.axes}


def _are_of_attention(nodes: Iterable[Node], of: set[str], axes: tuple[str, str]) -> bool:
    """Whether exponentials of some values are in nodes, or positions along both axes, as in linear attention."""
    walked = [part for node in nodes for part in walk(node)]
    exponentials = (part for part in walked if isinstance(part, Call) and part.function in ("exp", "exp2"))
    positions = {part.axis for part in walked if isinstance(part, Index)}
    return {*axes} <= positions or any(references(part) & of for part in exponentials)


def _why(op: Op, found: Attention) -> str:
    if not op.fuse:
        return "fuse = false computes each line by itself"
    node = found.total.node
    total = Ref(found.total.name, node.axes, node.dtype)
    alone = Result(Output(total.name, "auto", plain_shape(total.axes)), total, total.axes, total.dtype)
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
    names = {
        side.name: side.name
        for side in sides
        if isinstance(side, Ref)
        and not isinstance(resolve(op, side), Load)
        and found.score not in reached(refs, [side.name], ())
    }
    inputs = (Input(name, _type(op, op.value(name).node)) for name in names)
    values = (replace(value, node=as_loads(value.node, names)) for value in op.values if value.name not in names)
    return replace(op, inputs=(*op.inputs, *inputs), values=tuple(values))


def _type(op: Op, node: Node) -> TensorType:
    """The type of what is stored of a node: that of the inputs which it is made of, if these have one."""
    types = [tensor.type for tensor in op.inputs if tensor.name in node.dtype.of]
    shape = plain_shape(node.axes)
    return replace(types[0], shape=shape) if types and are_alike(types) else TensorType(FLOATS, shape)


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
