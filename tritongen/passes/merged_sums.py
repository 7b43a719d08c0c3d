"""Merges sums of products that are only added to one another into one sum, with one accumulator."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..lang.ir import Call, Choose, Constant, Node, Op, Ref, Value, children, walk
from ..lang.rewrite import named, rebuild
from .contractions import Contraction


def sharing_sums(op: Op, contraction: Contraction) -> tuple[Op, Contraction]:
    """The operator and its contraction, in which products that are only added to each other share a named sum.

    The sum is the line that adds them if it does nothing else, as in `y = sum(a * b, K) + sum(c * d, K)`. A term may be
    0 for some params, which adds nothing.
    """
    if contraction.groups:  # Each product has scales of its own.
        return op, contraction
    nodes = [value.node for value in op.values] + [result.node for result in op.results]
    uses = Counter(inner.name for node in nodes for inner in walk(node) if isinstance(inner, Ref))
    results = {result.output.name for result in op.results}
    once = {p.name for p in contraction.products if uses[p.name] == 1 and p.name not in results}
    names = op.names
    sums: dict[str, str] = {}
    values: list[Value] = []

    def summed(node: Node, line: str) -> Node:
        """The node with each sum of products in it named as a value of its own."""
        if not (terms := _added(node, once)):
            return rebuild(node, tuple(summed(child, line) for child in children(node)))
        ref = named(node, f"{line}_sums", names, values)
        sums.update(dict.fromkeys(terms, ref.name))
        return ref

    for value in op.values:
        if terms := _added(value.node, once):
            sums.update(dict.fromkeys(terms, value.name))
            values.append(value)
        else:
            node = summed(value.node, value.name)
            values.append(replace(value, node=node))
    products = tuple(replace(product, sum=sums.get(product.name, product.name)) for product in contraction.products)
    return replace(op, values=tuple(values)), replace(contraction, products=products)


def _added(node: Node, names: set[str]) -> tuple[str, ...]:
    """The names that a node adds up, if all its terms are in `names`; () if not, or if the node is a single term."""
    terms = _terms(node)
    found = tuple(term.name for term in terms if isinstance(term, Ref) and term.name in names)
    return found if len(found) == len(terms) and terms != [node] else ()


def _terms(node: Node) -> list[Node]:
    match node:
        case Call(function="add", args=args):
            return [term for arg in args for term in _terms(arg)]
        case Choose(then=term, other=Constant(value=0)) | Choose(then=Constant(value=0), other=term):
            return _terms(term)
    return [node]
