"""Sums of products, whose factors are summed first where that makes fewer terms.

`sum(x * w, K, N)` is `sum(x * sum(w, N), K)` where x has no N, `sum(x * w * u, K, N)`, where u has no K, is
`sum(sum(x * w, K) * u, N)`, and `sum(x * w, K)`, where w has no K and an axis that x lacks, is `sum(x, K) * w`.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import reduce

from ..lang.ir import Call, Load, Node, Op, Reduce, Ref, Size, Value, fresh, walk
from .contractions import is_product, times
from .empty_sums import outside
from .factors import factors_of


def one_sided_sums_first(op: Op) -> Op:
    """The operator, whose reductions have names, with such factors summed by values of their own."""
    values: list[Value] = []
    taken = op.names
    for value in op.values:
        if isinstance(value.node, Reduce) and value.node.kind in ("sum", "mean") and value.node.dtype.kind == "float":
            values += _sums_first(op, value, value.node, taken)
        else:
            values.append(value)
    return replace(op, values=tuple(values))


def _sums_first(op: Op, value: Value, node: Reduce, taken: set[str]) -> list[Value]:
    """The sums of a sum's or mean's factors that come first, and what is left of it."""
    factors = factors_of(op, node.arg, node.over, False)
    sums: list[Value] = []
    over = node.over
    # One factor comes before a product of several, whose sum may need no matmul then, and matmuls come last.
    for (several, by_matmul), axis in itertools.product(((False, False), (True, False), (True, True)), node.over):
        inside = [factor for factor in factors if axis in factor.axes]
        others = [factor for factor in factors if axis not in factor.axes]
        if not inside or not others or (len(inside) > 1) != several:
            continue
        product, summed = reduce(times, inside), {axis for factor in others for axis in factor.axes}
        so_far = replace(op, values=(*op.values, *sums))
        alone = tuple(axis for axis in over if axis in product.axes and axis not in summed)
        first = Reduce("sum", product, alone, tuple(axis for axis in product.axes if axis not in alone), product.dtype)
        if by_matmul:
            whole = replace(node, kind="sum", arg=reduce(times, factors), over=over)
            is_worth_it = is_product(so_far, first) and not is_product(so_far, whole)
        else:  # So that it is not summed for each of the axes that it lacks.
            is_worth_it = bool(summed - {*product.axes})
        if product.dtype.kind == "float" and is_worth_it:
            name = fresh(f"{_called(product, value.name)}_sum", taken)
            sums.append(Value(name, first, ""))
            over = tuple(axis for axis in over if axis not in alone)
            place = factors.index(inside[0])
            others = [outside(so_far, value.name, other, alone, over) for other in others]
            factors = [*others[:place], Ref(name, first.axes, product.dtype), *others[place:]]
    if not sums:
        return [value]
    left = reduce(times, factors)
    if over:
        left = replace(node, kind="sum", arg=left, over=over)
    if node.kind == "mean":
        if over:
            sums.append(Value(fresh(f"{value.name}_sum", taken), left, ""))
            left = Ref(sums[-1].name, node.axes, node.dtype)
        left = Call("div", (left, Size(node.over)), node.axes, node.dtype)
    return [*sums, replace(value, node=left)]


def _called(factor: Node, line: str) -> str:
    """The name of the only tensor or line that a factor is made of, or that of the line that sums it."""
    names = list(dict.fromkeys(part.name for part in walk(factor) if isinstance(part, Load | Ref)))
    return names[0] if len(names) == 1 else line
