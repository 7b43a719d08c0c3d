"""Exponentials below the logarithm of their sum, as exponentials below their maximum, divided.

`exp(s - logsumexp(s, N))` is `exp(s - max(s, N)) / sum(exp(s - max(s, N)), N)`, which needs no lse. Where that has uses
of its own, as in a loss beside attention, a step need not store it before another goes along the scores again.
"""

from __future__ import annotations

from ..lang.ir import Call, Node, Op, Reduce, Ref, children
from ..lang.rewrite import rebuild
from .contractions import applied
from .exponentials import maximum_of, powers_summed, resolve
from .structure import reached, references


def with_divided_powers(op: Op) -> Op:
    """The operator, whose reductions have names, with such exponentials divided."""

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
    """What exponentials of scores below their maximum are divided by, where they are below `less`; None where that is
    not the logarithm of their sum.
    """
    total = _total(op, score, less)
    return _divisor(op, less, *total) if total else None


def power_below(score: Node, less: Node) -> Call:
    below = applied("sub", score, less)
    return Call("exp", (below,), below.axes, below.dtype)


def _is_shift(op: Op, less: Node) -> bool:
    node = resolve(op, less)
    return isinstance(node, Reduce)


def _total(op: Op, score: Node, less: Node) -> tuple[Ref, Node] | None:
    """The sum of exponentials of scores of which what is subtracted from them is made, and what these are below."""
    inside = reached(op.refs, references(less), ())
    for value in op.values:
        summed = powers_summed(op, value) if value.name in inside else None
        if summed and summed[0] == score and maximum_of(op, *summed):
            return value.ref, summed[1]
    return None


def _divisor(op: Op, less: Node, total: Ref, shift: Node) -> Node | None:
    """What exponentials below a shift are divided by, where they are to be below its logarithm plus the shift: their
    sum, or that and those of further values, as of a sink.
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
