"""Sums single factors of products first if that makes fewer terms."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import reduce
from typing import TypeGuard

from ..lang.ir import Call, Load, Node, Op, Reduce, Ref, Size, Value, walk
from ..lang.rewrite import named
from .contractions import is_product, times
from .empty_sums import outside
from .factors import factors_of
from .structure import name_reductions


def operand_sums_first(op: Op) -> Op:
    """The operator with such factors summed by values of their own; its reductions must have names."""
    values: list[Value] = []
    used = op.names
    for value in op.values:
        values += _sums_first(op, value, value.node, used) if is_float_sum(value.node) else [value]
    return name_reductions(op.of(values))


def means_as_sums(op: Op) -> Op:
    """The operator with named reductions, and means of products of two sides as sums, which are contractions."""
    named = name_reductions(op)

    def divided(node: Node) -> Node:
        if not isinstance(node, Reduce) or node.kind != "mean" or not is_product(named, replace(node, kind="sum")):
            return node
        return rest_of(node, node.over, [node.arg])

    return name_reductions(named.with_nodes(divided))


def is_float_sum(node: Node) -> TypeGuard[Reduce]:
    return isinstance(node, Reduce) and node.kind in ("sum", "mean") and node.dtype.kind == "float"


def _sums_first(op: Op, value: Value, node: Reduce, used: set[str]) -> list[Value]:
    """The sums of single factors that come first, by the order of the summed axes, and `value` with the remaining sum
    or mean.
    """
    sums: list[Value] = []
    factors, over = factors_of(op, node.arg, node.over, False), node.over
    # One factor comes before a product of several, whose sum may need no matmul then, and matmuls come last.
    for (several, by_matmul), axis in itertools.product(((False, False), (True, False), (True, True)), node.over):
        inside = [one for one in factors if axis in one.axes]
        others = [one for one in factors if axis not in one.axes]
        if not inside or not others or (len(inside) > 1) != several:
            continue
        so_far = replace(op, values=(*op.values, *sums))
        first = _summed_alone(reduce(times, inside), others, over)
        total = replace(node, kind="sum", arg=reduce(times, factors), over=over)
        if first.dtype.kind != "float" or not _is_worth_it(so_far, first, total, others, by_matmul):
            continue
        ref = named(first, name_of_sum(first.arg, value.name, 1), used, sums)
        over = tuple(axis for axis in over if axis not in first.over)
        place = factors.index(inside[0])
        others = [outside(so_far, value.name, other, first.over, over) for other in others]
        factors = [*others[:place], ref, *others[place:]]
    if not sums:
        return [value]
    return [*sums, replace(value, node=rest_of(node, over, factors))]


def rest_of(node: Reduce, over: tuple[str, ...], factors: list[Node]) -> Node:
    """A sum or mean of which the axes `over` are left to be summed; partial sums are among the `factors`."""
    found = reduce(times, factors)
    if over:
        found = replace(node, kind="sum", arg=found, over=over)
    return Call("div", (found, Size(node.over)), node.axes, node.dtype) if node.kind == "mean" else found


def _summed_alone(product: Node, others: list[Node], over: tuple[str, ...]) -> Reduce:
    """The sum of `product` along the axes of `over` that the other factors lack."""
    guaranteed = {axis for factor in others for axis in factor.axes}
    alone = tuple(axis for axis in over if axis in product.axes and axis not in guaranteed)
    return summed(product, alone)


def summed(product: Node, over: tuple[str, ...]) -> Reduce:
    return Reduce("sum", product, over, tuple(axis for axis in product.axes if axis not in over), product.dtype)


def _is_worth_it(op: Op, first: Reduce, total: Reduce, others: list[Node], by_matmul: bool) -> bool:
    if by_matmul:
        return is_product(op, first) and not is_product(op, total)
    # Else it would be summed again for each position along the axes that it lacks.
    return not {axis for factor in others for axis in factor.axes} <= {*first.arg.axes}


def name_of_sum(product: Node, line: str, most: int) -> str:
    """A name from the tensors and lines in `product`, if they are at most `most`; else from the line that sums it."""
    names = list(dict.fromkeys(node.name for node in walk(product) if isinstance(node, Load | Ref)))
    return "_".join([*(names if 0 < len(names) <= most else [line]), "sum"])
