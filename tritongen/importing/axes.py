"""Axes of traced tensors: which dimensions are one axis, by how they are used, and which are groups of several.

A dimension is a tuple of axes, the last of which varies fastest; () is a dimension of length 1, which broadcasts.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .refusals import Refusal

TWICE = (
    "two dimensions of one tensor are the same axis",
    "an axis has one name: pass what it is of twice, as two arguments",
)
_VIEW = ("a view across dimensions", "only groups of whole axes have a name")

Dim = tuple[int, ...]
Dims = tuple[Dim, ...]


@dataclass(slots=True)
class Axis:
    length: int  # in the trace
    fixed: bool = False  # whether the math holds for this length alone
    is_input: bool = False  # whether an input has it
    factors: Dim = ()  # the axis that it was joined to, or the axes that it was split into
    wishes: list[tuple[int, str]] = field(default_factory=list)  # ranks and names; low ranks win
    formula: object = None  # its length, of lengths of inputs, if the trace knows it
    first: int = -1  # the axis that it is a second name of
    coexisting: set[int] = field(default_factory=set)  # axes that some value has together with it


class Axes:
    """Axes that are joined and split as operators use them."""

    def __init__(self) -> None:
        self._all: list[Axis] = []
        self.changes = 0  # how often axes were joined or split

    def __getitem__(self, axis: int) -> Axis:
        return self._all[axis]

    def new(self, length: int, *, fixed: bool = False, is_input: bool = False, formula: object = None) -> Dim:
        """A dimension of one new axis; () for length 1."""
        if length == 1:
            return ()
        self._all.append(Axis(length, fixed, is_input, formula=formula))
        return (len(self._all) - 1,)

    def one(self) -> Dim:
        """A dimension of length 1 that is an axis of its own."""
        self._all.append(Axis(1, True, True, wishes=[(5, "U"), (5, "V")]))
        return (len(self._all) - 1,)

    def again(self, axis: int, used: Container[int]) -> int:
        """A second name for an axis, for a value that has it twice: an existing one not in `used`, or a new one."""
        root = self.root(axis)
        for other in range(len(self._all)):
            if not self._all[other].factors and other not in used and self.root(other) == root:
                return other
        first = self._all[root]
        self._all.append(Axis(first.length, first.fixed, formula=first.formula, first=root))
        self.note((root, len(self._all) - 1))
        return len(self._all) - 1

    def root(self, axis: int) -> int:
        """The axis that one is a second name of, or itself."""
        (axis,) = self.atoms((axis,))
        first = self._all[axis].first
        return axis if first < 0 else self.root(first)

    def equate(self, one: int, other: int) -> None:
        """Makes two axes have one length: the later one becomes a second name of the other."""
        first, second = sorted((self.root(one), self.root(other)))
        if self._all[first].fixed or self._all[second].fixed:
            self.fix((first, second))
        if first != second:
            self._all[second].first = first

    def note(self, axes: Iterable[int]) -> None:
        """Notes axes that some value has together, so that they stay different."""
        axes = set(axes)
        for axis in axes:
            self._all[axis].coexisting |= axes - {axis}

    def may_join(self, one: int, other: int) -> bool:
        """Whether no value has both of two axes."""
        return other not in self._all[one].coexisting

    def atoms(self, dim: Iterable[int]) -> Dim:
        """The current axes of a dimension, after all joins and splits."""
        found: list[int] = []
        for axis in dim:
            factors = self._all[axis].factors
            found += self.atoms(factors) if factors else (axis,)
        return tuple(found)

    def all_atoms(self, dims: Iterable[Dim]) -> Dim:
        return tuple(axis for dim in dims for axis in self.atoms(dim))

    def length(self, dim: Iterable[int]) -> int:
        return math.prod(self._all[axis].length for axis in dim)

    def join(self, one: Dim, other: Dim) -> None:
        """Makes two dimensions one. Raises `Refusal` if some value has both."""
        for a, b in self.pairs(one, other):
            if not self.may_join(a, b):
                raise Refusal(*TWICE)
            self.merge(a, b)

    def pairs(self, one: Dim, other: Dim) -> Iterator[tuple[int, int]]:
        """Yields pairs of different axes of two dimensions, splitting axes to the same lengths. Raises `Refusal`."""
        left, right = list(self.atoms(one)), list(self.atoms(other))
        if self.length(left) != self.length(right):
            message = f"lengths {self.length(left)} and {self.length(right)} do not fit"
            raise Refusal(message, "dimensions are the same axis only where their lengths are")
        while left and right:
            a, b = left.pop(0), right.pop(0)
            first, second = self._all[a].length, self._all[b].length
            if max(first, second) % min(first, second):
                raise Refusal("two groups of axes that do not fit", "give the dimensions the same groups")
            if first > second:
                self._split(a, second, False)
            elif second > first:
                self._split(b, first, False)
            (a, *rest), (b, *others) = self.atoms((a,)), self.atoms((b,))
            left, right = [*self.atoms((*rest, *left))], [*self.atoms((*others, *right))]
            if a != b:
                yield a, b
                left, right = [*self.atoms(left)], [*self.atoms(right)]

    def merge(self, a: int, b: int) -> None:
        """Joins axis `b` to axis `a`."""
        self.changes += 1
        one, other = self._all[a], self._all[b]
        roots = sorted({self.root(a), self.root(b)} - {a, b})
        one.fixed |= other.fixed
        one.is_input |= other.is_input
        one.wishes += other.wishes
        one.formula = one.formula if one.formula is not None else other.formula
        other.factors, other.first = (a,), -1
        for axis in roots:
            self.equate(a, axis)
        for axis in other.coexisting:
            self._all[axis].coexisting = self._all[axis].coexisting - {b} | {a}
        one.coexisting |= other.coexisting

    def _split(self, axis: int, outer: int, fixed: bool, inner_fixed: bool = False) -> tuple[int, int]:
        """Splits an axis and its second names into `outer` times the rest."""
        root = self.root(axis)
        same = [one for one, own in enumerate(self._all) if not own.factors and self.root(one) == root]
        made = {one: self._split_alone(one, outer, fixed, inner_fixed) for one in sorted(same, key=root.__ne__)}
        for one in same:
            for piece, first in zip(made[one], made[root], strict=True):
                self._all[piece].first = first if one != root else -1
        return made[axis]

    def _split_alone(self, axis: int, outer: int, fixed: bool, inner_fixed: bool) -> tuple[int, int]:
        self.changes += 1
        product = self._all[axis]
        (first,) = self.new(outer, fixed=fixed or product.fixed, is_input=product.is_input)
        (second,) = self.new(product.length // outer, fixed=inner_fixed or product.fixed, is_input=product.is_input)
        product.factors, product.first = (first, second), -1
        self.note({first, second})
        for other in product.coexisting:
            self._all[other].coexisting -= {axis}
            self.note({other, first})
            self.note({other, second})
        return first, second

    def regroup(self, dims: Iterable[Dim], lengths: Sequence[tuple[int, bool]]) -> Dims:
        """The same elements in dimensions of `lengths`, each with whether the program fixes it. Raises `Refusal`."""
        left, before = list(self.all_atoms(dims)), len(self._all)
        result: list[Dim] = []
        for length, fixed in lengths:
            dim = self._cut(left, length, fixed, False, _VIEW)
            if fixed and len(dim) == 1 and dim[0] >= before:  # The rest of an axis that was split here.
                self.fix(dim)
            result.append(dim)
        if left:
            raise Refusal("a view that does not fit")
        return tuple(result)

    def _cut(self, left: list[int], length: int, fixed: bool, rest_fixed: bool, why: tuple[str, str]) -> Dim:
        """Removes the first axes of `left`, `length` elements in all; the last one may be split. Raises `Refusal`."""
        dim: list[int] = []
        while self.length(dim) < length:
            if not left:
                raise Refusal("a view that does not fit")
            axis = left.pop(0)
            wanted, has = length // self.length(dim), self._all[axis].length
            if has > wanted:
                if has % wanted:
                    raise Refusal(*why)
                axis, rest = self._split(axis, wanted, fixed, rest_fixed)
                left.insert(0, rest)
            dim.append(axis)
        if self.length(dim) != length:
            raise Refusal(*why)
        return tuple(dim)

    def divide(self, dim: Dim, outer: int, *, outer_fixed: bool = False, inner_fixed: bool = False) -> tuple[Dim, Dim]:
        """Splits a dimension into one of length `outer` and an inner one. Raises `Refusal`."""
        left = list(self.atoms(dim))
        taken = self._cut(left, outer, outer_fixed, inner_fixed, ("parts that are no whole groups", ""))
        if outer_fixed:
            self.fix(taken)
        return taken, tuple(left)

    def fix(self, dim: Iterable[int]) -> None:
        """Notes that the math holds for these lengths alone."""
        for axis in self.atoms(dim):
            self._all[axis].fixed = True

    def is_joined(self, dim: Dim) -> bool:
        """Whether an input has one of the axes."""
        return any(self._all[axis].is_input for axis in self.atoms(dim))

    def is_as_long(self, one: int, other: int) -> bool:
        """Whether two axes have equal lengths in any call: both fixed, or with the same formula."""
        a, b = self._all[one], self._all[other]
        return a.length == b.length and ((a.fixed and b.fixed) or (a.formula is not None and a.formula == b.formula))

    def wish(self, dim: Iterable[int], names: str, rank: int = 1) -> None:
        """Adds names that suit a dimension of one axis, the best first; lower ranks win."""
        axes = self.atoms(dim)
        if len(axes) == 1:
            self._all[axes[0]].wishes += [(rank, name) for name in names.split()]
