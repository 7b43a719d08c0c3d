"""Makes sums of exp(s - max(s)) NaN in fully masked rows.

Kernels that stream scores subtract 0 instead of an infinite maximum, as logsumexp does, and sum up to 0 in such a row.
A quotient of two such sums, as in softmax, is NaN by itself. Other sums are set to NaN where the maximum is infinite,
as the math of exp(s - max(s)) says.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..lang.ir import BOOL, Call, Cast, Constant, Node, Op, Reduce, Ref, Value, children
from ..lang.names import fresh
from ..lang.rewrite import named, replaced
from .contractions import is_product
from .exponentials import exponent_of, maximum_of, resolve
from .masks.scores import mask_of
from .structure import name_reductions, reached, references


def with_lost_rows(op: Op) -> Op:
    """The operator with sums of exponentials of masked scores NaN where their math says so."""
    if not any(isinstance(node, Call) and node.function == "exp" for node in op.nodes):
        return op
    named = found = name_reductions(op)
    for value in named.values:
        if isinstance(value.node, Reduce) and value.node.kind == "max" and _is_masked(found, value.node):
            found = _without_keys(found, value)
    return op if found is named else found


def _is_masked(op: Op, largest: Reduce) -> bool:
    """Whether a maximum is over scores from a matmul that a mask sets to -inf."""
    if mask_of(op, largest.arg, -math.inf) is None:
        return False
    return any(is_product(op, op.value(name).node) for name in reached(op.refs, references(largest), ()))


class _Powers:
    """The power of exponentials below a maximum that is a factor of each value; None if they are in it otherwise.

    Their sums may be known to be NaN in fully masked rows: their power is 0 then.
    """

    def __init__(self, op: Op, largest: Value, sums_are_known: bool) -> None:
        self.op, self.largest, self.sums_are_known = op, largest, sums_are_known
        self.known: dict[str, int | None] = {}
        for value in op.values:
            self.known[value.name] = self.of(value.node)
        self.of_results = {self.of(result.node) for result in op.results}

    def of(self, node: Node) -> int | None:
        match node:
            case Ref(name=name):
                return self.known[name]
            case Call(function="exp") if self.is_power(node):
                return 1
            case Reduce(kind="sum" | "mean", arg=arg):
                power = self.of(arg)
                return 0 if power and self.sums_are_known else power
            case Cast(arg=arg):
                return self.of(arg)
            case Call(function="mul" | "div" as function, args=(one, other)):
                left, right = self.of(one), self.of(other)
                return None if left is None or right is None else left + right * (1 if function == "mul" else -1)
            case Call(function="where", args=(test, *args)) if self.of(test) == 0:
                found = {self.of(arg) for arg in args if not (isinstance(arg, Constant) and arg.value == 0)}
                return found.pop() if len(found) == 1 else None
        return None if any(self.of(child) != 0 for child in children(node)) else 0

    def is_power(self, node: Node) -> bool:
        found = exponent_of(node)
        if found is None or maximum_of(self.op, *found) != self.largest:
            return False
        return isinstance(resolve(self.op, found[1]), Reduce)


def _without_keys(op: Op, largest: Value) -> Op:
    """The operator with NaN for the sums of exponentials below a maximum where that is infinite; unchanged if results
    have these sums only divided by one another, or have exponentials that no sum reduces.
    """
    powers = _Powers(op, largest, sums_are_known=False)
    if powers.of_results == {0} or {*_Powers(op, largest, sums_are_known=True).known.values()} - {0, 1}:
        return op
    ref, used = largest.ref, op.names
    isinf = Call("isinf", (ref,), ref.axes, BOOL)
    finite = Call("where", (isinf, Constant(0.0, ref.dtype), ref), ref.axes, ref.dtype)
    shift = Value(fresh(f"{largest.name}_shift", used), finite, "")

    def below(inner: Node) -> Node:
        match inner:
            case Call(args=(Call(args=(x, _)) as power,)) if powers.is_power(inner):
                return replace(inner, args=(replace(power, args=(x, shift.ref)),))
        return inner

    values: list[Value] = []
    for value in op.values:
        node = replaced(value.node, below)
        if isinstance(node, Reduce) and powers.known[value.name]:  # Others are NaN where these are.
            sum = named(node, f"{value.name}_of_keys", used, values)
            node = Call("where", (isinf, Constant(math.nan, node.dtype), sum), node.axes, node.dtype)
        values += [value.of(node), shift] if value == largest else [value.of(node)]
    return op.of(values)
