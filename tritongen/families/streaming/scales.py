"""The number that all scores are multiplied by, which exponents may take."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...lang.ir import Call, Constant, Node, Op, Ref, Scalar, Size, Value, walk
from ...lang.rewrite import replaced
from ...passes.contractions import applied
from ..stream import Stream, is_exponent


def scale_of(op: Op, score: str, stream: Stream) -> tuple[Node | None, Node]:
    """The number that all scores are multiplied by, a param or above 0, and what they are without it; None where a line
    reads them otherwise than as exponents, or where they are more than a matmul with a scale and a mask.
    """
    full = op.value(score).node
    found = scaled_matmul(op, full, stream.scores[0].name) if is_exponent_alone(op, score, stream) else None
    return (found.scale, replaced(full, found.without)) if found else (None, full)


def is_exponent_alone(op: Op, score: str, stream: Stream) -> bool:
    """Whether lines read scores as exponents below the largest, which is of them, and otherwise not."""
    nodes = [part for value in op.values for part in walk(value.node)]
    uses = [part for part in nodes if isinstance(part, Ref) and part.name == score]
    exponents = [part for part in nodes if is_exponent(part, score, stream.largest)]
    return len(uses) <= len(exponents) + 1


@dataclass(frozen=True, slots=True)
class ScaledMatmul:
    """A matmul times a number, and both by themselves."""

    node: Node
    product: Ref
    scale: Node

    def without(self, node: Node) -> Node:
        """The matmul where a node is both."""
        return self.product if node == self.node else node


def scaled_matmul(op: Op, full: Node, product_name: str) -> ScaledMatmul | None:
    """The number that a matmul with a name is multiplied or divided by, as in `scale_of`, behind which is a mask."""
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
    return ScaledMatmul(node, product, scale) if is_scale and product.name == product_name else None


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
    """The number that scores are multiplied by whose exponentials are taken below per-row or per-column values, and
    these scores with a factor in its place that takes them to base 2; None where a line reads them otherwise.
    """
    nodes = [part for value in op.values for part in walk(value.node)]
    names = [name for part in nodes if (name := _score_of(part, stream))]
    uses = [part for part in nodes if isinstance(part, Ref) and part.name in names]
    if len({*names}) != 1 or len(uses) > len(names):
        return None, None
    value = op.value(names[0])
    found = scaled_matmul(op, value.node, stream.scores[0].name)
    if found is None:
        return None, None
    product = applied("mul", found.product, Ref("factor", (), value.node.dtype))
    node = replaced(value.node, lambda part: product if part == found.node else part)
    return found.scale, replace(value, node=node)


def _score_of(node: Node, stream: Stream) -> str:
    """The score that a node is the exponential of, below a value for each row or column; "" for other nodes."""
    match node:
        case Call(function="exp", args=(Call(function="sub", args=(Ref(name=name), y)),)):
            return name if (stream.rows in y.axes) != (stream.streamed in y.axes) else ""
    return ""
