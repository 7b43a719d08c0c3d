"""Numbers that lengths decide -> the spec language: `size(D) ** -0.5`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from .axes import Dim
from .expressions import Apply, Expr, Number, Over
from .refusals import Refusal

_FUNCTIONS = {
    "FloorDiv": "floor_divide",
    "CleanDiv": "floor_divide",
    "PythonMod": "remainder",
    "Mod": "remainder",
    "FloatTrueDiv": "div",
    "IntTrueDiv": "div",
    "PowByNatural": "pow",
    "FloatPow": "pow",
    "Pow": "pow",
    "Max": "maximum",
    "Min": "minimum",
    "OpaqueUnaryFn_exp": "exp",
    "OpaqueUnaryFn_log": "log",
}


class NeedsSymbols(Exception):
    """More has to be known of lengths, or of values, than a plain trace does."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A number of a plain trace that lengths decide: the `length` of a node and a dimension, or a function of some."""

    function: str
    args: tuple[Any, ...]

    @property
    def is_Symbol(self) -> bool:  # As sympy has it.
        return self.function == "length"

    @property
    def is_number(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.args))})"

    def __add__(self, other: Any) -> Any:
        return made("add", self, other)

    __radd__ = __add__


def made(function: str, *args: Any) -> Any:
    """A function of numbers and formulas, without those that change nothing: what is added comes last."""
    if not any(isinstance(one, Formula) for one in args):
        return COMPUTED[function](*args)
    if function in ("add", "sub"):
        return _added(args[0], args[1], 1 if function == "add" else -1)
    if function == "mul":
        first, last = sorted(args, key=lambda one: isinstance(one, Formula))
        return last if first == 1 else Formula("mul", (first, last))
    if function == "floor_divide" and isinstance(args[1], int):
        first, by = _shifted(args[0])
        if by % args[1] == 0:
            return made("add", Formula(function, (first, args[1])) if args[1] != 1 else first, by // args[1])
    return Formula(function, args)


def _added(first: Any, last: Any, sign: int) -> Any:
    (one, by), (other, more) = map(_shifted, (first, last))
    by += sign * more
    if one is None:
        one = other if sign > 0 else Formula("neg", (other,))
    elif other is not None:
        one = Formula("add" if sign > 0 else "sub", (one, other))
    return Formula("add" if by > 0 else "sub", (one, abs(by))) if by else one


def _shifted(number: Any) -> tuple[Any, Any]:
    """A number as a formula, or None, and what is added to it."""
    if not isinstance(number, Formula):
        return None, number
    if number.function in ("add", "sub") and isinstance(number.args[1], int | float):
        return number.args[0], number.args[1] if number.function == "add" else -number.args[1]
    return number, 0


COMPUTED: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "pow": operator.pow,
    "div": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
}


def known(number: Any, as_written: bool = False) -> Any:
    """The formula of a number of the trace, or an integer that it is whatever the lengths are.

    `x.view(B, -1, 16).shape[-1]` is `s // (s // 16)` in the trace: 16, since the view is of lengths that 16 divides.
    """
    if not hasattr(number, "node"):
        return int(number)
    formula = number.node._expr if as_written else number.node.expr
    made = _with_exact_quotients(formula, number.node.shape_env)
    return int(made) if made.is_Integer else made


def _with_exact_quotients(formula: Any, shape_env: Any) -> Any:
    from torch.utils._sympy.functions import FloorDiv

    if not any(one.args[1].has(FloorDiv) for one in formula.atoms(FloorDiv)):
        return formula
    exact = {one.args[0] / one.args[1] for one in shape_env.divisible}

    def exactly(one: Any, other: Any) -> Any:
        return one / other if one / other in exact else FloorDiv(one, other)

    def quotient(one: Any, other: Any) -> Any:
        found = one / other.replace(FloorDiv, exactly)
        return found if found.is_Integer else FloorDiv(one, other)

    return formula.replace(FloorDiv, quotient)


def spelled(formula: Any, dim_of: Callable[[Any], Dim], number_of: Callable[[float], Expr] = Number) -> Expr:
    """A formula, of sympy or of a plain trace, in the language, with sizes of axes in the place of symbols.

    `number_of` is what numbers are that are no integers.
    """
    if isinstance(formula, float):
        return number_of(formula)
    if isinstance(formula, int):
        return Number(formula)
    if formula.is_Symbol:
        dim = dim_of(formula)
        return Apply("size", (Over(dim),)) if dim else Number(1)
    if isinstance(formula, Formula):
        return Apply(formula.function, tuple(spelled(one, dim_of, number_of) for one in formula.args))
    if formula.is_Integer:
        return Number(int(formula))
    if formula.is_number:
        return number_of(float(formula))
    name = type(formula).__name__
    if name == "ToFloat":
        return spelled(formula.args[0], dim_of, number_of)
    if name == "Mul" and formula.could_extract_minus_sign():
        return Apply("neg", (spelled(-formula, dim_of, number_of),))
    if name == "Add":
        terms = sorted(formula.args, key=lambda one: (one.is_number, bool(one.could_extract_minus_sign()), str(one)))
        return reduce(
            lambda one, other: _sum(one, other, dim_of, number_of), terms[1:], spelled(terms[0], dim_of, number_of)
        )
    args = tuple(spelled(one, dim_of, number_of) for one in formula.args)
    if name == "Mul":
        return reduce(lambda one, other: Apply("mul", (one, other)), args)
    if name == "OpaqueUnaryFn_sqrt":
        return Apply("pow", (*args, Number(0.5)))
    if name not in _FUNCTIONS:
        raise Refusal(f"a number computed from lengths by {name}")
    return Apply(_FUNCTIONS[name], args)


def _sum(one: Expr, other: Any, dim_of: Callable[[Any], Dim], number_of: Callable[[float], Expr]) -> Expr:
    if other.could_extract_minus_sign():
        return Apply("sub", (one, spelled(-other, dim_of, number_of)))
    return Apply("add", (one, spelled(other, dim_of, number_of)))
