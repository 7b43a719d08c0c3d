"""The gradient of `take`: each element sums the gradients of all elements that it was taken to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from ..lang.integers import bounds_in
from ..lang.ir import (
    INT64,
    Call,
    Cast,
    Choose,
    Constant,
    Dtype,
    Index,
    Load,
    Node,
    Op,
    Reduce,
    Ref,
    Scan,
    ScatterSum,
    Size,
    Take,
    Value,
    children,
    is_order,
)
from ..lang.rewrite import rebuild
from ..lang.special import is_reduced
from ..passes.contractions import is_product
from ..spec.lengths import LENGTH
from .algebra import Algebra, position
from .outcomes import decided
from .terms import ZERO

WINDOW = 16  # elements of a short convolution
_FIRST, _NOWHERE = (Constant(place, Dtype("int")) for place in (0, -1))


@dataclass(frozen=True)
class Taken:
    """Gradients by the inputs and lines that `take` reads; `axes_of` gives the axes of a tensor."""

    op: Op
    algebra: Algebra
    values: Mapping[str, Value]
    axes_of: Callable[[str], tuple[str, ...]]
    refuse: Callable[[str, str], None]

    def gradient(self, own: tuple[str, ...], at: tuple[tuple[str, Node], ...], g: Node) -> Node:
        """The gradient by the operand of a take, with the axes `own`; `g` is the gradient by the taken elements."""
        (axis, index), *others = at
        if all({*dict(at)}.isdisjoint(one.axes) and {*one.axes} <= {*own} for _, one in at):
            conditions = (self.algebra.call("eq", position(along), one) for along, one in at)
            return self.algebra.where(reduce(partial(self.algebra.call, "logical_and"), conditions), g, ZERO)
        if not others:
            if isinstance(index, Ref) and is_order(line := self.values[index.name].node) and line.over == axis:
                return self.sorted_back(own, axis, index, g)
            digits, offset = self.digits(index)
            if len(digits) > 1 and not {axis, *own} & {*digits}:
                return self.counted_back(g, axis, digits, offset)
        backs = [self.turned_back(index, axis, own) for axis, index in at]
        places = [*filter(None, backs)]
        if len(places) < len(at) or not _are_disjoint(places, at):
            return scattered(self.op, self.algebra, g, own, at)
        for taken_to, place in places:
            g = self.moved(g, taken_to, place)
        summed = tuple(axis for _, place in places for axis in place.axes if axis not in own)
        return self.algebra.reduce_sum(g, summed) if summed else g

    def sorted_back(self, own: tuple[str, ...], axis: str, order: Ref, g: Node) -> Node:
        """The gradient of taking elements in sorted order: gather `g` by the inverse permutation, `argsort(order)`."""
        places = Cast(order, Dtype("int", ("int32",)), order.axes)  # The sort compares fewer bits.
        found = self.at(g, axis, Scan("argsort", places, axis, order.axes, INT64))
        return self.algebra.summed_to(own, found)

    def turned_back(self, index: Node, axis: str, own: tuple[str, ...]) -> tuple[str, Node] | None:
        """An axis along which each element is taken at most once, and the position that it is taken to, or None: the
        index is plus or minus a position, plus a term that is constant along this axis. Axes of the term are summed if
        they are no longer, or short if the axis is not `axis`: biases by distance would sum full diagonals.
        """
        linear = self.algebra.linear(index)
        sizes = dict(self.op.sizes)
        found = [term.axis for term, times in linear.items() if isinstance(term, Index) and abs(times) == 1]
        found = [one for one in found if one == axis or one not in own]
        for taken_to in sorted(found, key=lambda one: (one != axis, -sizes.get(one, LENGTH))):
            rest = {term: times for term, times in linear.items() if term != position(taken_to)}
            others = {one for term in rest for one in term.axes}
            if taken_to != axis and axis in others:  # The index depends on the gathered axis and on another one.
                continue
            summed = math.prod(sizes.get(one, LENGTH) for one in others - {*own})
            if taken_to not in others and summed <= (sizes.get(taken_to, LENGTH) if taken_to == axis else WINDOW):
                return taken_to, self.place_of(axis, linear[position(taken_to)], rest)
        return None

    def digits(self, index: Node) -> tuple[list[str], Node]:
        """The axes that an index flattens, as `index(P, A)` does, the last being the fastest, and its offset."""
        linear = self.algebra.linear(index)
        offset = {term: times for term, times in linear.items() if not term.axes}
        found = self.counted({term: times for term, times in linear.items() if term.axes})
        return (found, self.sum_of(offset)) if len({*found}) == len(found) else ([], ZERO)

    def counted(self, linear: Mapping[Node, float]) -> list[str]:
        """The axes `P`, `A`, `B` of `(index(P) * size(A) + index(A)) * size(B) + index(B)`; none for other sums."""
        fastest = [term.axis for term, times in linear.items() if isinstance(term, Index) and times == 1]
        if len(fastest) != 1 or len(linear) > 2:
            return []
        (last,) = fastest
        size = dict(self.op.sizes).get(last)
        for term, times in linear.items():
            if term == position(last):
                continue
            if isinstance(term, Index):
                return [term.axis, last] if times == size else []
            counts = Size((last,))
            if times != 1 or not isinstance(term, Call) or term.function != "mul" or counts not in term.args:
                return []
            (slower,) = [one for one in term.args if one != counts] or [counts]
            found = self.counted(self.algebra.linear(slower))
            return [*found, last] if found else []
        return [last]

    def counted_back(self, g: Node, axis: str, digits: Sequence[str], offset: Node) -> Node:
        """The gradient of taking at a flattened index of several axes, where each element is taken at most once."""
        place: Node = position(axis) if offset == ZERO else self.algebra.call("sub", position(axis), offset)
        return self.at_place(g, digits, place)

    def taken_back(self, node: ScatterSum, g: Node) -> Node:
        """The gradient by the scattered operand: `g` at each position, 0 where the position is out of bounds."""
        return self.at_place(g, node.into, node.at)

    def at_place(self, g: Node, digits: Sequence[str], place: Node) -> Node:
        """The node at a flattened position of several axes, 0 where that is out of bounds."""
        sizes = dict(self.op.sizes)
        for digit in reversed(digits[1:]):
            size: Node = Size((digit,))
            if digit in sizes:
                g = self.at(g, digit, self.algebra.call("remainder", place, size))
            else:  # The axis may be empty: divide by at least 1; nothing was taken then.
                size = self.algebra.call("maximum", size, Constant(1, Dtype("int")))
                g = self.moved(g, digit, self.algebra.call("remainder", place, size))
            place = self.algebra.call("floor_divide", place, size)
        return self.moved(g, digits[0], place)

    def place_of(self, axis: str, times: float, rest: Mapping[Node, float]) -> Node:
        offset = self.sum_of(rest)
        ahead, behind = (position(axis), offset) if times > 0 else (offset, position(axis))
        return ahead if behind == ZERO else self.algebra.call("sub", ahead, behind)

    def sum_of(self, linear: Mapping[Node, float]) -> Node:
        found: Node = Constant(0, Dtype("int"))
        for node, count in linear.items():
            found = self.algebra.call("add", found, self.algebra.call("mul", Constant(int(count), Dtype("int")), node))
        return found

    def moved(self, g: Node, axis: str, index: Node) -> Node:
        """The node at another position along an axis, 0 where that is out of bounds."""
        tests = _tests(self.op, axis, index)
        names = {"i": index, "n": Size((axis,)), "g": self.at(g, axis, index)}
        text = f"where({' & '.join(tests)}, g, 0.0)" if tests else "g"
        return self.algebra.parsed(text, names)

    def at(self, node: Node, axis: str, index: Node) -> Node:
        """The node with its position along an axis replaced, down to its loads."""
        if axis not in node.axes:
            return node
        order = self.algebra.order
        match node:
            case Index():
                return index
            case _ if self.is_stored(node, axis, index):
                return self.taken_again(node, axis, index)
            case Ref(name=name):
                return self.at(self.values[name].node, axis, index)
            case Load() | Take():
                return self.element_at(node, axis, index)
            case Call() | Cast() | Choose():
                args = tuple(self.at(child, axis, index) for child in children(node))
                found = replace(rebuild(node, args), axes=order(tuple(a for inner in args for a in inner.axes)))
                return self.sum_of(self.algebra.linear(found)) if _is_sum_of_integers(found) else decided(found)
            case Reduce(over=over):
                arg = self.at(node.arg, axis, index)
                return replace(node, arg=arg, axes=tuple(a for a in arg.axes if a not in over))
        self.refuse("TG604", f"a reduction stands between this take along {axis} and its gradient")
        return node

    def is_stored(self, node: Node, axis: str, index: Node) -> bool:
        """Whether a node is computed once and stored, so that elements are taken from the stored tensor."""
        match node:
            case Ref():
                return is_reduced(node, axis, self.values)
            case Reduce():
                return not {*index.axes} <= {axis} or is_product(self.op, node)
        return isinstance(node, Scan | ScatterSum)

    def element_at(self, node: Load | Take, axis: str, index: Node) -> Node:
        own = node.arg.axes if isinstance(node, Take) else self.axes_of(node.name)
        moved = {a: self.at(i, axis, index) for a, i in node.at}
        if axis in own:
            moved.setdefault(axis, index)
        moved = {a: i for a, i in moved.items() if i != position(a)}
        axes = (*(a for a in own if a not in moved), *(b for i in moved.values() for b in i.axes))
        return replace(node, at=tuple(moved.items()), axes=self.algebra.order(axes))

    def taken_again(self, node: Node, axis: str, index: Node) -> Take:
        axes = self.algebra.order((*(a for a in node.axes if a != axis), *index.axes))
        return Take(node, ((axis, index),), axes, node.dtype)


def _are_disjoint(places: Sequence[tuple[str, Node]], at: tuple[tuple[str, Node], ...]) -> bool:
    """Whether the positions depend on disjoint axes, so that the gathers can be inverted one at a time."""
    read = [{*index.axes, taken_to} for (taken_to, _), (_, index) in zip(places, at, strict=True)]
    return sum(map(len, read)) == len({axis for axes in read for axis in axes})


def _tests(op: Op, axis: str, index: Node) -> list[str]:
    """The bounds checks of a position `i` along an axis of length `n`, without those that cannot fail."""
    if isinstance(index, Index) and op.is_as_long(index.axis, axis):
        return []
    before, behind = bounds_in(op).may_be_outside(index, axis)
    return ["(i >= 0)"] * before + ["(i < n)"] * behind


def is_inside(op: Op, axis: str, index: Node) -> bool:
    """Whether a position is certainly in bounds along an axis, whatever tensors hold."""
    return not _tests(op, axis, index)


def _is_sum_of_integers(node: Node) -> bool:
    return isinstance(node, Call) and node.function in ("add", "sub") and node.dtype.kind == "int"


def scattered(op: Op, algebra: Algebra, g: Node, own: tuple[str, ...], at: tuple[tuple[str, Node], ...]) -> Node:
    """The gradient of a take as a scatter-add, into a tensor with the axes `own`; `at` has the indices by axis."""
    into = tuple(axis for axis, _ in at)
    return ScatterSum(g, _positions(op, algebra, at), into, algebra.order(own), g.dtype)


def _positions(op: Op, algebra: Algebra, at: tuple[tuple[str, Node], ...]) -> Node:
    """The flattened positions along the axes of `at`: an input unchanged, or computed in int64; -1 if out of bounds."""
    (_, first), *others = at
    if not others and isinstance(first, Load) and not first.at and op.input(first.name).default is None:
        return first
    indices = [index if _is_stored(index) else Cast(index, INT64, index.axes) for _, index in at]
    if not others:
        return indices[0]
    sizes = [Size((axis,)) for axis, _ in at]
    place: Node = indices[0]
    for number, size in zip(indices[1:], sizes[1:], strict=True):
        place = algebra.plain("add", algebra.plain("mul", place, size), number)
    pairs = zip(indices, sizes, strict=True)
    bounds = [algebra.plain(*test) for n, size in pairs for test in (("ge", n, _FIRST), ("lt", n, size))]
    inside = reduce(partial(algebra.plain, "logical_and"), bounds)
    return algebra.plain("where", inside, place, _NOWHERE)


def _is_stored(index: Node) -> bool:
    """Whether positions are a line whose dtype is int64 already."""
    return isinstance(index, Ref) and index.dtype == INT64
