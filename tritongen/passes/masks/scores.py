"""Finds the mask of a score: the condition outside of which the score is the neutral element of the sum.

That is -inf before a softmax, and 0 if scores are summed as they are. All spellings are found that come down to
`where(condition, score, neutral)`, so that kernels skip the condition where it is true, and the score where it is
false.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from ...lang.ir import BOOL, Call, Cast, Choose, Constant, Node, Op, Ref, Scalar


@dataclass(frozen=True, slots=True)
class Mask:
    """A score that is `score` where `condition` is true, and the neutral element elsewhere.

    If `exact`, that holds for any score, else for scores that are finite where they are masked: `score +
    where(condition, 0, -inf)` is NaN where the score is.
    """

    condition: Node
    score: Node
    exact: bool = True


@dataclass(frozen=True, slots=True)
class _Found:
    """A masked value: if `condition` is None it is `score` everywhere, if `score` is None it is neutral everywhere."""

    condition: Node | None
    score: Node | None
    exact: bool = True


def mask_of(op: Op, score: Node, neutral: float) -> Mask | None:
    """The mask of a score; None where it has none. Conditions and scores may refer to lines of the operator."""
    found = _Search(op, neutral).of(score)
    if found.condition is None or found.score is None:
        return None
    return Mask(found.condition, found.score, found.exact)


class _Search:
    def __init__(self, op: Op, neutral: float) -> None:
        self.op, self.neutral = op, neutral
        self.lines: dict[str, _Found] = {}

    def line(self, name: str) -> _Found:
        if name not in self.lines:
            self.lines[name] = self.of(self.op.value(name).node)
        return self.lines[name]

    def of(self, node: Node) -> _Found:
        match node:
            case Constant(value=int() | float() as value) if value == self.neutral:
                return _Found(None, None)
            case Ref(name=name):
                found = self.line(name)
                return found if found.score is None or found.condition is not None else _Found(None, node)
            case Call(function="where", args=(test, then, other)) if test.dtype.kind == "bool":
                return self.of_choice(node, test, self.of(then), self.of(other))
            case Choose(condition=test, then=then, other=other):
                return self.of_choice(node, test, self.of(then), self.of(other))
            case Call():
                return self.of_call(node)
            case Cast(arg=arg) if node.dtype.kind == "float":
                found = self.of(arg)
                if found.score is not None and found.condition is not None:
                    return replace(found, score=replace(node, arg=found.score))
        return _Found(None, node)

    def of_call(self, node: Call) -> _Found:
        """The mask of a call, which is neutral wherever a masked argument is, if the call propagates that."""
        found = [self.of(arg) for arg in node.args]
        masked = [place for place, arg in enumerate(found) if arg.condition is not None]
        if not masked or not all(self.carries(node, place) for place in masked):
            return _Found(None, node)
        condition = reduce(self.both, (arg.condition for arg in found if arg.condition is not None))
        args = tuple(each.score or arg for each, arg in zip(found, node.args, strict=True))
        others = (arg for place, arg in enumerate(node.args) if place != masked[0])
        exact = found[masked[0]].exact and all(isinstance(other, Constant | Scalar) for other in others)
        return _Found(condition, _simplified(replace(node, args=args)), exact)

    def of_choice(self, node: Call | Choose, test: Node, then: _Found, other: _Found) -> _Found:
        """The mask of a choice between two values."""
        exact = then.exact and other.exact
        if then.score is None and other.score is None:
            return _Found(None, None)
        if other.score is None:
            return _Found(self.both(test, then.condition), then.score, exact)
        if then.score is None:
            return _Found(self.both(self.negated(test), other.condition), other.score, exact)
        if then.condition is None and other.condition is None:
            return _Found(None, node)
        sides = (then.condition or _TRUE, other.condition or _TRUE)
        if isinstance(node, Choose):
            axes = self.axes(*sides)
            condition: Node = Choose(test, *sides, axes, BOOL)
            return _Found(condition, replace(node, then=then.score, other=other.score), exact)
        where = replace(node, args=(test, then.score, other.score))
        score = then.score if then.score == other.score else where
        if other.condition is None:  # true where the test is not
            return _Found(self.call("logical_or", self.negated(test), sides[0]), score, exact)
        if then.condition is None:
            return _Found(self.call("logical_or", test, sides[1]), score, exact)
        first, second = self.both(test, sides[0]), self.both(self.negated(test), sides[1])
        return _Found(self.call("logical_or", first, second), score, exact)

    def carries(self, node: Call, place: int) -> bool:
        """Whether a call is neutral wherever the argument in that place is, and the others are finite."""
        if node.function in ("positive", "detach"):
            return True
        if self.neutral == 0:
            return node.function in ("mul", "neg") or (node.function == "div" and place == 0)
        if node.function in ("mul", "div"):
            return self.is_positive(node.args[1 - place]) and (node.function == "mul" or place == 0)
        return node.function == "add" or (node.function == "sub" and place == 0)

    def is_positive(self, node: Node) -> bool:
        match node:
            case Constant(value=int() | float() as value):
                return 0 < value < float("inf")
            case Scalar(name=name):
                least = next((param.minimum for param in self.op.params if param.name == name), None)
                return least is not None and least > 0
        return False

    def both(self, test: Node, condition: Node | None) -> Node:
        return test if condition is None else self.call("logical_and", test, condition)

    def negated(self, test: Node) -> Node:
        if isinstance(test, Call) and test.function in ("logical_not", "bitwise_not") and test.dtype.kind == "bool":
            return test.args[0]
        return self.call("logical_not", test)

    def call(self, function: str, *args: Node) -> Call:
        return Call(function, args, self.axes(*args), BOOL)

    def axes(self, *nodes: Node) -> tuple[str, ...]:
        found = {axis for node in nodes for axis in node.axes}
        return tuple(axis for axis in self.op.axes if axis in found)


def _simplified(node: Call) -> Node:
    """A sum without 0, or a product without 1, where that leaves the dtype as it is."""
    identity = {"add": 0, "mul": 1}.get(node.function)
    for number, other in (node.args, reversed(node.args)) if identity is not None else ():
        if isinstance(number, Constant) and number.value == identity and other.dtype == node.dtype:
            return other
    return node


_TRUE = Constant(True, BOOL)
