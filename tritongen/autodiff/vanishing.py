"""Finds where a gradient of 0, of elements that a `where` did not choose, would meet a possibly infinite derivative.

Directly at a `where`, the algebra moves the derivative into the choice; after a sum of choices it multiplies each term.
If a choice has fewer axes, or terms have other factors, no choice decides for each element: the gradient is then set to
0 where the incoming gradient is 0. The same holds for gradients of results that are unused while others are used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from ..lang.ir import Call, Cast, Choose, Constant, Index, Load, Node, Op, Reduce, Ref, Scan, Take, children, walk
from ..passes.exponentials import resolve
from .algebra import Algebra
from .reals import IsSeen, Reals
from .taken import is_inside
from .terms import ZERO, Term, factors, is_half


@dataclass(frozen=True, slots=True)
class Vanishing:
    """Zero gradients of an operator; `seeds` may be 0: gradients of results if some may be unused, and gradients that
    earlier steps have computed. `shared` are gradients with names.
    """

    op: Op
    algebra: Algebra
    seeds: frozenset[str]
    shared: Mapping[str, Node]
    made: frozenset[str] = field(init=False)  # values that are gradients

    def __post_init__(self) -> None:
        made = {value.name for value in self.op.values if not self.seeds.isdisjoint(value.node.reads)}
        for value in self.op.values:
            made |= {value.name} if made & value.node.references else set()
        object.__setattr__(self, "made", frozenset(made))

    def choice_of(self, g: Node, axes: tuple[str, ...]) -> Node | None:
        """The elementwise choice that causes all zeros of a gradient, into which the algebra moves the derivative; None
        if there is none.
        """
        found = [factor for factor, power in factors(g).factors.items() if power > 0]
        choice = next((one for one in found if is_half(one) and axes and {*axes} <= {*one.axes}), None)
        if choice is None or any(self.vanishes(factor) for factor in found if factor is not choice):
            return None
        (side,) = [one for one in children(choice)[1:] if one != ZERO] or [ZERO]
        return choice if not self.vanishes(side) or self.choice_of(side, axes) else None

    def is_outside(self, g: Node, is_seen: IsSeen) -> bool:
        """Whether a gradient's choice has a possibly infinite factor: the algebra leaves those without axes outside."""
        return any(
            self.is_infinite(factor, is_seen) or (power < 0 and not self.reals(is_seen).is_divisor(factor))
            for factor, power in factors(g).factors.items()
            if not is_half(factor)
        )

    def vanishes(self, g: Node) -> bool:
        """Whether a gradient may be 0 because a `where` did not choose an element, or a result is unused."""
        match g:
            case Load(name=name) if name in self.shared:
                return self.vanishes(self.shared[name])
            case Load(name=name):
                return name in self.seeds
            case Ref(name=name) if name in self.made:
                return self.vanishes(self.op.value(name).node)
            case Constant():
                return g == ZERO
            case Call(function="where", args=(_, then, other)):
                return ZERO in (then, other) or (self.vanishes(then) and self.vanishes(other))
            case Choose(then=then, other=other):
                return all(self.vanishes(side) for side in (then, other) if side != ZERO)
            case Call(function="mul", args=args):
                return any(map(self.vanishes, args))
            case Call(function="add" | "sub", args=args):
                return all(map(self.vanishes, args))
            case (
                Call(function="div" | "neg", args=(arg, *_))
                | Reduce(kind="sum" | "mean", arg=arg)
                | Scan(arg=arg)
                | Cast(arg=arg)
            ):
                return self.vanishes(arg)
        return False

    def is_infinite(self, node: Node, is_seen: IsSeen) -> bool:
        """Whether a value may be infinite or NaN if inputs are not. Positions that a `where` reads are in bounds."""
        reals = self.reals(is_seen)
        left, known = [(node, frozenset[Node]())], set[tuple[Node, frozenset[Node]]]()
        while left:
            node, asked = left.pop()
            if (node, asked) in known or node.dtype.kind in ("bool", "int"):
                continue
            if self.may_be_outside(node, asked) or reals.is_undefined(node):
                return True
            known.add((node, asked))
            if isinstance(node, Call) and node.function == "where":
                asked |= {*filter(_is_position, walk(resolve(self.op, node.args[0])))}
            inner = (self.op.value(node.name).node,) if isinstance(node, Ref) else children(node)
            left += ((one, asked) for one in inner)
        return False

    def may_be_outside(self, node: Node, asked: Collection[Node]) -> bool:
        """Whether elements may be taken out of bounds, which are NaN; an index with a part in `asked` is in bounds."""
        at = node.at if isinstance(node, Load | Take) else ()
        return not all(
            is_inside(self.op, axis, index) or any(inner in asked for inner in walk(index)) for axis, index in at
        )

    def reals(self, is_seen: IsSeen) -> Reals:
        return Reals(self.op, self.algebra, is_seen)


def _is_position(node: Node) -> bool:
    return isinstance(node, Index | Load | Ref) and node.dtype.kind == "int"


def multiplied(g: Node, derivative: Node, algebra: Algebra) -> Term:
    """A gradient times a possibly infinite derivative, which choices take in if it has the axes of their conditions."""
    product = factors(g)
    for choice in filter(is_half, product.factors):
        condition, then, other = children(choice)
        if {*condition.axes} <= {*derivative.axes}:
            side, sides = (other, (ZERO, derivative)) if then == ZERO else (then, (derivative, ZERO))
            product *= Term(1.0, {choice: -1}) * factors(side)
            derivative = algebra.where(condition, *sides)
    return product * factors(derivative)


def summand(node: Node, axes: tuple[str, ...], algebra: Algebra) -> tuple[Node, tuple[str, ...]]:
    """The operand of a sum, and the axes that it sums, none of them in `axes`: `a * sum(b, D)` gives `a * b` and D.
    A node that is no such sum is returned as it is, with no axes.
    """
    product = factors(node)
    factor = next((one for one, power in product.factors.items() if power == 1 and _is_sum(one, axes)), None)
    if factor is None:
        return node, ()
    inside = algebra.product(product * Term(1.0, {factor: -1}) * factors(factor.arg))
    found, over = summand(inside, (*axes, *factor.over), algebra)
    return found, (*factor.over, *over)


def _is_sum(node: Node, axes: tuple[str, ...]) -> TypeGuard[Reduce]:
    return isinstance(node, Reduce) and node.kind == "sum" and not {*node.over} & {*axes}
