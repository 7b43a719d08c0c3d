"""Rewrites exponentials of scores minus their lse as exponentials of scores minus their maximum, divided by the sum.

`exp(s - logsumexp(s, N))` is `exp(s - max(s, N)) / sum(exp(s - max(s, N)), N)`, which needs no lse. If the lse has
further uses, as in a loss next to attention, no step has to store it before another iterates over the scores again.
"""

from __future__ import annotations

from ..lang.ir import Call, Node, Op, Reduce, Ref, children
from ..lang.rewrite import rebuild
from .contractions import applied
from .exponentials import maximum_of, powers_summed, resolve
from .structure import reached, references


def with_divided_powers(op: Op) -> Op:
    """The operator with such exponentials divided by their sum; its reductions must have names."""

    def divided(node: Node) -> Node:
        if Call not in node.kinds:
            return node
        node = rebuild(node, tuple(map(divided, children(node))))
        return _divided(op, node) or node if isinstance(node, Call) and node.function == "exp" else node

    return op.with_nodes(divided)


def _divided(op: Op, power: Call) -> Node | None:
    match resolve(op, power.args[0]):
        case Call(function="sub", args=(score, less)) if {*less.axes} < {*score.axes} and not _is_shift(op, less):
            total = _total(op, score, less)
            if total is None:
                return None
            own, shift = total
            divisor = _divisor(op, less, own, shift)
            function, by = ("mul", power_below(shift, less)) if divisor is None else ("div", divisor)
            return applied(function, power_below(score, shift), by)
    return None


def divisor_of(op: Op, score: Node, less: Node) -> Node | None:
    """The divisor that turns `exp(score - max)` into `exp(score - less)`; None if `less` is not the lse."""
    total = _total(op, score, less)
    return _divisor(op, less, *total) if total else None


def power_below(score: Node, less: Node) -> Call:
    below = applied("sub", score, less)
    return Call("exp", (below,), below.axes, below.dtype)


def _is_shift(op: Op, less: Node) -> bool:
    node = resolve(op, less)
    return isinstance(node, Reduce)


def _total(op: Op, score: Node, less: Node) -> tuple[Ref, Node] | None:
    """The sum of exponentials of `score` that `less` is computed from, and the maximum that they subtract."""
    inside = reached(op.refs, references(less), ())
    for value in op.values:
        summed = powers_summed(op, value) if value.name in inside else None
        if summed and summed[0] == score and maximum_of(op, *summed):
            return value.ref, summed[1]
    return None


def _divisor(op: Op, less: Node, total: Ref, shift: Node) -> Node | None:
    """The divisor of exponentials shifted by `shift`, if `less` is `log(total) + shift`: `total`, plus an exponential
    for each `logaddexp`, as of an attention sink; None for any other `less`.
    """
    match resolve(op, less):
        case Call(function="add", args=(left, right)):
            log, other = (left, right) if right == shift else (right, left)
            is_total = resolve(op, log) == Call("log", (total,), total.axes, total.dtype)
            return total if is_total and other == shift else None
        case Call(function="logaddexp", args=(left, right)):
            for one, other in ((left, right), (right, left)):
                if (divisor := _divisor(op, one, total, shift)) is not None:
                    return applied("add", divisor, power_below(other, shift))
    return None
