"""Scores as kernels may decompose them: a scale, a slope, and terms that may be low.

Exponents may apply the scale of all scores. Scores may be finite but far below 0, as under a finite mask. A slope times
the distance of rows and columns, as in ALiBi, is a per-row plus a per-column value within a block: scores add the
per-column value, by one FMA each, and the per-row value is added to their maximum. A distance per score would be an
integer to subtract, convert and multiply.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...lang.ir import (
    INT64,
    Call,
    Cast,
    Choose,
    Constant,
    Index,
    Load,
    Node,
    Op,
    Reduce,
    Ref,
    Scalar,
    Size,
    Take,
    Value,
    children,
    walk,
)
from ...lang.rewrite import rebuild, replaced
from ...lowering.tile import needed
from ...passes.contractions import applied
from ...passes.exponentials import exponent_of, resolve
from ...passes.triangles import slopes_of
from ..stream import Stream, is_exponent

LARGE = 2**28  # As in `LOW` of the runtime.
ROWS = Ref("tile_rows", (), INT64)
FIRST = Ref("first_col", (), INT64)


def scale_of(op: Op, score: str, stream: Stream) -> tuple[Node | None, Node]:
    """The scale of all scores, a param or above 0, and the scores without it; None and the scores if a line reads them
    otherwise than as exponents, or if they are more than a matmul with a scale and a mask.
    """
    full = op.value(score).node
    found = without_scale(op, full, stream.scores[0].name) if is_exponent_alone(op, score, stream) else None
    return found or (None, full)


def is_exponent_alone(op: Op, score: str, stream: Stream) -> bool:
    """Whether scores are read only as exponents below the largest, and by that maximum itself."""
    uses = [node for node in op.nodes if isinstance(node, Ref) and node.name == score]
    exponents = [node for node in op.nodes if is_exponent(node, score, stream.largest)]
    return len(uses) <= len(exponents) + 1


def without_scale(op: Op, full: Node, matmul: str, factor: Node | None = None) -> tuple[Node, Node] | None:
    """The scale, or the reciprocal of the divisor, of a matmul, inside a mask if any; and the scores without it, or
    with `factor` in its place.
    """
    match full:
        case Call(function="where", args=(_, node, Constant(value=value))) if value == -math.inf:
            pass
        case node:
            pass
    match node:
        case (
            Call(function="mul", args=(Ref() as product, scale)) | Call(function="mul", args=(scale, Ref() as product))
        ):
            is_scale = _is_scale(op, scale)
        case Call(function="div", args=(Ref() as product, divisor)):
            is_scale = not isinstance(divisor, Scalar) and _is_scale(op, divisor)
            scale = applied("div", Constant(1.0, divisor.dtype), divisor)
        case _:
            return None
    if not is_scale or product.name != matmul:
        return None
    other = product if factor is None else applied("mul", product, factor)
    return scale, replaced(full, lambda inner: other if inner == node else inner)


def _is_scale(op: Op, node: Node) -> bool:
    """Whether a node is a float param, or a number above 0: one that is written, a length, or a root of that."""
    match node:
        case Scalar(name=name):
            return any(param.name == name and param.kind == "float" for param in op.params)
        case Constant(value=float() | int() as number):
            return number > 0
        case Call(function="sqrt" | "rsqrt", args=(Size(),)) | Size():
            return True
    return False


def to_base2(op: Op, stream: Stream) -> tuple[Node | None, Value | None]:
    """The scale of scores whose exponentials are taken below per-row or per-column values, and the scores with a
    factor in its place that converts them to base 2; None for both if a line reads the scores otherwise.
    """
    powers = [inner for node in op.nodes if (inner := exponent_of(node))]
    names = [x.name for x, y in powers if isinstance(x, Ref) and (stream.rows in y.axes) != (stream.streamed in y.axes)]
    uses = [inner for inner in op.nodes if isinstance(inner, Ref) and inner.name in names]
    if len({*names}) != 1 or len(uses) > len(names):
        return None, None
    value = op.value(names[0])
    found = without_scale(op, value.node, stream.scores[0].name, Ref("factor", (), value.node.dtype))
    return (found[0], replace(value, node=found[1])) if found else (None, None)


# Slopes


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
        """The terms of a sum without their lead, inside its mask if any."""
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


# What may be low


def has_low_scores(op: Op, stream: Stream) -> bool:
    """Whether values that may be low are added to the scores below exponentials, or chosen instead of them."""
    largest = op.value(stream.largest).node if stream.largest else None
    return isinstance(largest, Reduce) and _Term(op, stream).may_be_low(largest.arg)


@dataclass(frozen=True, slots=True)
class _Term:
    """A term added to scores, or a factor of one. Matmuls are not low, and neither are their factors, such as a scale,
    nor factors of per-position values, such as a slope.
    """

    op: Op
    stream: Stream
    is_factor: bool = False
    of_scores: bool = False

    def may_be_low(self, node: Node) -> bool:
        match node:
            case Constant(value=float() | int() as number):
                return LARGE < abs(number) < math.inf and not self.of_scores
            case Scalar():
                return node.dtype.kind == "float" and not self.is_factor
            case Load() | Take():
                is_mask = not self.is_factor or (self.stream.streamed in node.axes and not self.of_scores)
                return node.dtype.kind == "float" and is_mask
            case Ref(name=name):
                return not self.is_product(name) and self.may_be_low(self.op.value(name).node)
            case Cast(arg=arg):
                return self.may_be_low(arg)
            case Call(function="mul" | "div", args=args):
                factor = replace(self, is_factor=True, of_scores=self.of_scores or self.has_scores(node))
                return any(map(factor.may_be_low, args))
            case Call(function="where", args=(_, *args)) | Call(args=args):
                term = _Term(self.op, self.stream) if self.has_scores(node) else self
                return any(map(term.may_be_low, args))
            case Choose(then=then, other=other):
                return self.may_be_low(then) or self.may_be_low(other)
        return False

    def is_product(self, name: str) -> bool:
        return any(name == one.name for one in self.stream.scores)

    def has_scores(self, node: Node) -> bool:
        names = [inner.name for inner in walk(node) if isinstance(inner, Ref)]
        return any(self.is_product(name) or self.has_scores(self.op.value(name).node) for name in names)
