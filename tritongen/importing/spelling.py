"""Formulas of lengths -> the spec language: `size(D) ** -0.5`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .axes import Dim
from .expressions import Apply, Expr, Number, size
from .formulas import Applied, Formula, Symbol, steps_of, symbol_of
from .refusals import Refusal

_SAYABLE = frozenset("add sub mul neg pow div floor_divide remainder minimum maximum floor ceil exp log".split())


def spelled(formula: Any, dim_of: Callable[[Symbol], Dim], number_of: Callable[[float], Expr] = Number) -> Expr:
    """A formula as an expression, with sizes of axes for symbols and `number_of` floats. Raises `Refusal`."""

    def of(one: Any) -> Expr:
        if not isinstance(one, Formula | Applied):
            return number_of(one) if isinstance(one, float) else Number(one)
        symbol = symbol_of(one)
        if symbol is not None:
            return size(dim_of(symbol))
        function, args = steps_of(one)
        if function not in _SAYABLE:
            raise Refusal(f"a number computed from lengths by {function}")
        return Apply(function, tuple(map(of, args)))

    return of(formula)
