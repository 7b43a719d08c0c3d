"""Sums over axes that only some factors have: these factors are summed first.

`sum(x * w, K, N)` is `sum(x * sum(w, N), K)` where x has no N, and `sum(x * w * u, K, N)`, where u has no K, is
`sum(sum(x * w, K) * u, N)`.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import reduce

from ..lang.ir import Load, Node, Op, Reduce, Ref, Value, fresh, walk
from .contractions import times
from .factors import factors_of


def one_sided_sums_first(op: Op) -> Op:
    """The operator, whose reductions have names, with such factors summed by values of their own."""
    values: list[Value] = []
    taken = op.names
    for value in op.values:
        if isinstance(value.node, Reduce) and value.node.kind == "sum" and value.node.dtype.kind == "float":
            values += _sums_first(op, value, value.node, taken)
        else:
            values.append(value)
    return replace(op, values=tuple(values))


def _sums_first(op: Op, value: Value, node: Reduce, taken: set[str]) -> list[Value]:
    """The sums of a sum's factors that come first, and the sum of what is left."""
    factors = factors_of(op, node.arg, node.over, False)
    sums: list[Value] = []
    summed: set[str] = set()
    # One factor comes before a product of several, whose sum may need no matmul then.
    for is_product, axis in itertools.product((False, True), node.over):
        inside = [factor for factor in factors if axis in factor.axes]
        others = [factor for factor in factors if axis not in factor.axes]
        if not inside or (len(inside) > 1) != is_product:
            continue
        product = reduce(times, inside)
        if alone := _alone(node, product, others):
            name = fresh(f"{_called(product, value.name)}_sum", taken)
            axes = tuple(axis for axis in product.axes if axis not in alone)
            sums.append(Value(name, Reduce("sum", product, alone, axes, product.dtype), ""))
            summed.update(alone)
            first = factors.index(inside[0])
            factors = others
            factors.insert(first, Ref(name, axes, product.dtype))
    if not sums:
        return [value]
    over = tuple(axis for axis in node.over if axis not in summed)
    return [*sums, replace(value, node=replace(node, arg=reduce(times, factors), over=over))]


def _alone(node: Reduce, factor: Node, others: list[Node]) -> tuple[str, ...]:
    """The summed axes that only this factor has, where it is worth to sum it first.

    That is where others have axes that it lacks, so that its sum is not made for each of them, and are summed with it.
    """
    axes = {axis for other in others for axis in other.axes}
    alone = tuple(axis for axis in node.over if axis in factor.axes and axis not in axes)
    shared = axes & set(factor.axes) & set(node.over)
    is_float = factor.dtype.kind == "float"
    return alone if is_float and shared and axes - set(factor.axes) - set(node.over) else ()


def _called(factor: Node, line: str) -> str:
    """The name of the only tensor or line that a factor is made of, or that of the line that sums it."""
    names = list(dict.fromkeys(part.name for part in walk(factor) if isinstance(part, Load | Ref)))
    return names[0] if len(names) == 1 else line
