"""Sums along different axes of the same terms, which are summed along the axes that they share first, once for all.

In the gradient of a group norm, `mean(dy * w * x, C, S)` and `sum(dy * r * x, B, S)` both walk over x and dy. With
`first = sum(dy * x, S)`, where w and r have no S, they are `sum(w * first, C) / size(C, S)` and `sum(r * first, B)`:
one walk, and sums of what has one element per channel of an image.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from ..lang.ir import Call, Load, Node, Op, Reduce, Ref, Size, Value, walk
from ..lang.rewrite import named
from .contractions import is_product, times
from .empty_sums import outside
from .factors import factors_of
from .structure import name_reductions

MOST = 2  # names that the name of a sum is made of
_Terms = frozenset[tuple[Node, int]]  # factors that vary along the shared axes, each with how often it is there


def shared_sums_first(op: Op) -> Op:
    """The operator, in which such sums are of values of their own; as it is where there are none."""
    named = name_reductions(op)
    sums = [value for value in named.values if op.fuse and _is_sum(named, value)]
    for axes in _shared_axes(sums):
        parted = {value.name: split for value in sums if (split := _Split.of(named, value, axes))}
        overs: dict[_Terms, set[tuple[str, ...]]] = {}
        for value in sums:
            if value.name in parted:
                overs.setdefault(parted[value.name].terms, set()).add(_over(value))
        shared = {terms for terms, found in overs.items() if len(found) > 1}
        if shared:
            return _summed_first(named, axes, {n: p for n, p in parted.items() if p.terms in shared})
    return op


class _Split:
    """The factors of a sum: those that vary along some axes, whose product is summed first, and others."""

    def __init__(self, inside: list[Node], others: list[Node]) -> None:
        self.product, self.others = reduce(times, inside), others
        self.terms: _Terms = frozenset(Counter(inside).items())

    @classmethod
    def of(cls, op: Op, value: Value, axes: tuple[str, ...]) -> _Split | None:
        """None where the sum is not along all of these axes, or its factors do not vary along all of them."""
        assert isinstance(value.node, Reduce)
        if not set(axes) <= set(value.node.over):
            return None
        factors = factors_of(op, value.node.arg, axes, False)
        inside = [factor for factor in factors if set(axes) & set(factor.axes)]
        if not set(axes) <= {axis for factor in inside for axis in factor.axes}:
            return None
        return cls(inside, [factor for factor in factors if factor not in inside])


def _is_sum(op: Op, value: Value) -> bool:
    node = value.node
    is_float_sum = isinstance(node, Reduce) and node.kind in ("sum", "mean") and node.dtype.kind == "float"
    return is_float_sum and not is_product(op, node)


def _over(value: Value) -> tuple[str, ...]:
    assert isinstance(value.node, Reduce)
    return value.node.over


def _shared_axes(sums: list[Value]) -> Iterator[tuple[str, ...]]:
    """The axes that sums along different ones share, each once."""
    pairs = itertools.combinations(dict.fromkeys(map(_over, sums)), 2)
    found = (tuple(axis for axis in one if axis in other) for one, other in pairs)
    yield from filter(None, dict.fromkeys(found))


def _summed_first(op: Op, axes: tuple[str, ...], parted: dict[str, _Split]) -> Op:
    """The operator, with the sums along some axes that these sums are made of."""
    values: list[Value] = []
    first: dict[_Terms, Ref] = {}
    taken = op.names
    for value in op.values:
        split = parted.get(value.name)
        if split is None:
            values.append(value)
            continue
        if split.terms not in first:
            product = split.product
            left = tuple(axis for axis in product.axes if axis not in axes)
            node = Reduce("sum", product, axes, left, product.dtype)
            first[split.terms] = named(node, _called(product, value.name), taken, values)
        left = tuple(axis for axis in _over(value) if axis not in axes)
        others = [outside(op, value.name, one, axes, left) for one in split.others]
        values.append(replace(value, node=_rest(value, axes, [*others, first[split.terms]])))
    return replace(op, values=tuple(values))


def _rest(value: Value, axes: tuple[str, ...], factors: list[Node]) -> Node:
    """A sum or mean of what is summed along some axes already."""
    node = value.node
    assert isinstance(node, Reduce)
    over = tuple(axis for axis in node.over if axis not in axes)
    found: Node = reduce(times, factors)
    if over:
        found = replace(node, kind="sum", arg=found, over=over)
    return Call("div", (found, Size(node.over)), node.axes, node.dtype) if node.kind == "mean" else found


def _called(product: Node, line: str) -> str:
    """The name of a sum: by the tensors and lines that it is of, unless these are too many."""
    names = list(dict.fromkeys(part.name for part in walk(product) if isinstance(part, Load | Ref)))
    return "_".join([*(names if len(names) <= MOST else [line]), "sum"])
