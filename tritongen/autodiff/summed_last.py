"""Rewrites choices between sums as sums of choices."""

from __future__ import annotations

from collections.abc import Container, Iterator

from ..lang.ir import Choose, Node, Op, Reduce, children
from ..passes.contractions import is_product
from .algebra import Algebra
from .terms import ZERO, Term, factors, terms


def summed_last(node: Node, op: Op, algebra: Algebra, rows: Container[tuple[str, ...]]) -> Node:
    """The node with sums of what is chosen in place of choices of sums, where those are not along the axes of `rows`.

    A kernel adds to such sums while it maps rows, and adds nothing where there is nothing to add. Matmuls stay as they
    are, each by itself.
    """
    if not {Choose, Reduce} <= node.kinds:
        return node
    nodes = [*_outside_sums(node)]
    overs = {part.over for part in nodes if isinstance(part, Reduce) and part.over not in rows}
    chosen = any(isinstance(part, Choose) for part in nodes)
    if not chosen or len(overs) != 1 or any(is_product(op, part) for part in nodes):
        return node
    (over,) = overs
    summand = _summand(node, over, algebra)
    return node if summand is None else algebra.reduce_sum(summand, over)


def _summand(node: Node, over: tuple[str, ...], algebra: Algebra) -> Node | None:
    """What a node is the sum of along some axes, if it is one."""
    match node:
        case Reduce(kind="sum", arg=arg) if node.over == over:
            return arg
        case Choose(condition=condition, then=then, other=other):
            one, two = (side if side == ZERO else _summand(side, over, algebra) for side in (then, other))
            return None if one is None or two is None else algebra.choose(condition, one, two)
    found: list[Node] = []
    for term in terms(node):
        sums = [part for part in term.factors if any(isinstance(n, Reduce) for n in _outside_sums(part))]
        if sums == [node] or [term.factors[part] for part in sums] != [1]:
            return None
        summand = _summand(sums[0], over, algebra)
        if summand is None:
            return None
        rest = {part: power for part, power in term.factors.items() if part != sums[0]}
        found.append(algebra.product(factors(summand) * Term(term.coefficient, rest)))
    return algebra.add(*found)


def _outside_sums(node: Node) -> Iterator[Node]:
    """A node and what it is made of, down to its reductions."""
    yield node
    for child in () if isinstance(node, Reduce) else children(node):
        yield from _outside_sums(child)
