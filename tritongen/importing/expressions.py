"""Expressions of a spec before it is text: axes are the trace's, and have no names yet."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..lang.unparse import operation
from .axes import Axes, Dim, Dims

KEEPS_AXES = frozenset(("softmax", "log_softmax", "cumsum", "cumprod", "sort", "argsort"))
_MAKES_AXES = frozenset(("topk", "argtopk", "scatter_sum"))  # The first `Over` replaces the second.


class _Operand:
    """Operands of Python's operators, which build expressions; `+ 0` and `* 1` return the operand."""

    __slots__ = ()

    def __add__(self, other: Expr | int) -> Expr:
        return _computed("add", self, other)

    def __sub__(self, other: Expr | int) -> Expr:
        return _computed("sub", self, other)

    def __mul__(self, other: Expr | int) -> Expr:
        return _computed("mul", self, other)

    def __rmul__(self, other: int) -> Expr:
        return _computed("mul", other, self)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return _computed("floor_divide", self, other)

    def __mod__(self, other: Expr | int) -> Expr:
        return _computed("remainder", self, other)


@dataclass(frozen=True, eq=False, slots=True)
class Over:
    """Axes as an argument of a function."""

    dim: Dim


@dataclass(frozen=True, eq=False, slots=True)
class Input(_Operand):
    name: str
    dims: Dims


@dataclass(frozen=True, eq=False, slots=True)
class Param(_Operand):
    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Number(_Operand):
    value: float | int | bool


@dataclass(frozen=True, eq=False, slots=True)
class Word:
    """A dtype, as an argument of `cast`."""

    text: str


@dataclass(frozen=True, eq=False, slots=True)
class Apply(_Operand):
    """A call of a function or operator of the language; the axes of a reduction, take, index or size are an `Over`."""

    function: str
    args: tuple[Any, ...]  # expressions, Over and Word
    options: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Line(_Operand):
    """An expression that may be a line of this name, and has to be one if `required`."""

    name: str
    expr: Expr
    required: bool = False


Expr = Input | Param | Number | Apply | Line
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "floor_divide": 1}


def _computed(function: str, *given: object) -> Expr:
    args: list[Any] = [Number(int(arg)) if isinstance(arg, int) else arg for arg in given]
    constants = [arg.value if isinstance(arg, Number) and type(arg.value) is int else None for arg in args]
    for place in (1, 0) if function in ("add", "mul") else (1,):
        if constants[place] is not None and constants[place] == _NEUTRAL.get(function):
            found: Expr = args[1 - place]
            return found
    if function in ("add", "sub") and constants[1] is not None and constants[1] < 0:
        function, args[1] = "sub" if function == "add" else "add", Number(-constants[1])
    return Apply(function, tuple(args))


def size(dim: Dim) -> Expr:
    """The length of a dimension."""
    return Apply("size", (Over(dim),)) if dim else Number(1)


def subexpressions(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions of an expression."""
    if isinstance(expr, Line):
        return (expr.expr,)
    if isinstance(expr, Apply):
        given = tuple(one for one in expr.args if not isinstance(one, Over | Word))
        return given + tuple(value for _, value in expr.options)
    return ()


def mapped(expr: Apply, change: Callable[[Expr], Expr]) -> Apply:
    """The expression with `change` applied to its direct subexpressions."""
    args = tuple(one if isinstance(one, Over | Word) else change(one) for one in expr.args)
    return replace(expr, args=args, options=tuple((name, change(value)) for name, value in expr.options))


def bare(expr: Expr) -> Expr:
    """An expression without the name of its line."""
    while isinstance(expr, Line):
        expr = expr.expr
    return expr


class AxesOf:
    """The axes that expressions depend on, without axes that they were only expanded to."""

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
    """An expression in the spec language; `lines` has the names of expressions that are lines, by id."""

    def tree(expr: Expr, top: bool = False) -> ast.expr:
        if not top and id(expr) in lines:
            return ast.Name(lines[id(expr)])
        if isinstance(expr, Line):
            return tree(expr.expr, top and id(expr.expr) not in lines)
        if isinstance(expr, Input | Param):
            return ast.Name(expr.name)
        if isinstance(expr, Number):
            return number_tree(expr.value)
        args: list[ast.expr] = []
        options = [ast.keyword(name, tree(value)) for name, value in expr.options]
        for place, one in enumerate(expr.args):
            if isinstance(one, Over):
                names: list[ast.expr] = [*map(ast.Name, axis_names(one, expr))]
                if place < 3 or expr.function != "scatter_sum":
                    args += names
                elif names:
                    options += [ast.keyword("over", names[0] if len(names) == 1 else ast.Tuple(names))]
            else:
                args.append(ast.Name(one.text) if isinstance(one, Word) else tree(one))
        return _applied(expr.function, args, options)

    return tidy(ast.unparse(tree(expr, True)))


def tidy(source: str) -> str:
    """Source with exponents as people write them: `1e-5` for `1e-05`."""
    return re.sub(r"(?<=\de)([-+]?)\+?0*(\d)", r"\1\2", source)


def number_tree(value: float | int | bool) -> ast.expr:
    if isinstance(value, float) and not math.isfinite(value):
        name: ast.expr = ast.Name("nan" if value != value else "inf")
        return ast.UnaryOp(ast.USub(), name) if value < 0 else name
    if not isinstance(value, bool) and value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def _applied(function: str, args: list[ast.expr], options: list[ast.keyword]) -> ast.expr:
    if function == "pow" and isinstance(args[1], ast.UnaryOp) and isinstance(args[1].operand, ast.Constant):
        args[1] = ast.Constant(-args[1].operand.value)  # type: ignore[operator]
    return (None if options else operation(function, *args)) or ast.Call(ast.Name(function), args, options)
