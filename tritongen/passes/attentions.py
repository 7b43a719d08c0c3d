"""The attentions in an operator, whether or not any kernel streams them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..lang.facts import fact
from ..lang.ir import Call, Index, Node, Op, Reduce, Value, walk
from ..spec.types import BATCH
from .contractions import is_product, sides_of
from .likely_positions import by_likelihood
from .structure import reached, references


@dataclass(frozen=True, slots=True)
class Attention:
    """A matmul `total` over `streamed` of a matrix by weights from the matmul `score` along `rows` and `streamed`."""

    total: Value
    score: str
    rows: str
    streamed: str


@fact
def attentions(op: Op) -> list[Attention]:
    """The attentions in an operator, whether or not any kernel streams them.

    Left out are sums that are scores of others: exponentials in linear attention are features, not weights.
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
    """The axis of rows, which `matrix` lacks, and the summed axis; None unless `score` is a matmul of both."""
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
    """Whether a matmul sums only over axes, such as heads, that both sides of the scores have."""
    one, other, *_ = sides_of(op, score) or (score, score)
    return isinstance(node, Reduce) and {*node.over} <= {*one.axes} & {*other.axes}


def _are_of_attention(nodes: Iterable[Node], of: set[str], axes: tuple[str, str]) -> bool:
    """Whether `nodes` have exponentials of the values `of`, or positions along both `axes`, as in linear attention."""
    walked = [inner for node in nodes for inner in walk(node)]
    exponentials = (node for node in walked if isinstance(node, Call) and node.function in ("exp", "exp2"))
    positions = {node.axis for node in walked if isinstance(node, Index)}
    return {*axes} <= positions or any(references(node) & of for node in exponentials)
