"""Conditions of a gradient as values of the forward, which may save them in one byte per element.

Otherwise `where(cumsum(p, N) < limit, g, 0)` would read the sums, four bytes each, and all else that it compares.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace

from ..lang.ir import Call, Load, Node, Op, Ref, Take, Value, children, walk
from ..lang.rewrite import replaced
from ..passes.contractions import is_product
from ..passes.structure import below, is_extremum
from .sharing import values_in_order


def with_conditions(
    op: Op, nodes: Iterable[Node], fresh: Callable[[str], str], but: Container[str]
) -> tuple[Op, tuple[str, ...]]:
    """The operator with the conditions in `nodes` of its gradient as values, and their names, except those in `but`.

    Comparisons with a maximum or minimum, and operators with matmuls, are left to the save policy. Conditions with
    fewer axes than the largest value are left out, because one bool per row costs next to nothing.
    """
    if any(is_product(op, node) for node in op.nodes):
        return op, ()
    most = max(len(value.node.axes) for value in op.values)
    every = (condition for condition in _conditions(nodes) if len(condition.axes) == most)
    conditions = dict.fromkeys(condition for condition in every if _is_known(op, condition))
    names = {one: one.name if isinstance(one, Ref) else fresh(f"{_first(one)}_condition") for one in conditions}
    names = {node: name for node, name in names.items() if name not in but}
    own: dict[Node, str] = {node: name for node, name in names.items() if not isinstance(node, Ref)}
    values = [replace(value, node=with_names(value.node, own)) for value in op.values]
    found = {value.name: value for value in (*values, *(Value(name, node, "") for node, name in own.items()))}
    return replace(op, values=values_in_order(found)) if own else op, tuple(names.values())


def with_names(node: Node, names: Mapping[Node, str]) -> Node:
    """The node with subexpressions replaced by references to the values in `names`."""
    return replaced(node, lambda inner: Ref(names[inner], inner.axes, inner.dtype) if inner in names else inner)


def _conditions(nodes: Iterable[Node]) -> list[Node]:
    """The largest boolean subexpressions that are calls or named values and have axes, each once."""
    found: dict[Node, bool] = {}

    def visit(node: Node) -> None:
        if node not in found:
            found[node] = isinstance(node, Call | Ref) and node.dtype.kind == "bool" and bool(node.axes)
            for child in () if found[node] else children(node):
                visit(child)

    for node in nodes:
        visit(node)
    return [node for node, is_condition in found.items() if is_condition]


def _is_known(op: Op, condition: Node) -> bool:
    """Whether a condition reads only inputs and values of the forward, at least one, elementwise and no extrema."""
    own = {tensor.name for tensor in op.inputs}
    nodes = below(op, condition)
    read = [node for node in nodes if isinstance(node, Load)]
    moved = any(isinstance(node, Take) or (isinstance(node, Load) and node.at) for node in nodes)
    return bool(read) and {load.name for load in read} <= own and not moved and not any(map(is_extremum, nodes))


def _first(condition: Node) -> str:
    return next(node.name for node in walk(condition) if isinstance(node, Ref | Load))
