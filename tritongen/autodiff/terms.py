"""Nodes as sums of products: a product is a coefficient and powers of factors, a sum a list of products."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..lang.ir import Call, Choose, Constant, Load, Node, Take
from ..lang.promotion import constant

ZERO = constant(0.0)
Factors = dict[Node, int]  # powers by factor


@dataclass(frozen=True)
class Term:
    """A coefficient times powers of factors, in order of first occurrence."""

    coefficient: float
    factors: Factors = field(default_factory=dict)

    def __mul__(self, other: Term) -> Term:
        factors = dict(self.factors)
        for node, power in other.factors.items():
            factors[node] = factors.get(node, 0) + power
        return Term(self.coefficient * other.coefficient, {n: p for n, p in factors.items() if p})

    def __truediv__(self, other: Term) -> Term:
        """The quotient; equal coefficients give exactly 1, which multiplying by a reciprocal may not."""
        return Term(self.coefficient / other.coefficient, (self * other**-1).factors)

    def __pow__(self, power: int) -> Term:
        return Term(self.coefficient**power, {node: power * p for node, p in self.factors.items()})


def factors(node: Node) -> Term:
    """A node as a product."""
    match node:
        case Constant(value=int() | float() as value) if not isinstance(value, bool) and value == value:
            if abs(value) != float("inf"):
                return Term(float(value))
        case Call(function="mul", args=(left, right)):
            return factors(left) * factors(right)
        case Call(function="div", args=(left, right)) if not (isinstance(right, Constant) and right.value == 0):
            return factors(left) * factors(right) ** -1
        case Call(function="neg", args=(arg,)):
            return Term(-1.0) * factors(arg)
        case Call(function="square", args=(arg,)):
            return factors(arg) ** 2
        case Call(function="reciprocal", args=(arg,)):
            return factors(arg) ** -1
        case Call(function="positive", args=(arg,)):
            return factors(arg)
    return Term(1.0, {node: 1})


def terms(node: Node) -> list[Term]:
    """A node as a sum of products."""
    match node:
        case Call(function="add", args=(left, right)):
            return [*terms(left), *terms(right)]
        case Call(function="sub", args=(left, right)):
            return [*terms(left), *(Term(-1.0) * term for term in terms(right))]
        case Call(function="neg", args=(arg,)):
            return [Term(-1.0) * term for term in terms(arg)]
    term = factors(node)
    return [term] if term.coefficient else []


def merged(terms: list[Term]) -> list[Term]:
    """Merge terms with the same factors, and drop those that cancel."""
    found: dict[frozenset[tuple[Node, int]], Term] = {}
    for addend in terms:
        key = frozenset(addend.factors.items())
        before = found[key].coefficient if key in found else 0.0
        found[key] = Term(before + addend.coefficient, addend.factors)
    return [term for term in found.values() if term.coefficient]


def shared_by(terms: list[Term]) -> Term:
    """The common factor of all terms."""
    first, *others = terms
    found: Factors = {}
    for node, power in first.factors.items():
        powers = [power, *(term.factors.get(node, 0) for term in others)]
        if all(p > 0 for p in powers):
            found[node] = min(powers)
        elif all(p < 0 for p in powers):
            found[node] = max(powers)
    sizes = {abs(term.coefficient) for term in terms}
    coefficient = sizes.pop() if len(sizes) == 1 else 1.0
    if all(term.coefficient < 0 for term in terms):
        coefficient = -coefficient
    return Term(coefficient, found)


def contains(power: int, wanted: int) -> bool:
    """Whether the power includes the wanted one, of the same sign."""
    return power >= wanted if wanted > 0 else power <= wanted


def shared_by_some(terms: list[Term]) -> Term | None:
    """The factor that most terms share, if at least two do."""
    counts: dict[tuple[Node, int], int] = {}
    for term in terms:
        for node, power in term.factors.items():
            key = (node, 1 if power > 0 else -1)
            counts[key] = counts.get(key, 0) + 1
    best = max(counts, key=lambda key: counts[key], default=None)
    return Term(1.0, {best[0]: best[1]}) if best and counts[best] > 1 else None


def has(term: Term, common: Term) -> bool:
    """Whether a term has the factors of another."""
    return all(contains(term.factors.get(node, 0), power) for node, power in common.factors.items())


def may_be_outside(node: Node) -> bool:
    """Whether a node loads or takes elements at positions loaded from tensors, which may be out of bounds."""
    taken = (inner for inner in node.nodes if isinstance(inner, Load | Take))
    return any(Load in index.kinds for inner in taken for _, index in inner.at)


def is_half(node: Node) -> bool:
    """Whether a node is a choice between something and zero."""
    if isinstance(node, Choose):
        return ZERO in (node.then, node.other)
    return isinstance(node, Call) and node.function == "where" and ZERO in node.args[1:]


def half_of(term: Term) -> Node | None:
    """The only factor of a term that is a choice between something and zero."""
    found = [node for node, power in term.factors.items() if power == 1 and is_half(node)]
    return found[0] if len(found) == 1 else None
