"""Formulas of lengths -> the spec language: `size(D) ** -0.5`."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

from .axes import Dim
from .expressions import Apply, Expr, Number, Over
from .formulas import Applied, Formula, Product, Symbol
from .refusals import Refusal

_SAYABLE = frozenset("add sub mul neg pow div floor_divide remainder minimum maximum floor ceil exp log".split())


def spelled(formula: Any, dim_of: Callable[[Symbol], Dim], number_of: Callable[[float], Expr] = Number) -> Expr:
    """A formula with sizes of axes in the place of symbols. `number_of` is what numbers are that are no integers."""

    def of(one: Any) -> Expr:
        if isinstance(one, Symbol):
            dim = dim_of(one)
            return Apply("size", (Over(dim),)) if dim else Number(1)
        if isinstance(one, Applied):
            if one.function not in _SAYABLE:
                raise Refusal(f"a number computed from lengths by {one.function}")
            return Apply(one.function, tuple(map(of, one.args)))
        if isinstance(one, Formula):
            return _sum(one, of)
        return number_of(one) if isinstance(one, float) else Number(one)

    return of(formula)


def _sum(formula: Formula, of: Callable[[Any], Expr]) -> Expr:
    """What is added comes before what is subtracted, and numbers come last."""
    terms = sorted(formula.terms, key=lambda one: (not one[0], one[1] < 0))
    (first, by), *rest = terms
    found = _term(first, abs(by), of)
    found = Apply("neg", (found,)) if by < 0 else found
    for product, factor in rest:
        found = Apply("sub" if factor < 0 else "add", (found, _term(product, abs(factor), of)))
    return found


def _term(product: Product, by: Fraction, of: Callable[[Any], Expr]) -> Expr:
    above = _multiplied([(one, power) for one, power in product if power > 0], by.numerator, of)
    below = [(one, -power) for one, power in product if power < 0]
    if not below and by.denominator == 1:
        return above
    return Apply("floor_divide", (above, _multiplied(below, by.denominator, of)))


def _multiplied(product: list[tuple[Any, int]], by: int, of: Callable[[Any], Expr]) -> Expr:
    factors = [Apply("pow", (of(one), Number(power))) if power > 1 else of(one) for one, power in product]
    factors = [Number(by), *factors] if by != 1 or not factors else factors
    return reduce(lambda one, other: Apply("mul", (one, other)), factors)
