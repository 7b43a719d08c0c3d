"""Operands of matmuls are stored, so other gradients read them instead of recomputing them.

`dh = r * g; dw = sum(dh * x, M); dx = r * sum(g * w, N)` reads both g and dh: `dx = sum(dh * w, N)` reads only dh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..lang.ir import Node, Op, Reduce, Ref, Value, walk
from ..passes.contractions import sides_of
from ..passes.empty_sums import unless_empty_of
from ..passes.factors import unless_empty
from ..passes.structure import reached, references
from .algebra import Algebra
from .sharing import in_order
from .terms import Factors, Term, factors, has


def read_once(derived: Sequence[tuple[str, Node]], op: Op, algebra: Algebra) -> list[tuple[str, Node]]:
    """The values derived for `op`, rewritten to read operands of matmuls, each after the values that it uses."""
    found = dict(derived)
    for name in _multiplied(found, op):
        term = factors(found[name])
        if len(term.factors) < 2 or term.coefficient != 1 or min(term.factors.values()) < 1:
            continue
        below = reached({other: references(node) for other, node in found.items()}, [name], ())
        factor = Ref(name, found[name].axes, found[name].dtype)
        found |= {o: _with(node, factor, term, algebra) for o, node in found.items() if o not in below}
    return in_order(found)


def _multiplied(derived: Mapping[str, Node], op: Op) -> list[str]:
    """The names of the derived values that are an operand of a matmul."""
    rewritten = replace(op, values=(*op.values, *(Value(name, node, "") for name, node in derived.items())))
    sides = [sides_of(rewritten, inner) for node in derived.values() for inner in walk(node)]
    read = {side.name for both in sides if both for side in both[:2] if isinstance(side, Ref)}
    return [name for name in derived if name in read]


def _with(node: Node, factor: Ref, term: Term, algebra: Algebra) -> Node:
    """The node, a sum times outer factors, with `factor` in place of the factors in `term`; else the node unchanged."""
    outside, undefined = factors(node), dict[Node, tuple[str, ...]]()
    for base in list(outside.factors):
        if (guarded := unless_empty_of(base)) is not None:  # Guards are added again below, around what stays outside.
            one = factors(guarded[0])
            outside *= one * Term(1.0, {base: -1})
            undefined |= dict.fromkeys(one.factors, guarded[1])
    sums = [base for base, power in outside.factors.items() if isinstance(base, Reduce) and power == 1]
    if len(sums) != 1 or sums[0].kind != "sum":
        return node
    inside = factors(sums[0].arg)
    rest = Term(outside.coefficient, {base: power for base, power in outside.factors.items() if base != sums[0]})
    if not has(rest * inside, term):
        return node
    taken: Factors = {base: min(power, max(inside.factors.get(base, 0), 0)) for base, power in term.factors.items()}
    others = {base: power - taken[base] for base, power in term.factors.items()}
    if not any(taken.values()):
        return node
    arg = algebra.product(Term(1.0, {factor: 1}) * inside * Term(1.0, taken) ** -1)
    reduced = replace(sums[0], arg=arg)
    left = rest * Term(1.0, others) ** -1
    for base in [base for base in left.factors if base in undefined]:
        one = Term(1.0, {base: left.factors[base]})
        left *= Term(1.0, {unless_empty(algebra.product(one), *undefined[base]): 1}) * one**-1
    return algebra.product(left * Term(1.0, {reduced: 1}))
