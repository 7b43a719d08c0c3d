"""Arithmetic of symbolic lengths in canonical form: sums of products of symbols, which compare equal if they are."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

COMPUTED: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in "add sub mul neg pow eq ne lt le gt ge".split()},
    **{name: getattr(math, name) for name in ("floor", "ceil", "exp", "log", "sqrt")},
    "div": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "minimum": min,
    "maximum": max,
    "to_int": int,
    "to_float": float,
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.not_,
}
NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floor_divide": "//", "remainder": "%", "pow": "**"}


@dataclass(frozen=True, slots=True, order=True)
class Symbol:
    """A symbolic length: the `number`-th of a trace."""

    number: int

    def __str__(self) -> str:
        return f"s{self.number}"


@dataclass(frozen=True, slots=True)
class Applied:
    """A function of formulas and scalars that is no sum of products, or any function of floats."""

    function: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        if self.function in _SIGNS:
            first, last = (f"({one})" if " " in str(one) else str(one) for one in self.args)
            return f"({first} {_SIGNS[self.function]} {last})"
        return f"{self.function}({', '.join(map(str, self.args))})"


Product = tuple[tuple[Any, int], ...]  # symbols and functions, with their exponents
Terms = dict[Product, Fraction]


@dataclass(frozen=True, slots=True)
class Formula:
    """An integer computed from lengths: a sum of products with rational coefficients, in canonical order."""

    terms: tuple[tuple[Product, Fraction], ...]

    def __str__(self) -> str:
        return " + ".join(_written(*term) for term in self.terms)


def _written(product: Product, by: Fraction) -> str:
    factors = [str(one) if power == 1 else f"{one}**{power}" for one, power in product]
    return "*".join([str(by), *factors] if by != 1 or not factors else factors)


Expr = Any  # an integer, a float, a bool, Formula or Applied


def of_symbol(symbol: Any) -> Formula:
    return Formula(((((symbol, 1),), Fraction(1)),))


def _atom_of(expr: Expr) -> Any:
    """The symbol or function, if a formula is just one; else the expression itself."""
    match expr:
        case Formula((((((atom, 1),), 1)),)):
            return atom
    return expr


def symbol_of(expr: Expr) -> Symbol | None:
    atom = _atom_of(expr)
    return atom if isinstance(atom, Symbol) else None


def applied_of(expr: Expr) -> Applied | None:
    """The function, if a formula is just one; else None."""
    atom = _atom_of(expr)
    return atom if isinstance(atom, Applied) else None


def symbols_of(expr: Expr) -> frozenset[Symbol]:
    if isinstance(expr, Symbol):
        return frozenset((expr,))
    if isinstance(expr, Formula):
        return frozenset().union(*(symbols_of(one) for product, _ in expr.terms for one, _ in product))
    return frozenset().union(*map(symbols_of, expr.args)) if isinstance(expr, Applied) else frozenset()


def steps_of(expr: Expr) -> tuple[str, tuple[Expr, ...]]:
    """The outermost function of a formula, and its operands: sums split by term, products by factor.

    Added terms come before subtracted ones, constants last. Fractions are divided together, because only their sum is
    known to be an integer.
    """
    if isinstance(expr, Applied):
        return expr.function, expr.args
    *terms, (product, by) = sorted(expr.terms, key=lambda one: (not one[0], one[1] < 0))
    fractions = sum(_denominator([term]) != 1 for term in expr.terms)
    if terms and fractions < 2:
        return "sub" if by < 0 else "add", (_made(dict(terms)), _made({product: abs(by)}))
    if not terms and by < 0:
        return "neg", (_made({product: -by}),)
    if fractions:
        below = _denominator(expr.terms)
        return "floor_divide", (_product(expr, below), below)
    *rest, (atom, power) = product
    if rest or by != 1:
        return "mul", (_made({tuple(rest): by}), _made({((atom, power),): Fraction(1)}))
    return ("pow", (of_symbol(atom), power)) if power > 1 else (atom.function, atom.args)


def _denominator(terms: Collection[tuple[Product, Fraction]]) -> Expr:
    """The least common denominator of terms."""
    powers: dict[Any, int] = {}
    for product, _ in terms:
        powers |= {atom: max(powers.get(atom, 0), -power) for atom, power in product if power < 0}
    return _made({_times((), tuple(powers.items())): Fraction(math.lcm(*(by.denominator for _, by in terms)))})


def _terms(expr: Expr) -> Terms:
    if isinstance(expr, Formula):
        return dict(expr.terms)
    return {(): Fraction(expr)} if expr else {}


def _made(terms: Mapping[Product, Fraction]) -> Expr:
    left = {product: by for product, by in terms.items() if by}
    if not left.keys() - {()}:
        by = left.get((), Fraction(0))
        return int(by) if by.denominator == 1 else float(by)
    return Formula(tuple(sorted(left.items(), key=lambda one: _order(one[0]))))


def _order(product: Product) -> tuple[list[tuple[int, str]], list[int]]:
    return [_place(atom) for atom, _ in product], [power for _, power in product]


def _place(atom: Any) -> tuple[int, str]:
    """The sort key of factors: symbols first."""
    return (atom.number, "") if isinstance(atom, Symbol) else (1 << 30, str(atom))


def _sum(one: Expr, other: Expr, sign: int) -> Expr:
    return _made(_added(_terms(one), {product: sign * by for product, by in _terms(other).items()}))


def _added(one: Terms, other: Terms) -> Terms:
    return {key: one.get(key, Fraction(0)) + other.get(key, Fraction(0)) for key in {**one, **other}}


def _product(one: Expr, other: Expr) -> Expr:
    return _made(_multiplied(_terms(one), _terms(other)))


def _multiplied(one: Terms, other: Terms) -> Terms:
    found: Terms = {}
    for first, by in one.items():
        for second, more in other.items():
            found = _added(found, {_times(first, second): by * more})
    return found


def _divided(one: Terms, other: Terms) -> Terms:
    """Divides `one` by `other`, a single product."""
    ((product, by),) = other.items()
    return {_times(own, product, -1): factor / by for own, factor in one.items()}


def _times(one: Product, other: Product, sign: int = 1) -> Product:
    powers = dict(one)
    for atom, power in other:
        powers[atom] = powers.get(atom, 0) + sign * power
    return tuple(sorted(((atom, power) for atom, power in powers.items() if power), key=lambda pair: _place(pair[0])))


def quotient(one: Expr, other: Expr) -> Expr | None:
    """`one / other`, if `other` is a single product that divides it for any lengths; else None."""
    found = exact_quotient(one, other)
    return found if found is not None and _is_integral(found) else None


def exact_quotient(one: Expr, other: Expr) -> Expr | None:
    """`one / other`, if `other` is known to divide it; None for a divisor that is another sum."""
    if one == other:
        return 1
    divisor = _terms(other)
    return _made(_divided(_terms(one), divisor)) if len(divisor) == 1 else None


def _is_integral(expr: Expr) -> bool:
    return all(by.denominator == 1 and all(power > 0 for _, power in product) for product, by in _terms(expr).items())


def made(function: str, *args: Expr) -> Expr:
    """A function of integers, in canonical form."""
    if not any(isinstance(one, Formula | Applied) for one in args):
        return COMPUTED[function](*args)
    match function:
        case "add" | "sub":
            return _sum(args[0], args[1], 1 if function == "add" else -1)
        case "neg":
            return _sum(0, args[0], -1)
        case "mul":
            return _product(*args)
        case "pow" if isinstance(args[1], int) and args[1] >= 0:
            return reduce(_product, [args[0]] * args[1], 1)
        case "floor_divide":
            return _floor_divided(*args)
        case "remainder":
            return 0 if quotient(*args) is not None else of_symbol(Applied(function, args))
        case "minimum" | "maximum":
            return _extreme(function, *args)
    return of_symbol(Applied(function, args))


def _floor_divided(one: Expr, other: Expr) -> Expr:
    """A floor division; terms that are divisible for any lengths are moved out of it."""
    found = quotient(one, other)
    if found is not None:
        return found
    outside: Expr = 0
    for product, by in _terms(one).items():
        divided = quotient(_made({product: by}), other)
        if divided is not None:
            outside, one = _sum(outside, divided, 1), _sum(one, _made({product: by}), -1)
    one, other = reduced(one, other)
    if other == 1:
        return _sum(one, outside, 1)
    return _sum(of_symbol(Applied("floor_divide", (one, other))), outside, 1)


def reduced(one: Expr, other: Expr) -> tuple[Expr, Expr]:
    """A fraction reduced by the common factor of all terms."""
    terms = [*_terms(one).items(), *_terms(other).items()]
    common = _common(product for product, _ in terms)
    factor = reduce(math.gcd, (int(by) for _, by in terms)) if all(by.denominator == 1 for _, by in terms) else 1
    divisor = _made({common: Fraction(factor or 1)})
    return tuple(exact_quotient(each, divisor) for each in (one, other))  # type: ignore[return-value]


def _common(products: Iterable[Product]) -> Product:
    powers = [dict(one) for one in products]
    atoms = [atom for atom, power in powers[0].items() if all(one.get(atom, 0) > 0 for one in powers)]
    return tuple((atom, min(one[atom] for one in powers)) for atom in atoms)


def _extreme(function: str, one: Expr, other: Expr) -> Expr:
    for more, less in ((one, other), (other, one)):
        least = lower_bound(_sum(more, less, -1))
        if least is not None and least >= 0:
            return more if function == "maximum" else less
    return of_symbol(Applied(function, (one, other)))


def lower_bound(expr: Expr) -> float | None:
    """A lower bound of a formula, given symbolic lengths of at least 2; None if none is known."""
    least = Fraction(0)
    for product, by in _terms(expr).items():
        if product and by < 0:
            return None
        least += by * math.prod(2**power if isinstance(atom, Symbol) else 0 for atom, power in product)
    return float(least)


def solved(one: Expr, other: Expr) -> tuple[Symbol, Expr] | None:
    """Solves `one == other` for a symbol; returns it and its formula, or None if no symbol can be isolated."""
    terms = _terms(_sum(one, other, -1))
    common = _common(terms) if terms else ()
    terms = {_times(product, common, -1): by for product, by in terms.items()}
    choices = []
    for product, by in terms.items():
        symbol = product[0][0] if len(product) == 1 and product[0][1] == 1 else None
        rest = {key: -own / by for key, own in terms.items() if key != product}
        if isinstance(symbol, Symbol) and symbol not in symbols_of(_made(rest)):
            choices.append((_is_integral(_made(rest)), symbol, _made(rest)))
    if not choices:
        return None
    _, symbol, found = max(choices, key=lambda choice: choice[:2])
    return symbol, found


def replaced(expr: Expr, known: Mapping[Any, Expr]) -> Expr:
    """The expression with `known` symbols and functions replaced."""
    if isinstance(expr, Applied):
        if expr in known:
            return known[expr]
        return made_of_floats(expr.function, *(replaced(one, known) for one in expr.args))
    if not isinstance(expr, Formula):
        return expr
    total: Terms = {}
    for product, by in expr.terms:
        term: Terms = {(): by}
        for atom, power in product:
            value = _terms(_replaced_atom(atom, known))
            for _ in range(abs(power)):
                term = (_multiplied if power > 0 else _divided)(term, value)
        total = _added(total, term)
    return _made(total)


def _replaced_atom(atom: Any, known: Mapping[Any, Expr]) -> Expr:
    if atom in known:
        return known[atom]
    if isinstance(atom, Symbol):
        return of_symbol(atom)
    return made(atom.function, *(replaced(one, known) for one in atom.args))


def value(expr: Expr, lengths: Mapping[Symbol, int]) -> Any:
    """The value of a formula at given lengths of its symbols."""
    return lengths[expr] if isinstance(expr, Symbol) else replaced(expr, lengths)


def made_of_floats(function: str, *args: Expr) -> Expr:
    """A function of floats as written, without `* 1`, `+ 0`, `- 0` and conversions to float."""
    if not any(isinstance(one, Formula | Applied) for one in args):
        return COMPUTED[function](*args)
    if function == "to_float":
        return args[0]
    if function == "mul":
        first, last = sorted(args, key=lambda one: isinstance(one, Formula | Applied))
        return last if first == 1 else Applied("mul", (first, last))
    if function in ("add", "sub") and args[1] == 0:
        return args[0]
    return Applied(function, args)
