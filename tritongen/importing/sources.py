"""What the user's source says at a line: which names a statement reads and binds, and what its numbers are made of."""

from __future__ import annotations

import ast
import functools
import linecache
import math
from collections.abc import Iterator, Mapping

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
    """The variables that the statement at a place assigns, "" for what is none."""
    found = statement(place)
    target: ast.expr | None = None
    if isinstance(found, ast.Assign) and len(found.targets) == 1:
        target = found.targets[0]
    elif isinstance(found, ast.AnnAssign | ast.AugAssign):
        target = found.target
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    return [one.id if isinstance(one, ast.Name) else "" for one in targets]


def number_first(place: Place, scalars: Mapping[str, float | int]) -> bool:
    """Whether the source at a place is an operator whose left operand is a number."""
    found = statement(place)
    node = _at(found, place) if found is not None else None
    return isinstance(node, ast.BinOp) and _of_params(node.left, scalars) is not None


def number_at(place: Place, value: float, scalars: Mapping[str, float | int]) -> Expr | None:
    """The arithmetic of params in a statement that gives a number, the longest first."""
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
    """The expression of a statement that is at a place, or the statement where that is several lines long."""
    for node in ast.walk(found):
        if isinstance(node, ast.expr):
            length = (node.end_col_offset or 0) - node.col_offset
            if (node.lineno, node.col_offset + 1, length) == (place.line, place.column, place.length):
                return node
    return found


def _is_plain(expr: Expr) -> bool:
    """Whether it is of constants alone."""
    return isinstance(expr, Number) or (isinstance(expr, Apply) and all(map(_is_plain, subexpressions(expr))))


def _of_params(node: ast.expr, scalars: Mapping[str, float | int]) -> tuple[Expr, float | int] | None:
    """An expression of params and constants alone, with its value."""
    if isinstance(node, ast.Name | ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in _CONSTANTS and ast.unparse(node) == f"math.{name}":
            return Param(name), _CONSTANTS[name]
        return (Param(name), scalars[name]) if name in scalars else None
    if isinstance(node, ast.Constant):
        number = node.value
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        return (Number(number), number) if is_number else None  # type: ignore[arg-type,return-value]
    given = [_of_params(one, scalars) for one in _operands(node)]
    if not given or None in given:
        return None
    known = [one for one in given if one is not None]
    name, values = _function(node), [one[1] for one in known]
    if not name or (name == "pow" and abs(values[1]) > 64):
        return None
    try:
        value = COMPUTED[name](*values)
    except (ArithmeticError, ValueError):
        return None
    return (Apply(name, tuple(one[0] for one in known)), value) if isinstance(value, int | float) else None


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp):
        yield from (node.left, node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand
    elif isinstance(node, ast.Call) and not node.keywords and len(node.args) == 1:
        yield node.args[0]


def _function(node: ast.expr) -> str:
    if isinstance(node, ast.BinOp):
        return _OPERATORS.get(type(node.op), "")
    if isinstance(node, ast.UnaryOp):
        return "neg"
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name if name in _FUNCTIONS else ""
