"""Scores that may be finite but far below 0, as under a finite mask."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...lang.ir import Call, Cast, Choose, Constant, Load, Node, Op, Reduce, Ref, Scalar, Take, walk
from ..stream import Stream

LARGE = 2**28  # As in `LOW` of the runtime.


def has_low_scores(op: Op, stream: Stream) -> bool:
    """Whether what may be low is added to the scores that exponentials are of, or chosen instead of them."""
    largest = op.value(stream.largest).node if stream.largest else None
    return isinstance(largest, Reduce) and _Term(op, stream).may_be_low(largest.arg)


@dataclass(frozen=True, slots=True)
class _Term:
    """What is added to scores, or a factor of that. Matmuls are not low, and neither are factors of them, such as a
    scale, or of per-position values, such as a slope.
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
        names = [part.name for part in walk(node) if isinstance(part, Ref)]
        return any(self.is_product(name) or self.has_scores(self.op.value(name).node) for name in names)
