"""Folds comparisons whose outcome is known, and the choices and conjunctions that they decide."""

from __future__ import annotations

import operator

from ..lang.ir import Call, Constant, Index, Node, Size
from ..lang.promotion import constant

_COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


def decided(node: Node) -> Node:
    """Fold a comparison with a known outcome, or a choice or conjunction by a constant; else return the node."""
    match node:
        case Call(
            function="bitwise_and" | "logical_and", args=(Constant(value=True), other) | (other, Constant(value=True))
        ):
            return other
        case Call(function="where", args=(Constant(value=bool() as holds), then, other)):
            return then if holds else other
        case Call(function=name, args=args):
            return outcome(name, args) or node
    return node


def outcome(name: str, args: tuple[Node, ...]) -> Constant | None:
    """The outcome of comparing two constants, such as a fixed exponent and 0, or a position and its bounds, or None."""
    match name, args:
        case "ge" | "lt", (Index(), Constant(value=0)):
            return constant(name == "ge")
        case "ge" | "lt", (Index(axis=axis), Size(over=over)) if over == (axis,):
            return constant(name == "lt")
    constants = [arg.value for arg in args if isinstance(arg, Constant) and isinstance(arg.value, int | float)]
    if name not in _COMPARISONS or len(constants) != 2:
        return None
    return constant(bool(_COMPARISONS[name](*constants)))
