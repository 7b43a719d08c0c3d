"""The number that all scores are multiplied by, which exponents may take."""

from __future__ import annotations

import math
from dataclasses import replace

from ...lang.ir import Call, Constant, Node, Op, Ref, Scalar, walk
from ..stream import Stream, is_exponent


def scale_of(op: Op, score: str, stream: Stream) -> tuple[str, Node]:
    """The number that all scores are multiplied by, a param or above 0, and what they are without it; "" where a line
    reads them otherwise than as exponents, or where they are more than a matmul with a scale and a mask.
    """
    whole = op.value(score).node
    parts = [part for value in op.values for part in walk(value.node)]
    uses = [part for part in parts if isinstance(part, Ref) and part.name == score]
    exponents = [part for part in parts if is_exponent(part, score, stream.largest)]
    if len(uses) > len(exponents) + 1:  # The largest is of them, too.
        return "", whole
    return unscaled(op, whole, stream.scores[0].name)


def unscaled(op: Op, whole: Node, product_name: str) -> tuple[str, Node]:
    """The number that a product with a name is multiplied by, as in `scale_of`, and what scores are without it."""
    mask = whole if isinstance(whole, Call) and whole.function == "where" else None
    match mask.args[1] if mask else whole:
        case (
            Call(function="mul", args=(Ref() as product, scale)) | Call(function="mul", args=(scale, Ref() as product))
        ):
            text = _spelled(op, scale)
        case _:
            return "", whole
    if mask is None:
        return text if product.name == product_name else "", product
    test, _, other = mask.args
    is_mask = isinstance(other, Constant) and other.value == -math.inf and product.name == product_name
    return text if is_mask else "", replace(mask, args=(test, product, other))


def _spelled(op: Op, scale: Node) -> str:
    """A float param, or a number above 0, as a line spells it; "" for others."""
    match scale:
        case Scalar(name=name):
            return name if any(param.name == name and param.kind == "float" for param in op.params) else ""
        case Constant(value=float() | int() as number) if number > 0:
            return repr(float(number))
    return ""
