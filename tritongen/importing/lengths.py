"""Lengths of axes that no input has, as [axes] of a spec computes them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from functools import reduce
from itertools import count
from operator import mul

from .axes import Axes
from .expressions import Apply, Expr, Number, Over, Param, bare, mapped, size, subexpressions, text
from .naming import along, reachable

_FUNCTIONS = frozenset("add sub mul neg floor_divide remainder minimum maximum size".split())


class Computed:
    """Axes that no input has, with their lengths, each after the axes that its length depends on."""

    def __init__(self, axes: Axes, lengths: Mapping[int, Expr]) -> None:
        self._axes, self._lengths = axes, lengths
        self.of: dict[int, Expr] = {}

    def has(self, axis: int) -> bool:
        """Whether an input has an axis or its length can be computed; the length is recorded then."""
        if axis in self.of or self._axes[axis].is_input:
            return True
        first = self._axes.root(axis)
        length = size((first,)) if first != axis else self._lengths.get(axis)
        if length is None and self._axes[axis].fixed:
            length = Number(self._axes.length((axis,)))
        if length is None or not is_length(length):
            return False
        if all(self.has(one) for _, read in along(reachable([length]), self._axes) for one in read):
            self.of[axis] = length
        return axis in self.of

    @property
    def firsts(self) -> list[int]:
        """The axes that are no second names of others."""
        return [axis for axis in self.of if self._axes.root(axis) == axis]

    def seconds(self, names: Mapping[int, str], reserved: Container[str]) -> dict[int, str]:
        """Names of the remaining axes: the first axis's name, and a number."""
        found: dict[int, str] = {}
        for axis in self.of:
            first = self._axes.root(axis)
            if first != axis:
                choices = (f"{names[first]}{number}" for number in count(2))
                used = {*names.values(), *found.values()}
                found[axis] = next(name for name in choices if name not in used and name not in reserved)
        return found

    def lines(self, names: Mapping[int, str]) -> Iterator[str]:
        """The lines of [axes], except for axes that were joined or split since."""
        for axis, length in self.of.items():
            if self._axes.atoms((axis,)) == (axis,):
                yield length_line(names[axis], length, lambda over: [names[one] for one in self._axes.atoms(over.dim)])


def is_length(expr: Expr) -> bool:
    """Whether [axes] can express a length: integer arithmetic of lengths, params and integers."""
    expr = bare(expr)
    if isinstance(expr, Number):
        return isinstance(expr.value, int) and not isinstance(expr.value, bool)
    if isinstance(expr, Apply):
        return expr.function in _FUNCTIONS and all(map(is_length, subexpressions(expr)))
    return isinstance(expr, Param)


def length_line(axis: str, length: Expr, names: Callable[[Over], list[str]]) -> str:
    """The line of [axes] for an axis: `P = "N - K + 1"`."""

    def named(expr: Expr) -> Expr:
        expr = bare(expr)
        if not isinstance(expr, Apply):
            return expr
        if expr.function == "size":
            sizes: list[Expr] = [Param(name) for over in expr.args if isinstance(over, Over) for name in names(over)]
            return reduce(mul, sizes)
        return mapped(expr, named)

    source = text(named(length), lambda *_: [], {})
    return f"{axis} = {source}" if source.isdecimal() else f'{axis} = "{source}"'
