"""Sums of products, whose factors are summed first where that makes fewer terms.

`sum(x * w, K, N)` is `sum(x * sum(w, N), K)` where x has no N, `sum(x * w * u, K, N)`, where u has no K, is
`sum(sum(x * w, K) * u, N)`, and `sum(x * w, K)`, where w has no K and an axis that x lacks, is `sum(x, K) * w`. Where
the result of a matmul is only summed again, `sum(sum(x * w, K), N)`, both are one such sum, if that needs no matmul.
Three factors or more are summed in the order that takes the least time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeGuard, TypeVar

from ..lang.ir import Call, Load, Node, Op, Reduce, Ref, Size, Value, walk
from ..lang.rewrite import named
from ..lang.unparse import spelled
from .contractions import is_product, times
from .empty_sums import outside, undefined_over
from .epilogues import below
from .factors import factors_of
from .orders import Term, are_many, in_order, term_of
from .structure import name_reductions, reached, read_lines, references

F = TypeVar("F", Node, Term)


def operand_sums_first(op: Op) -> Op:
    """The operator, whose reductions have names, with such factors summed by values of their own."""
    while op.fuse and (fewer := next(filter(None, (_without_matmul(op, value) for value in op.values)), None)):
        op = fewer
    values: list[Value] = []
    taken = op.names
    for value in op.values:
        values += _sums_first(op, value, value.node, taken) if _is_float_sum(value.node) else [value]
    return replace(op, values=tuple(values))


def _is_float_sum(node: Node) -> TypeGuard[Reduce]:
    return isinstance(node, Reduce) and node.kind in ("sum", "mean") and node.dtype.kind == "float"


def _without_matmul(op: Op, value: Value) -> Op | None:
    """The operator with a sum or mean of what a matmul gives as one sum over the axes of both, without the matmul.

    None if something else reads what that gives, or if the sum takes a matmul all the same.
    """
    node = value.node
    factors = factors_of(op, node.arg, node.over, False) if _is_float_sum(node) else []
    for place, factor in enumerate(factors):
        line = op.value(factor.name) if isinstance(factor, Ref) else None
        if line is None or not isinstance(line.node, Reduce) or not is_product(op, line.node):
            continue
        assert isinstance(node, Reduce)
        if line.node.dtype.kind != "float" or set(line.node.over) & set(node.arg.axes) or _is_chained(op, line.node):
            continue
        others = [*factors[:place], *factors[place + 1 :]]
        if any(undefined_over(op, other) for other in others):  # Where a matmul is over nothing, they multiply 0.
            continue
        arg = reduce(times, [*factors[:place], line.node.arg, *factors[place + 1 :]])
        if (found := _joined(op, value, node, line, arg)) is not None:
            return found
    return None


def _joined(op: Op, value: Value, node: Reduce, line: Value, arg: Node) -> Op | None:
    """The operator with a sum over the axes of a matmul, too; None where that takes a matmul all the same."""
    assert isinstance(line.node, Reduce)
    over = tuple(axis for axis in op.axes if axis in (*node.over, *line.node.over))
    total = replace(node, kind="sum", arg=arg, over=over)
    joint = Call("div", (total, Size(node.over)), node.axes, node.dtype) if node.kind == "mean" else total
    own = replace(value, node=joint, source=spelled(joint) if value.source or line.source else "")
    rewritten = replace(op, values=tuple(own if one == value else one for one in op.values))
    found = _with_sums_first(name_reductions(read_lines(rewritten, ())), total)
    return None if found is None or any(one.node == line.node for one in found.values) else found


def _is_chained(op: Op, node: Reduce) -> bool:
    """Whether a matmul is one of what is made of another's result, as in attention, whose scores a sum would store."""
    refs = op.refs
    factors = factors_of(op, node.arg, node.over, False)
    made = [one for one in factors if not (isinstance(one, Ref) and is_product(op, op.value(one.name).node))]
    below = [op.value(name).node for one in made for name in reached(refs, references(one), ())]
    return any(is_product(op, one) and set(one.axes) & set(node.over) for one in below)


def _with_sums_first(op: Op, total: Reduce) -> Op | None:
    """The operator with the factors of a sum summed first; None if that takes a matmul."""
    place, value = next((place, one) for place, one in enumerate(op.values) if one.node == total)
    sums = _sums_first(op, value, total, op.names)
    found = replace(op, values=(*op.values[:place], *sums, *op.values[place + 1 :]))
    return None if any(is_product(found, one.node) for one in sums) else found


def _sums_first(op: Op, value: Value, node: Reduce, taken: set[str]) -> list[Value]:
    """The sums of a sum's or mean's factors that come first, and what is left of it."""
    factors = factors_of(op, node.arg, node.over, False)
    found = _first_named_first(op, value, node, factors, {*taken})
    places = enumerate(factors)
    terms = [Term(factor.axes, place=place) for place, factor in places if {*factor.axes} & {*node.over}]
    if are_many(terms) and all(_may_be_moved(op, factor) for factor in factors):
        term = in_order(found.term, terms, op.lengths, dict(op.sizes))
        found = _built(value, term, factors, {*taken}) if term != found.term else found
    sums, left, over = [*found.values], reduce(times, found.factors), found.over
    taken |= {one.name for one in sums}
    if not sums:
        return [value]
    if over:
        left = replace(node, kind="sum", arg=left, over=over)
    if node.kind == "mean":
        if over:
            left = named(left, f"{value.name}_sum", taken, sums)
        left = Call("div", (left, Size(node.over)), node.axes, node.dtype)
    return [*sums, replace(value, node=left)]


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Values that come before a sum, what is left to be multiplied and summed over some axes, and the term of it."""

    values: tuple[Value, ...]
    factors: tuple[Node, ...]
    over: tuple[str, ...]
    term: Term


def _first_named_first(op: Op, value: Value, node: Reduce, factors: list[Node], taken: set[str]) -> _Ordered:
    """The sums that are needed, those over the axes named first before others."""
    sums: list[Value] = []
    terms = [Term(factor.axes, place=place) for place, factor in enumerate(factors)]
    over = node.over
    # One factor comes before a product of several, whose sum may need no matmul then, and matmuls come last.
    for (several, by_matmul), axis in itertools.product(((False, False), (True, False), (True, True)), node.over):
        inside, others = _parted(factors, axis)
        if not inside or not others or (len(inside) > 1) != several:
            continue
        so_far = replace(op, values=(*op.values, *sums))
        first = _summed_alone(reduce(times, inside), others, over)
        total = replace(node, kind="sum", arg=reduce(times, factors), over=over)
        if first.dtype.kind != "float" or not _is_worth_it(so_far, first, total, others, by_matmul):
            continue
        ref = named(first, f"{_called(first.arg, value.name)}_sum", taken, sums)
        over = tuple(axis for axis in over if axis not in first.over)
        place = factors.index(inside[0])
        joined, left = _parted(terms, axis)
        joint = term_of(joined, first.over)
        others = [outside(so_far, value.name, other, first.over, over) for other in others]
        factors = [*others[:place], ref, *others[place:]]
        terms = [*left[:place], joint, *left[place:]]
    within = [one for one in terms if one.operands or {*one.axes} & {*over}]
    return _Ordered(tuple(sums), tuple(factors), over, term_of(within, over))


def _parted(factors: Sequence[F], axis: str) -> tuple[list[F], list[F]]:
    """Those that have an axis, and the others."""
    return [one for one in factors if axis in one.axes], [one for one in factors if axis not in one.axes]


def _summed_alone(product: Node, others: list[Node], over: tuple[str, ...]) -> Reduce:
    """The sum of a product along those of some axes that the other factors lack."""
    lasting = {axis for factor in others for axis in factor.axes}
    alone = tuple(axis for axis in over if axis in product.axes and axis not in lasting)
    return Reduce("sum", product, alone, tuple(axis for axis in product.axes if axis not in alone), product.dtype)


def _is_worth_it(op: Op, first: Reduce, total: Reduce, others: list[Node], by_matmul: bool) -> bool:
    if by_matmul:
        return is_product(op, first) and not is_product(op, total)
    # So that it is not summed for each of the axes that it lacks.
    return not {axis for factor in others for axis in factor.axes} <= {*first.arg.axes}


def _built(value: Value, term: Term, factors: list[Node], taken: set[str]) -> _Ordered:
    """The sums and stored products that a term is made of; the other factors multiply it."""
    values: list[Value] = []

    def made(part: Term) -> Node:
        if not part.operands:
            return factors[part.place]
        node = reduce(times, map(made, part.operands))
        node = Reduce("sum", node, part.over, part.axes, node.dtype) if part.over else node
        return named(node, f"{value.name}_{'sum' if part.over else 'factor'}", taken, values)

    operands = tuple(map(made, term.operands))
    others = [factor for place, factor in enumerate(factors) if place not in term.places]
    return _Ordered(tuple(values), (*operands, *others), term.over, term)


def _may_be_moved(op: Op, factor: Node) -> bool:
    """Whether a factor may meet others in any order: it is defined where sums are empty, is no softmax, say, whose
    kernels multiply it as they compute it, and its products with others have a dtype of floats that they can be
    stored in, as those of integers and of float8 do not.
    """
    if factor.dtype.kind != "float" or not factor.dtype.of or undefined_over(op, factor):
        return False
    return all(is_product(op, node) for node in below(op, factor) if isinstance(node, Reduce))


def _called(factor: Node, line: str) -> str:
    """The name of the only tensor or line that a factor is made of, or that of the line that sums it."""
    names = list(dict.fromkeys(part.name for part in walk(factor) if isinstance(part, Load | Ref)))
    return names[0] if len(names) == 1 else line
