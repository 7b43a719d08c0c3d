"""A slope times the distance of rows and columns, as ALiBi adds it to scores.

Within a block it is one value per row plus one for each column. Scores take those of columns, by one multiply-add
each, and their maximum those of rows: a distance for each score would be an integer to subtract, convert and multiply.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...lang.ir import INT64, Call, Constant, Index, Node, Op, Ref, children
from ...lang.rewrite import rebuild
from ...lowering.tile import needed
from ...passes.contractions import applied
from ...passes.exponentials import resolve
from ...passes.triangles import slopes_of
from ..stream import Stream
from .scales import is_exponent_alone

ROWS = Ref("tile_rows", (), INT64)
FIRST = Ref("first_col", (), INT64)


@dataclass(frozen=True, slots=True)
class Sloped:
    """Scores without the bias that a slope gives each row at the first column of a block, and that bias.

    Lines that only the slope read are `unread`.
    """

    score: Node
    lead: Node
    unread: frozenset[str] = frozenset()


def sloped(op: Op, score: str, stream: Stream) -> Sloped | None:
    """None where scores have no such slope, or where a line reads them otherwise than as exponents."""
    found = _Slopes(op, stream).found(op.value(score).node) if is_exponent_alone(op, score, stream) else None
    if found is None:
        return None
    rest = tuple(replace(value, node=found.score) if value.name == score else value for value in op.values)
    read = {value.name for value in needed(rest, (result.output.name for result in op.results))}
    return replace(found, unread=frozenset(value.name for value in op.values) - read)


@dataclass(frozen=True, slots=True)
class _Slopes:
    op: Op
    stream: Stream

    def found(self, node: Node) -> Sloped | None:
        """The terms of a sum without their lead, behind a mask."""
        match node:
            case Call(function="where", args=(test, then, Constant(value=value) as other)) if value == -math.inf:
                found = self.found(then)
                return found and replace(found, score=replace(node, args=(test, found.score, other)))
            case Call(function="add" | "sub" as function, args=(one, other)):
                if found := self.found(one):
                    return replace(found, score=replace(node, args=(found.score, other)))
                if found := self.found(other):
                    lead = found.lead if function == "add" else _negated(found.lead)
                    return Sloped(replace(node, args=(one, found.score)), lead)
            case Call(function="neg", args=(arg,)) if found := self.found(arg):
                return Sloped(replace(node, args=(found.score,)), _negated(found.lead))
            case Call(function="mul", args=(one, other)):
                return self.product(node, one, other) or self.product(node, other, one)
            case Ref(name=name) if name not in {score.name for score in self.stream.scores} and self.crosses(node):
                return self.found(self.op.value(name).node)
        return None

    def product(self, node: Call, slope: Node, distance: Node) -> Sloped | None:
        """A slope of the head times a difference of positions."""
        distance = resolve(self.op, distance)
        steps = slopes_of(self.op, distance) or {}
        step = steps.get(self.stream.streamed)
        if step not in (1, -1) or not steps.get(self.stream.rows):
            return None
        if slope.dtype.kind != "float" or {self.stream.rows, self.stream.streamed} & {*slope.axes}:
            return None
        column = Index(self.stream.streamed, (self.stream.streamed,))
        ahead = applied("sub", *((column, FIRST) if step == 1 else (FIRST, column)))
        lead = Call("mul", (slope, self.at_the_first(distance)), slope.axes, node.dtype)
        return Sloped(replace(node, args=(slope, ahead)), lead)

    def crosses(self, node: Node) -> bool:
        return {self.stream.rows, self.stream.streamed} <= {*node.axes}

    def at_the_first(self, node: Node) -> Node:
        """A distance at the first column of a block, for the rows of a tile."""
        match node:
            case Index(axis=axis):
                return {self.stream.rows: ROWS, self.stream.streamed: FIRST}.get(axis, node)
            case Ref():
                return self.at_the_first(resolve(self.op, node))
        return rebuild(node, tuple(map(self.at_the_first, children(node))))


def _negated(node: Node) -> Node:
    return Call("neg", (node,), node.axes, node.dtype)
