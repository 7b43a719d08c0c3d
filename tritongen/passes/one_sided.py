"""Sums over axes that one factor alone has: that factor is summed first, beside fewer axes.

`sum(x * w, K, N)` is `sum(x * sum(w, N), K)` where x has no N.
"""

from __future__ import annotations

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
        node = value.node
        if isinstance(node, Reduce) and node.kind == "sum" and node.dtype.kind == "float":
            factors = factors_of(op, node.arg, node.over, False)
            own = []
            for place, factor in enumerate(factors):
                if alone := _alone(node, factor, [*factors[:place], *factors[place + 1 :]]):
                    name = fresh(f"{_called(factor, value.name)}_sum", taken)
                    axes = tuple(axis for axis in factor.axes if axis not in alone)
                    own.append(Value(name, Reduce("sum", factor, alone, axes, factor.dtype), ""))
                    factors[place] = Ref(name, axes, factor.dtype)
            if own:
                values += own
                summed = {axis for each in own if isinstance(each.node, Reduce) for axis in each.node.over}
                over = tuple(axis for axis in node.over if axis not in summed)
                value = replace(value, node=replace(node, arg=reduce(times, factors), over=over))
        values.append(value)
    return replace(op, values=tuple(values))


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
