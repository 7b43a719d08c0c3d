"""Shares partial sums: sums of the same terms along different axes are reduced once along the axes that they share.

In the gradient of a group norm, `mean(dy * w * x, C, S)` and `sum(dy * r * x, B, S)` both read all of x and dy. With
`first = sum(dy * x, S)`, where w and r have no S, they are `sum(w * first, C) / size(C, S)` and `sum(r * first, B)`:
one pass, and sums over one element per channel of an image.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce

from ..lang.ir import Node, Op, Reduce, Ref, Value
from ..lang.rewrite import named
from .contractions import is_product, times
from .empty_sums import outside
from .factors import factors_of
from .operand_sums import is_float_sum, name_of_sum, rest_of, summed
from .structure import name_reductions

MOST = 2  # most names in the name of a sum
_Terms = frozenset[tuple[Node, int]]  # factors that vary along the shared axes, with their counts


def shared_sums_first(op: Op) -> Op:
    """The operator with shared partial sums as values of their own; unchanged if there are none."""
    named = name_reductions(op)
    nodes = {value.name: value.node for value in named.values if op.fuse}
    sums = {name: node for name, node in nodes.items() if is_float_sum(node) and not is_product(named, node)}
    for axes in _shared_axes(sums.values()):
        parted = {name: split for name, node in sums.items() if (split := _Split.of(named, node, axes))}
        overs: dict[_Terms, set[tuple[str, ...]]] = {}
        for split in parted.values():
            overs.setdefault(split.terms, set()).add(split.node.over)
        shared = {terms for terms, found in overs.items() if len(found) > 1}
        if shared:
            return _summed_first(named, axes, {n: p for n, p in parted.items() if p.terms in shared})
    return op


class _Split:
    """The factors of a sum: those that vary along some axes, whose `product` is summed first, and `others`."""

    def __init__(self, node: Reduce, inside: list[Node], others: list[Node]) -> None:
        self.node, self.product, self.others = node, reduce(times, inside), others
        self.terms: _Terms = frozenset(Counter(inside).items())

    @classmethod
    def of(cls, op: Op, node: Reduce, axes: tuple[str, ...]) -> _Split | None:
        """None where the sum is not along all of these axes, or its factors do not vary along all of them."""
        if not set(axes) <= set(node.over):
            return None
        factors = factors_of(op, node.arg, axes, False)
        inside = [factor for factor in factors if set(axes) & set(factor.axes)]
        if not set(axes) <= {axis for factor in inside for axis in factor.axes}:
            return None
        return cls(node, inside, [factor for factor in factors if factor not in inside])


def _shared_axes(sums: Iterable[Reduce]) -> Iterator[tuple[str, ...]]:
    """The distinct sets of axes that two sums over different axes share."""
    pairs = itertools.combinations(dict.fromkeys(node.over for node in sums), 2)
    found = (tuple(axis for axis in one if axis in other) for one, other in pairs)
    yield from filter(None, dict.fromkeys(found))


def _summed_first(op: Op, axes: tuple[str, ...], parted: dict[str, _Split]) -> Op:
    """The operator with the sums in `parted` computed from shared partial sums along `axes`."""
    values: list[Value] = []
    first: dict[_Terms, Ref] = {}
    used = op.names
    for value in op.values:
        split = parted.get(value.name)
        if split is None:
            values.append(value)
            continue
        if split.terms not in first:
            name = name_of_sum(split.product, value.name, MOST)
            first[split.terms] = named(summed(split.product, axes), name, used, values)
        left = tuple(axis for axis in split.node.over if axis not in axes)
        others = [outside(op, value.name, one, axes, left) for one in split.others]
        values.append(replace(value, node=rest_of(split.node, left, [*others, first[split.terms]])))
    return replace(op, values=tuple(values))
