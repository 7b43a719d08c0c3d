"""Products that are only added to one another: their terms are those of one sum, in one accumulator."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..contractions import Contraction
from ..ir import Call, Node, Op, Ref, Value, children, rebuild, walk


def sharing_sums(op: Op, contraction: Contraction) -> tuple[Op, Contraction]:
    """The operator and its products, of which those that are only added share a sum.

    It is the line's that adds them, where that does nothing else, as in `y = sum(a * b, K) + sum(c * d, K)`.
    """
    if contraction.groups:  # Each product has scales of its own.
        return op, contraction
    nodes = [value.node for value in op.values] + [result.node for result in op.results]
    uses = Counter(part.name for node in nodes for part in walk(node) if isinstance(part, Ref))
    results = {result.output.name for result in op.results}
    once = {p.name for p in contraction.products if uses[p.name] == 1 and p.name not in results}
    sums: dict[str, str] = {}

    def shared(node: Node) -> Node:
        if names := _added(node, once):
            sums.update(dict.fromkeys(names, names[0]))
            return Ref(names[0], node.axes, node.dtype)
        return rebuild(node, tuple(shared(child) for child in children(node)))

    values: list[Value] = []
    for value in op.values:
        if names := _added(value.node, once):
            sums.update(dict.fromkeys(names, value.name))
            values.append(value)
        else:
            values.append(replace(value, node=shared(value.node)))
    products = tuple(replace(product, sum=sums.get(product.name, product.name)) for product in contraction.products)
    return replace(op, values=tuple(values)), replace(contraction, products=products)


def _added(node: Node, names: set[str]) -> tuple[str, ...]:
    """The names that a node adds up, two or more of those given and nothing else; () where it does not."""
    terms = _terms(node)
    found = tuple(term.name for term in terms if isinstance(term, Ref) and term.name in names)
    return found if len(found) == len(terms) > 1 else ()


def _terms(node: Node) -> list[Node]:
    match node:
        case Call(function="add", args=args):
            return [term for arg in args for term in _terms(arg)]
    return [node]
