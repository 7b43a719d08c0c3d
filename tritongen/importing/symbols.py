"""Numbers that lengths decide -> the spec language: `size(D) ** -0.5`."""

from __future__ import annotations

from collections.abc import Callable
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


def spelled(formula: Any, dim_of: Callable[[str], Dim]) -> Expr:
    """A formula of sympy in the language, with sizes of axes in the place of symbols."""
    if formula.is_Symbol:
        dim = dim_of(str(formula))
        return Apply("size", (Over(dim),)) if dim else Number(1)
    if formula.is_Integer:
        return Number(int(formula))
    if formula.is_number:
        return Number(float(formula))
    name = type(formula).__name__
    if name == "ToFloat":
        return spelled(formula.args[0], dim_of)
    if name == "Mul" and formula.could_extract_minus_sign():
        return Apply("neg", (spelled(-formula, dim_of),))
    if name == "Add":
        terms = sorted(formula.args, key=lambda one: (one.is_number, bool(one.could_extract_minus_sign()), str(one)))
        return reduce(lambda one, other: _sum(one, other, dim_of), terms[1:], spelled(terms[0], dim_of))
    args = tuple(spelled(one, dim_of) for one in formula.args)
    if name == "Mul":
        return reduce(lambda one, other: Apply("mul", (one, other)), args)
    if name == "OpaqueUnaryFn_sqrt":
        return Apply("pow", (*args, Number(0.5)))
    if name not in _FUNCTIONS:
        raise Refusal(f"a number computed from lengths by {name}")
    return Apply(_FUNCTIONS[name], args)


def _sum(one: Expr, other: Any, dim_of: Callable[[str], Dim]) -> Expr:
    if other.could_extract_minus_sign():
        return Apply("sub", (one, spelled(-other, dim_of)))
    return Apply("add", (one, spelled(other, dim_of)))
