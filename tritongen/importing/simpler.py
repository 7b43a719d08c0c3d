"""Simplifies expressions: quotients of lengths, positions plus 0 or taken at positions, conditions and True, and
`detach` of math without a gradient.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from .axes import Axes
from .expressions import Apply, Expr, Input, Line, Number, Over, bare, mapped, size, subexpressions


class Simpler:
    """Simplifies expressions; shared subexpressions stay shared."""

    def __init__(self, axes: Axes, smooth: Container[str]) -> None:
        self._axes = axes
        self._smooth = smooth  # inputs with gradients
        self._known: dict[int, tuple[Expr, Expr]] = {}

    def __call__(self, expr: Expr) -> Expr:
        if id(expr) not in self._known:
            self._known[id(expr)] = expr, self._made(expr)
        return self._known[id(expr)][1]

    def _made(self, expr: Expr) -> Expr:
        if isinstance(expr, Line):
            return replace(expr, expr=self(expr.expr))
        if not isinstance(expr, Apply):
            return expr
        made = mapped(expr, self)
        args = made.args
        shorter: Expr | None = None
        if expr.function == "floor_divide":
            shorter = self._quotient(*args)
        elif expr.function == "detach" and not self._reads_smooth(expr.args[0]):
            shorter = args[0]
        elif expr.function == "take" and not expr.options:
            shorter = self._moved(*args)
        elif expr.function in _ADDED | _JOINED:
            shorter = _without_neutral(expr.function, *args)
        return made if shorter is None else shorter

    def _reads_smooth(self, expr: Expr) -> bool:
        """Whether a gradient passes through an expression."""
        left, seen = [expr], set[int]()
        while left:
            one = left.pop()
            if isinstance(one, Input) and one.name in self._smooth:
                return True
            if id(one) not in seen and not (isinstance(one, Apply) and one.function == "detach"):
                left += subexpressions(one)
            seen.add(id(one))
        return False

    def _moved(self, expr: Expr, at: Expr, over: Over) -> Expr | None:
        """`take(x, index(M), M)` is x, and `take(index(M2) * 2, index(M), M2)` is `index(M) * 2`."""
        if not (isinstance(at, Apply) and at.function == "index"):
            return None
        axes, others = (self._axes.atoms(one.dim) for one in (over, at.args[0]))
        if axes == others:
            return expr
        is_other_name = len(axes) == 1 and [*map(self._axes.root, axes)] == [*map(self._axes.root, others)]
        if not is_other_name or not _is_of_positions(expr):
            return None

        def moved(one: Expr) -> Expr:
            one = bare(one)
            if not isinstance(one, Apply) or one.function == "size":
                return one
            if one.function == "index":
                return at if self._axes.atoms(one.args[0].dim) == axes else one
            return mapped(one, moved)

        return moved(expr)

    def _quotient(self, length: object, by: object) -> Expr | None:
        """`size(H, D) // 4` is `size(D)` if H has length 4."""
        if not (isinstance(length, Apply) and length.function == "size" and isinstance(by, Number)):
            return None
        atoms = self._axes.atoms(length.args[0].dim)
        left = tuple(axis for axis in atoms if not self._axes[axis].fixed)
        stated = [axis for axis in atoms if self._axes[axis].fixed]
        if stated and self._axes.length(stated) == by.value:
            return size(left)
        return None


_ADDED = frozenset(("add", "sub"))
_JOINED = frozenset(("logical_and", "bitwise_and"))
_CONDITIONS = _JOINED | frozenset("lt le gt ge eq ne logical_or logical_not".split())


def _without_neutral(function: str, one: Expr, other: Expr) -> Expr | None:
    """The other operand, if one is neutral: `index(N) + 0` of positions, `True & (index(N) <= index(M))`."""
    neutral, fits = (True, _is_condition) if function in _JOINED else (0, _is_position)
    if _is(other, neutral) and fits(one):
        return one
    return other if function != "sub" and _is(one, neutral) and fits(other) else None


def _is(expr: Expr, number: int) -> bool:
    return isinstance(expr, Number) and type(expr.value) is type(number) and expr.value == number


def _is_condition(expr: Expr) -> bool:
    found = bare(expr)
    return isinstance(found, Apply) and found.function in _CONDITIONS


def _is_position(expr: Expr) -> bool:
    """Whether an expression is integer arithmetic of positions and lengths."""
    found = bare(expr)
    if isinstance(found, Apply) and found.function == "cast":
        return str(found.args[1].text).startswith("int")
    if isinstance(found, Apply) and found.function in _ADDED | {"mul", "neg"}:
        return all(map(_is_position, subexpressions(found)))
    is_made = isinstance(found, Apply) and found.function in ("index", "size")
    return is_made or (isinstance(found, Number) and type(found.value) is int)


def _is_of_positions(expr: Expr) -> bool:
    """Whether an expression is elementwise math of positions, lengths and scalars only."""
    found = bare(expr)
    if isinstance(found, Apply) and found.function not in ("index", "size"):
        return not any(isinstance(one, Over) for one in found.args) and all(
            map(_is_of_positions, subexpressions(found))
        )
    return not isinstance(found, Input)
