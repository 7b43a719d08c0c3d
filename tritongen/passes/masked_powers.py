"""Exponentials that are chosen by a condition, as exponentials of masked scores.

Where every sum of exponentials below a maximum leaves out the same of them, as `sum(p * v, N) / sum(p, N)` does with
`p = exp(s - max(s, N)) * keep` and a boolean keep, that is a softmax of `where(keep, s, -inf)`. Kernels then find
the tiles in which no score, or every score, is unmasked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..lang.ir import BOOL, Call, Cast, Constant, Dtype, Node, Op, Reduce, Ref, Value, children
from ..lang.names import fresh
from ..lang.rewrite import rebuild
from .exponentials import maximum_of, resolve
from .masks.scores import mask_of
from .masks.tiles import conjuncts
from .shifts import only_shifts
from .structure import is_extremum, reached, references, with_read_values

_FLOAT = Dtype("float")
_ZERO = Constant(0.0, _FLOAT)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A sum of exponentials below a maximum, of those alone for which all conditions hold, times other factors."""

    conditions: frozenset[Node]
    inside: Node


def with_masked_powers(op: Op) -> Op:
    """The operator, whose reductions have names, with such conditions in the scores."""
    extrema = [value for value in op.values if is_extremum(value.node) and value.node.kind == "max"]
    if not extrema or not any(part.dtype.kind == "bool" for value in op.values for part in value.node.nodes):
        return op
    plain = _with_booleans_chosen(op)
    return next((found for value in extrema if (found := _masked(plain, value)) is not None), op)


def _masked(plain: Op, largest: Value) -> Op | None:
    """The operator, where all sums of exponentials below a maximum leave out some of them; None where they do not."""
    assert isinstance(largest.node, Reduce)
    score = largest.node.arg
    powers = {value.name for value in plain.values if _has_power(plain, value.node, largest)}
    if not powers:
        return None
    sums: dict[str, _Chosen] = {}
    reduced = _sums(plain)
    for value in plain.values:
        node = value.node
        if isinstance(node, Reduce) and powers & {value.name, *reached(plain.refs, references(node), reduced)}:
            mask = mask_of(plain, node.arg, 0.0) if node.kind == "sum" else None
            if mask is None:
                return None
            conditions = (resolve(plain, one) for one in conjuncts(plain, mask.condition))
            sums[value.name] = _Chosen(frozenset(conditions), mask.score)
    if not sums:
        return None
    shared = frozenset[Node].intersection(*(one.conditions for one in sums.values()))
    shared = frozenset(one for one in shared if {*one.axes} & {*largest.node.over} and {*one.axes} <= {*score.axes})
    names = [result.output.name for result in plain.results]
    if not shared or not only_shifts(plain, largest.name, names) or _is_read_beside(plain, powers, sums):
        return None
    return _Rewritten(plain, largest, shared, sums).op


def _sums(op: Op) -> set[str]:
    return {value.name for value in op.values if isinstance(value.node, Reduce)}


def _has_power(op: Op, node: Node, largest: Value) -> bool:
    """Whether an exponential below a maximum is in a node."""
    return any(_is_power(op, part, largest) for part in node.nodes)


def _is_power(op: Op, node: Node, largest: Value) -> bool:
    if not isinstance(node, Call) or node.function != "exp":
        return False
    difference = resolve(op, node.args[0])
    if not isinstance(difference, Call) or difference.function != "sub":
        return False
    return maximum_of(op, *difference.args) == largest


def _is_read_beside(op: Op, powers: set[str], sums: Iterable[str]) -> bool:
    """Whether results read exponentials otherwise than by sums."""
    refs = {name: of for name, of in op.refs.items() if name not in {*sums}}
    return bool(powers - {*sums} & reached(refs, [result.output.name for result in op.results], ()))


def _with_booleans_chosen(op: Op) -> Op:
    """The operator, with products by booleans as choices."""

    def chosen(node: Node) -> Node:
        node = rebuild(node, tuple(map(chosen, children(node))))
        match node:
            case Call(function="mul", args=(left, right)) if node.dtype.kind == "float":
                for one, other in ((left, right), (right, left)):
                    if one.dtype.kind == "float" and (test := _boolean(op, other)) is not None:
                        return Call("where", (test, one, _ZERO), node.axes, node.dtype)
        return node

    return op.with_nodes(chosen)


def _boolean(op: Op, node: Node) -> Node | None:
    """The condition that a node is 1 for, and else 0."""
    if node.dtype.kind == "bool":
        return node
    match resolve(op, node):
        case Cast(arg=arg) if arg.dtype.kind == "bool":
            return arg
        case Call(function="where", args=(test, Constant(value=1), Constant(value=0))):
            return test
    return None


class _Rewritten:
    def __init__(self, op: Op, largest: Value, shared: frozenset[Node], sums: dict[str, _Chosen]) -> None:
        assert isinstance(largest.node, Reduce)
        self.given, self.shared = op, sorted(shared, key=repr)
        self.taken = op.names
        self.values: list[Value] = []
        self.score = largest.node.arg
        mask = self.both(self.shared)
        self.largest = largest
        name = fresh("masked" if not isinstance(self.score, Ref) else f"{self.score.name}_masked", self.taken)
        masked = Call("where", (mask, self.score, Constant(-math.inf, _FLOAT)), self.score.axes, self.score.dtype)
        self.masked = Ref(name, masked.axes, masked.dtype)
        for value in op.values:
            node = value.node
            if value.name == largest.name:
                self.values.append(Value(name, masked, ""))
                node = replace(largest.node, arg=self.masked)
            elif value.name in sums:
                assert isinstance(node, Reduce)
                node = replace(node, arg=self.summed(sums[value.name]))
            self.values.append(value.of(node))
        self.op = with_read_values(replace(op, values=tuple(self.values)))

    def both(self, conditions: Iterable[Node]) -> Node:
        first, *others = conditions
        for other in others:
            found = {*first.axes, *other.axes}
            axes = tuple(axis for axis in self.given.axes if axis in found)
            first = Call("logical_and", (first, other), axes, BOOL)
        return first

    def summed(self, chosen: _Chosen) -> Node:
        """What is summed, without the conditions that scores are masked by."""
        inside = self.below(chosen.inside)
        rest = sorted(chosen.conditions - {*self.shared}, key=repr)
        if not rest:
            return inside
        return Call("where", (self.both(rest), inside, _ZERO), inside.axes, inside.dtype)

    def below(self, node: Node) -> Node:
        """A node with exponentials of masked scores, where it has those below the maximum."""
        if isinstance(node, Ref):
            inner = self.given.value(node.name).node
            if isinstance(inner, Reduce):
                return node
            found = self.below(inner)
            return node if found is inner else found
        if _is_power(self.given, node, self.largest):
            assert isinstance(node, Call)
            difference = resolve(self.given, node.args[0])
            assert isinstance(difference, Call)
            return rebuild(node, (rebuild(difference, (self.masked, difference.args[1])),))
        return rebuild(node, tuple(map(self.below, children(node))))
