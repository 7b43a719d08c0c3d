"""Integers and booleans: conditions as they are read, and what a kernel computes once for a tile.

A condition has positions, and values that vary along both axes. Ends of ranges and tests of tiles have the ends and
extremes of the tile in their place. All integers are int64. `Sum` and most calls are made by the functions below, which
simplify what they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from ...lang.ir import Node


@dataclass(frozen=True, slots=True)
class Number:
    """An integer or boolean constant."""

    value: int | bool


@dataclass(frozen=True, slots=True)
class Position:
    """A position along the axis of the blocks, or along the streamed one."""

    axis: str


@dataclass(frozen=True, slots=True)
class First:
    """The first position of the tile along an axis."""

    axis: str


@dataclass(frozen=True, slots=True)
class Last:
    """The last position of the tile along an axis; the tile has it."""

    axis: str


@dataclass(frozen=True, slots=True)
class Value:
    """An integer or boolean of the math, uniform in the tile (a param, a length, a load along outer axes) unless a
    condition is only read.
    """

    node: Node


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least or greatest of an integer over the tile's positions along the one axis that it varies along.

    For a boolean: whether all ("min") or any ("max") are true.
    """

    kind: Literal["min", "max"]
    node: Node
    axis: str


@dataclass(frozen=True, slots=True)
class Sum:
    """A constant, and terms with integer factors that are not 0."""

    terms: tuple[tuple[Expression, int], ...]
    constant: int


@dataclass(frozen=True, slots=True)
class Apply:
    """Integers: "mul", "floor_divide" (by a positive divisor; rounds down), "minimum", "maximum", "where", "held".

    Booleans: "ge", "gt", "and", "or", "not". "not" and "held" take one argument, "where" a boolean and two integers,
    "minimum", "maximum", "and" and "or" two or more, the others two. "held" clamps an integer to ±HELD if arithmetic on
    it might overflow otherwise; that suffices because it is compared with positions.

    Conditions compare by "ge" with 0, have "where" for a choice of two conditions by a test that is uniform, and "mul"
    has a factor that is positive and uniform first.
    """

    function: str
    args: tuple[Expression, ...]


Expression = Number | Position | First | Last | Value | Extreme | Sum | Apply

HELD = 2**48

TRUE, FALSE, ZERO = Number(True), Number(False), Number(0)


def subexpressions(expression: Expression) -> Iterator[Expression]:
    """The expression and its subexpressions."""
    yield expression
    match expression:
        case Sum(terms=terms):
            for term, _ in terms:
                yield from subexpressions(term)
        case Apply(args=args):
            for arg in args:
                yield from subexpressions(arg)


def leaves(expression: Expression, tests: bool = True) -> frozenset[Position | Value]:
    """The positions and values that an expression reads; without `tests`, not those of the tests of choices."""
    match expression:
        case Position() | Value():
            return frozenset((expression,))
        case Sum(terms=terms):
            return frozenset().union(*(leaves(operand, tests) for operand, _ in terms))
        case Apply(function=function, args=args):
            return frozenset().union(*(leaves(arg, tests) for arg in args[function == "where" and not tests :]))
    return frozenset()


def axes_of(expression: Expression) -> frozenset[str]:
    """The axes along which a part of a condition varies."""
    axes = ((leaf.axis,) if isinstance(leaf, Position) else leaf.node.axes for leaf in leaves(expression))
    return frozenset(axis for own in axes for axis in own)


def unheld(expression: Expression) -> Expression:
    """The expression without "held": integers are not clamped."""
    match expression:
        case Sum(terms=terms, constant=constant):
            return total(*((unheld(term), factor) for term, factor in terms), constant=constant)
        case Apply(function="held", args=(arg,)):
            return arg
        case Apply(function=function, args=args):
            return Apply(function, tuple(map(unheld, args)))
    return expression


def replaced(expression: Expression, leaf: Callable[[Expression], Expression]) -> Expression:
    """The expression with `leaf` applied to its leaves, simplified."""

    def of(operand: Expression) -> Expression:
        return replaced(operand, leaf)

    match expression:
        case Sum(terms=terms, constant=constant):
            return total(*((of(term), factor) for term, factor in terms), constant=constant)
        case Apply(function="minimum" | "maximum" as function, args=args):
            return _extreme(function, tuple(map(of, args)))
        case Apply(function="mul", args=(left, right)):
            return times(of(left), of(right))
        case Apply(function="floor_divide", args=(above, by)):
            return floor_divided(of(above), of(by))
        case Apply(function="where", args=(test, then, other)):
            return chosen(of(test), of(then), of(other))
        case Apply(function=function, args=args):
            return Apply(function, tuple(map(of, args)))
    return leaf(expression)


# Integers


def total(*terms: tuple[Expression, int], constant: int = 0) -> Expression:
    """The sum of expressions times factors."""
    factors: dict[Expression, int] = {}
    for term, factor in terms:
        inner: tuple[tuple[Expression, int], ...] = ((term, 1),)
        if isinstance(term, Number):
            inner, constant = (), constant + factor * term.value
        elif isinstance(term, Sum):
            inner, constant = term.terms, constant + factor * term.constant
        for operand, times in inner:
            factors[operand] = factors.get(operand, 0) + factor * times
    left = tuple(sorted(((operand, factor) for operand, factor in factors.items() if factor), key=_in_order))
    if not left:
        return Number(constant)
    return left[0][0] if left[0][1] == 1 and len(left) == 1 and not constant else Sum(left, constant)


def _in_order(term: tuple[Expression, int]) -> tuple[bool, bool]:
    """The sort key of a term: added before subtracted ones, and positions before others."""
    return term[1] < 0, not isinstance(term[0], Position | First | Last)


def plus(expression: Expression, constant: int) -> Expression:
    return total((expression, 1), constant=constant)


def times(left: Expression, right: Expression) -> Expression:
    """The product, distributed over the terms of a sum."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Number):
            return total((other, one.value))
        if isinstance(one, Sum):
            products = ((times(operand, other), factor) for operand, factor in one.terms)
            return total(*products, (other, one.constant))
    return Apply("mul", (left, right))


def floor_divided(expression: Expression, by: Expression) -> Expression:
    """The quotient by a positive divisor, rounded down."""
    match expression, by:
        case _, Number(value=1):
            return expression
        case Number(value=value), Number(value=divisor):
            return Number(value // divisor)
        case Sum(terms=terms, constant=constant), Number(value=divisor) if all(f % divisor == 0 for _, f in terms):
            return total(*((operand, factor // divisor) for operand, factor in terms), constant=constant // divisor)
    return Apply("floor_divide", (expression, by))


def least(*args: Expression) -> Expression:
    return _extreme("minimum", args)


def greatest(*args: Expression) -> Expression:
    return _extreme("maximum", args)


def _extreme(function: str, args: tuple[Expression, ...]) -> Expression:
    """The least or greatest of some integers. Of those that differ by a constant, one remains."""
    pick = min if function == "minimum" else max
    constants: dict[tuple[tuple[Expression, int], ...], int] = {}
    for arg in args:
        flat = arg.args if isinstance(arg, Apply) and arg.function == function else (arg,)
        for each in flat:
            terms, constant = split(each)
            constants[terms] = pick(constants.get(terms, constant), constant)
    left = [total(*terms, constant=constant) for terms, constant in constants.items()]
    left.sort(key=lambda each: isinstance(each, Number))
    return left[0] if len(left) == 1 else Apply(function, tuple(left))


def split(expression: Expression) -> tuple[tuple[tuple[Expression, int], ...], int]:
    """The terms of an integer, each with its factor, and the constant."""
    match expression:
        case Number(value=value):
            return (), value
        case Sum(terms=terms, constant=constant):
            return terms, constant
    return ((expression, 1),), 0


def chosen(test: Expression, then: Expression, other: Expression) -> Expression:
    if isinstance(test, Number):
        return then if test.value else other
    return then if then == other else Apply("where", (test, then, other))


# Booleans


def nonnegative(expression: Expression) -> Expression:
    """Whether an integer is 0 or more, by a comparison without subtractions."""
    terms, constant = split(expression)
    if not terms:
        return Number(constant >= 0)
    more = [(operand, factor) for operand, factor in terms if factor > 0]
    less = [(operand, -factor) for operand, factor in terms if factor < 0]
    if constant == -1:
        return Apply("gt", (total(*more), total(*less)))
    return Apply("ge", (total(*more, constant=max(constant, 0)), total(*less, constant=max(-constant, 0))))


def all_of(*tests: Expression) -> Expression:
    return _joined("and", tests, neutral=TRUE, absorbing=FALSE)


def any_of(*tests: Expression) -> Expression:
    return _joined("or", tests, neutral=FALSE, absorbing=TRUE)


def _joined(function: str, tests: tuple[Expression, ...], neutral: Number, absorbing: Number) -> Expression:
    flat: dict[Expression, None] = {}
    for test in tests:
        for each in test.args if isinstance(test, Apply) and test.function == function else (test,):
            flat[each] = None
    if absorbing in flat:
        return absorbing
    left = [test for test in flat if test != neutral]
    return Apply(function, tuple(left)) if len(left) > 1 else left[0] if left else neutral


def negated(test: Expression) -> Expression:
    match test:
        case Number(value=value):
            return Number(not value)
        case Apply(function="not", args=(inner,)):
            return inner
    return Apply("not", (test,))


def at_least_0(expression: Expression) -> Expression:
    """Whether an integer is 0 or more, as conditions ask it."""
    return Apply("ge", (expression, ZERO))


def opposite(condition: Expression) -> Expression:
    """The negation of a condition, in its comparisons and values."""
    match condition:
        case Apply(function="ge", args=(linear, _)):
            return at_least_0(total((linear, -1), constant=-1))
        case Apply(function="and" | "or" as function, args=operands):
            return Apply("or" if function == "and" else "and", tuple(map(opposite, operands)))
        case Apply(function="where", args=(test, then, other)):
            return Apply("where", (test, opposite(then), opposite(other)))
    return negated(condition)
