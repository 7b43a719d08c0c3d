"""The condition of a mask as comparisons of integers with 0, joined by and and or.

An integer is a sum of positions, quotients and the like with integer factors, so that common terms of the two sides of
a comparison cancel.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...lang.ir import Node


@dataclass(frozen=True, slots=True)
class Position:
    """A position along the axis of the blocks, or along the streamed one."""

    axis: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """An opaque integer, which is not decomposed."""

    node: Node


@dataclass(frozen=True, slots=True)
class Quotient:
    """A quotient, rounded down; the divisor is positive and uniform in a tile."""

    arg: Linear
    by: int | Leaf


@dataclass(frozen=True, slots=True)
class Product:
    """A product with a factor that is positive and uniform in a tile."""

    factor: Leaf
    arg: Linear


@dataclass(frozen=True, slots=True)
class Greatest:
    args: tuple[Linear, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    test: Condition
    then: Linear
    other: Linear


Atom = Position | Leaf | Quotient | Product | Greatest | Chosen


@dataclass(frozen=True, slots=True)
class Linear:
    """A constant, and atoms with factors that are not 0."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    def __add__(self, other: Linear) -> Linear:
        factors = dict(self.terms)
        for atom, factor in other.terms:
            factors[atom] = factors.get(atom, 0) + factor
        terms = tuple((atom, factor) for atom, factor in factors.items() if factor)
        return Linear(terms, self.constant + other.constant)

    def __mul__(self, factor: int) -> Linear:
        terms = tuple((atom, factor * one) for atom, one in self.terms if factor)
        return Linear(terms, factor * self.constant)

    def __sub__(self, other: Linear) -> Linear:
        return self + other * -1


@dataclass(frozen=True, slots=True)
class AtLeast:
    """Whether a sum is 0 or more."""

    linear: Linear


@dataclass(frozen=True, slots=True)
class Opaque:
    """A boolean of the math that is not decomposed, negated if `holds` is false."""

    node: Node
    holds: bool = True


@dataclass(frozen=True, slots=True)
class All:
    operands: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Any:
    operands: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Pick:
    """One condition or another, selected by a test that is uniform in a tile."""

    test: Opaque
    then: Condition
    other: Condition


Condition = AtLeast | Opaque | All | Any | Pick


def opposite(condition: Condition) -> Condition:
    match condition:
        case AtLeast(linear=linear):
            return AtLeast(linear * -1 + Linear(constant=-1))
        case Opaque(node=node, holds=holds):
            return Opaque(node, not holds)
        case All(operands=operands):
            return Any(tuple(map(opposite, operands)))
        case Any(operands=operands):
            return All(tuple(map(opposite, operands)))
        case Pick(test=test, then=then, other=other):
            return Pick(test, opposite(then), opposite(other))


def axes_of(atom: Atom | Linear | Condition) -> frozenset[str]:
    """The axes along which a part of a condition varies."""
    match atom:
        case Position(axis=axis):
            return frozenset((axis,))
        case Leaf(node=node) | Opaque(node=node):
            return frozenset(node.axes)
        case Quotient(arg=arg) | Product(arg=arg) | AtLeast(linear=arg):
            return axes_of(arg)
        case Greatest(args=operands) | All(operands=operands) | Any(operands=operands):
            return frozenset().union(*map(axes_of, operands))
        case Chosen(test=test, then=then, other=other) | Pick(test=test, then=then, other=other):
            return axes_of(test) | axes_of(then) | axes_of(other)
        case Linear(terms=terms):
            return frozenset().union(*(axes_of(part) for part, _ in terms))


def leaves_of(atom: Atom | Linear) -> frozenset[Leaf]:
    """The leaves that an integer is computed from, without leaves of tests."""
    match atom:
        case Leaf():
            return frozenset((atom,))
        case Quotient(arg=arg, by=by):
            return leaves_of(arg) | ({by} if isinstance(by, Leaf) else set())
        case Product(factor=factor, arg=arg):
            return leaves_of(arg) | {factor}
        case Greatest(args=args):
            return frozenset().union(*map(leaves_of, args))
        case Chosen(then=then, other=other):
            return leaves_of(then) | leaves_of(other)
        case Linear(terms=terms):
            return frozenset().union(*(leaves_of(part) for part, _ in terms))
    return frozenset()
