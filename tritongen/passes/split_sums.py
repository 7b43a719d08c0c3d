"""Sums of products of which one factor adds up exponentials below several maxima, or others: a sum for each maximum.

`sum((softmax(s, N) - b * softmax(t, N)) * v, N)` is `sum(softmax(s, N) * v, N) - b * sum(softmax(t, N) * v, N)`. A
kernel that streams N takes exponentials below one running maximum, and so computes either sum, but not both as one. Nor
does it know what divides a softmax before it has gone along N, so `sum((softmax(s, N) + sigmoid(s)) * v, N)` is two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..lang.ir import Call, Node, Op, Reduce, Ref, Value
from ..lang.rewrite import named
from .contractions import applied, dot_of, is_product, product_of
from .empty_sums import possibly_empty, undefined_over
from .factors import flat_product, unless_empty
from .rounded_weights import weights_before_casts
from .structure import is_extremum, reached, references


def sums_by_maximum(op: Op) -> Op:
    """The operator, whose reductions have names, with such sums split."""
    if not any(is_extremum(value.node) for value in op.values):
        return op
    op = weights_before_casts(op)
    values: list[Value] = []
    taken = op.names
    for value in op.values:
        if isinstance(value.node, Reduce) and value.node.dtype.kind == "float" and is_product(op, value.node):
            values += _Split(op, value, value.node, taken).values()
        else:
            values.append(value)
    return replace(op, values=tuple(values))


class _Split:
    def __init__(self, op: Op, value: Value, node: Reduce, taken: set[str]) -> None:
        self.op, self.value, self.node, self.taken = op, value, node, taken
        self.refs = op.refs
        extrema = ((one.name, one.node) for one in op.values if is_extremum(one.node) and one.node.kind == "max")
        self.largest = {name for name, largest in extrema if set(largest.over) <= set(node.over)}

    def values(self) -> list[Value]:
        """The sum, and those that it is made of before it; it alone where it is below one maximum, or none."""
        groups: dict[frozenset[str], list[tuple[bool, Node]]] = {}
        for is_less, term in self.terms(self.node.arg):
            groups.setdefault(self.maxima(term), []).append((is_less, term))
        if len(groups) < 2 or any(len(maxima) > 1 for maxima in groups):
            return [self.value]
        sums: list[Value] = []
        total: Node | None = None
        for terms in groups.values():
            is_less = terms[0][0]
            node = terms[0][1]
            for other_is_less, term in terms[1:]:
                node = applied("sub" if other_is_less != is_less else "add", node, term)
            factors = [self.defined(factor, node.axes) for factor in flat_product(node)]
            inside = tuple(factor for factor in factors if set(factor.axes) & set(self.node.over))
            outside = tuple(factor for factor in factors if factor not in inside)
            dot = dot_of(self.node, inside)
            part = product_of((*outside, named(dot, f"{self.value.name}_summand", self.taken, sums)))
            if total is None:
                total = Call("neg", (part,), part.axes, part.dtype) if is_less else part
            else:
                total = applied("sub" if is_less else "add", total, part)
        assert isinstance(total, Call)
        return [*sums, replace(self.value, node=replace(total, axes=self.node.axes))]

    def defined(self, factor: Node, axes: tuple[str, ...]) -> Node:
        """A factor of a term with some axes. It is 1 where an axis of the sum that the term lacks is empty, if it may
        be undefined there: gradients multiply it by a sum along that axis, which is 0.
        """
        lacking = possibly_empty(self.op, tuple(axis for axis in self.node.axes if axis not in axes))
        if not lacking or not undefined_over(self.op, factor):
            return factor
        return unless_empty(factor, *(axis for axis in self.op.axes if axis in lacking))

    def terms(self, node: Node) -> Iterator[tuple[bool, Node]]:
        """What a node adds up, and whether it subtracts it, as far as that is below any maximum."""
        if not self.maxima(node):
            yield False, node
            return
        match node:
            case Ref(name=name):
                found = list(self.terms(self.op.value(name).node))
                yield from found if len(found) > 1 else [(False, node)]
            case Call(function="add" | "sub" as function, args=(left, right)):
                yield from self.terms(left)
                yield from ((is_less != (function == "sub"), term) for is_less, term in self.terms(right))
            case Call(function="neg", args=(arg,)):
                yield from ((not is_less, term) for is_less, term in self.terms(arg))
            case Call(function="mul", args=(left, right)):
                for is_less, term in self.terms(left):
                    yield from ((is_less != less, applied("mul", term, other)) for less, other in self.terms(right))
            case Call(function="div", args=(left, right)):
                yield from ((is_less, applied("div", term, right)) for is_less, term in self.terms(left))
            case _:
                yield False, node

    def maxima(self, node: Node) -> frozenset[str]:
        """The maxima along what is summed that a node is made of."""
        return frozenset(reached(self.refs, references(node), ()) & self.largest)
