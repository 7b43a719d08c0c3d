"""What a reader would shorten: lengths of groups divided by lengths of their parts, and detaching nothing."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from .axes import Axes
from .expressions import Apply, Expr, Input, Line, Number, Over, Word, parts


class Simpler:
    """Expressions with simpler ones in their place; what is shared stays shared."""

    def __init__(self, axes: Axes, smooth: Container[str]) -> None:
        self._axes = axes
        self._smooth = smooth  # inputs that gradients are taken by
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
        args = tuple(one if isinstance(one, Over | Word) else self(one) for one in expr.args)
        options = tuple((name, self(value)) for name, value in expr.options)
        if expr.function == "floor_divide":
            size = self._quotient(*args)
            if size is not None:
                return size
        if expr.function == "detach" and not self._reads_smooth(parts(expr)[0]):
            assert not isinstance(args[0], Over | Word)
            return args[0]
        same = all(one is other for one, other in zip(args, expr.args, strict=True))
        return expr if same and options == expr.options else Apply(expr.function, args, options)

    def _reads_smooth(self, expr: Expr) -> bool:
        """Whether a gradient passes through an expression."""
        left, seen = [expr], set[int]()
        while left:
            one = left.pop()
            if isinstance(one, Input) and one.name in self._smooth:
                return True
            if id(one) not in seen and not (isinstance(one, Apply) and one.function == "detach"):
                left += parts(one)
            seen.add(id(one))
        return False

    def _quotient(self, size: object, by: object) -> Expr | None:
        """`size(H, D) // 4` is `size(D)` where H is 4 long."""
        if not (isinstance(size, Apply) and size.function == "size" and isinstance(by, Number)):
            return None
        over = size.args[0]
        assert isinstance(over, Over)
        atoms = self._axes.atoms(over.dim)
        left = tuple(axis for axis in atoms if not self._axes.is_fixed(axis))
        stated = [axis for axis in atoms if self._axes.is_fixed(axis)]
        if stated and self._axes.length(stated) == by.value:
            return Apply("size", (Over(left),)) if left else Number(1)
        return None
