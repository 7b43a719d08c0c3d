"""Expressions of a spec while it is written: axes are those of the trace, and have no names yet."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..lang.unparse import operation
from .axes import Axes, Dim, Dims

KEEPS_AXES = frozenset(("softmax", "log_softmax", "cumsum", "cumprod", "sort", "argsort"))
_MAKES_AXES = frozenset(("topk", "argtopk", "scatter_sum"))  # The first that they name, of the others.


@dataclass(frozen=True, eq=False, slots=True)
class Over:
    """Axes as arguments of a function."""

    dim: Dim


@dataclass(frozen=True, eq=False, slots=True)
class Input:
    name: str
    dims: Dims


@dataclass(frozen=True, eq=False, slots=True)
class Param:
    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Number:
    value: float | int | bool


@dataclass(frozen=True, eq=False, slots=True)
class Word:
    """A dtype, as an argument of `cast`."""

    text: str


@dataclass(frozen=True, eq=False, slots=True)
class Apply:
    """A function or an operator of the language; `axes` of a reduction, a take, an index or a size are an `Over`."""

    function: str
    args: tuple[Expr | Over | Word, ...]
    options: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Line:
    """What may be a line of its own, under this name; it must be one if it is `required` (required)."""

    name: str
    expr: Expr
    required: bool = False


Expr = Input | Param | Number | Apply | Line


def subexpressions(expr: Expr) -> tuple[Expr, ...]:
    """The expressions that one is made of directly."""
    if isinstance(expr, Line):
        return (expr.expr,)
    if isinstance(expr, Apply):
        given = tuple(one for one in expr.args if not isinstance(one, Over | Word))
        return given + tuple(value for _, value in expr.options)
    return ()


def bare(expr: Expr) -> Expr:
    """An expression without the name of its line."""
    while isinstance(expr, Line):
        expr = expr.expr
    return expr


class AxesOf:
    """The axes that expressions really have, whatever dimensions they were expanded to."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._known: dict[int, tuple[Expr, frozenset[int]]] = {}
        self._changes = axes.changes

    def __call__(self, expr: Expr) -> frozenset[int]:
        if self._changes != self._axes.changes:
            self._known.clear()
            self._changes = self._axes.changes
        known = self._known.get(id(expr))
        if known is None:
            self._known[id(expr)] = known = (expr, self._of(expr))
        return known[1]

    def _of(self, expr: Expr) -> frozenset[int]:
        if isinstance(expr, Input):
            return frozenset(self._axes.all_atoms(expr.dims))
        found = frozenset[int]().union(*map(self, subexpressions(expr)))
        if not isinstance(expr, Apply):
            return found
        overs = [frozenset(self._axes.atoms(one.dim)) for one in expr.args if isinstance(one, Over)]
        if expr.function in _MAKES_AXES:
            return (found - overs[1]) | overs[0]
        over = frozenset[int]().union(*overs)
        if expr.function == "index":
            return over
        if expr.function == "size":
            return frozenset()
        if expr.function == "take":
            arg, index, *_ = subexpressions(expr)
            return (self(arg) - over) | self(index)
        return found if expr.function in KEEPS_AXES else found - over


def text(expr: Expr, axis_names: Callable[[Over, Expr], list[str]], lines: Mapping[int, str]) -> str:
    """An expression in the spec language; `lines` are the names of those that have one, by identity."""
    return tidy(ast.unparse(_tree(expr, axis_names, lines, True)))


def tidy(source: str) -> str:
    """Numbers as people write them."""
    return re.sub(r"(?<=\de)([-+]?)\+?0*(\d)", r"\1\2", source)


def number_tree(value: float | int | bool) -> ast.expr:
    if isinstance(value, float) and not math.isfinite(value):
        name: ast.expr = ast.Name("nan" if value != value else "inf")
        return ast.UnaryOp(ast.USub(), name) if value < 0 else name
    if not isinstance(value, bool) and value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def _tree(
    expr: Expr, axis_names: Callable[[Over, Expr], list[str]], lines: Mapping[int, str], top: bool = False
) -> ast.expr:
    if not top and id(expr) in lines:
        return ast.Name(lines[id(expr)])
    if isinstance(expr, Line):
        return _tree(expr.expr, axis_names, lines, top and id(expr.expr) not in lines)
    if isinstance(expr, Input | Param):
        return ast.Name(expr.name)
    if isinstance(expr, Number):
        return number_tree(expr.value)
    args: list[ast.expr] = []
    options = [ast.keyword(name, _tree(value, axis_names, lines)) for name, value in expr.options]
    for place, one in enumerate(expr.args):
        if isinstance(one, Over):
            names: list[ast.expr] = [*map(ast.Name, axis_names(one, expr))]
            if place < 3 or expr.function != "scatter_sum":
                args += names
            elif names:
                options += [ast.keyword("over", names[0] if len(names) == 1 else ast.Tuple(names))]
        else:
            args.append(ast.Name(one.text) if isinstance(one, Word) else _tree(one, axis_names, lines))
    return _applied(expr.function, args, options)


def _applied(function: str, args: list[ast.expr], options: list[ast.keyword]) -> ast.expr:
    if function == "pow" and isinstance(args[1], ast.UnaryOp) and isinstance(args[1].operand, ast.Constant):
        args[1] = ast.Constant(-args[1].operand.value)  # type: ignore[operator]
    return (None if options else operation(function, *args)) or ast.Call(ast.Name(function), args, options)
