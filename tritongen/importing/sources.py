"""Reads the user's source at a line: the variables that a statement assigns, and the expressions of its numbers."""

from __future__ import annotations

import ast
import functools
import linecache
import math
from collections.abc import Mapping

from .expressions import Apply, Expr, Number, Param, subexpressions
from .formulas import COMPUTED
from .refusals import Place

_FUNCTIONS = ("sqrt", "log", "exp")
_CONSTANTS = {"pi": math.pi, "e": math.e}
_OPERATORS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
}


@functools.cache
def _statements(path: str) -> dict[int, ast.stmt]:
    """The innermost statement of each line of a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return {}
    found: dict[int, ast.stmt] = {}
    for node in ast.walk(tree):  # Outer statements come first.
        if isinstance(node, ast.stmt):
            found |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node)
    return found


def statement(place: Place) -> ast.stmt | None:
    return _statements(place.path).get(place.line)


def is_loop(place: Place) -> bool:
    return isinstance(statement(place), ast.For)


def bound_names(place: Place) -> list[str]:
    """The variables that the statement at a place assigns; "" for other targets."""
    target: ast.expr | None = None
    match statement(place):
        case ast.Assign([one]) | ast.AnnAssign(one) | ast.AugAssign(one):
            target = one
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    return [one.id if isinstance(one, ast.Name) else "" for one in targets]


def number_first(place: Place, scalars: Mapping[str, float | int]) -> bool:
    """Whether the source at a place is a binary operator whose left operand is a number."""
    found = statement(place)
    node = _at(found, place) if found is not None else None
    return isinstance(node, ast.BinOp) and _of_params(node.left, scalars) is not None


def number_at(place: Place, value: float, scalars: Mapping[str, float | int]) -> Expr | None:
    """The largest expression of params in a statement that evaluates to `value`; None if there is none."""
    found = statement(place)
    if found is None or isinstance(found, ast.FunctionDef | ast.ClassDef):
        return None
    for node in ast.walk(_at(found, place)):  # Outer expressions come first.
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant):
            made = _of_params(node, scalars)
            if made is not None and made[1] == value and type(made[1]) is type(value) and not _is_plain(made[0]):
                return made[0]
    return None


def _at(found: ast.stmt, place: Place) -> ast.AST:
    """The expression of a statement at a place, or the statement if none is, as for several lines."""
    for node in ast.walk(found):
        if isinstance(node, ast.expr):
            length = (node.end_col_offset or 0) - node.col_offset
            if (node.lineno, node.col_offset + 1, length) == (place.line, place.column, place.length):
                return node
    return found


def _is_plain(expr: Expr) -> bool:
    """Whether an expression consists only of constants."""
    return isinstance(expr, Number) or (isinstance(expr, Apply) and all(map(_is_plain, subexpressions(expr))))


def _of_params(node: ast.expr, scalars: Mapping[str, float | int]) -> tuple[Expr, float | int] | None:
    """An expression of params and constants, with its value; None for other expressions."""
    match node:
        case ast.Attribute(ast.Name("math"), ("pi" | "e") as name):
            return Param(name), _CONSTANTS[name]
        case ast.Name(name) | ast.Attribute(attr=name):
            return (Param(name), scalars[name]) if name in scalars else None
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            return Number(number), number
    name, operands = _operation(node)
    known = [one for one in (_of_params(one, scalars) for one in operands) if one is not None]
    values = [one[1] for one in known]
    if not name or len(known) < len(operands) or (name == "pow" and abs(values[1]) > 64):
        return None
    try:
        value = COMPUTED[name](*values)
    except (ArithmeticError, ValueError):
        return None
    return (Apply(name, tuple(one[0] for one in known)), value) if isinstance(value, int | float) else None


def _operation(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """The function of an expression, and its operands; "" for other expressions."""
    match node:
        case ast.BinOp(left, sign, right):
            return _OPERATORS.get(type(sign), ""), [left, right]
        case ast.UnaryOp(ast.USub(), operand):
            return "neg", [operand]
        case ast.Call(ast.Attribute(attr=name) | ast.Name(name), [operand], []) if name in _FUNCTIONS:
            return name, [operand]
    return "", []
