"""The gradient of `take` where elements may be taken several times: a scatter-add."""

from __future__ import annotations

import functools

from ..lang.ir import INT64, Cast, Constant, Dtype, Load, Node, Op, Ref, ScatterSum, Size
from .algebra import Algebra

_ZERO = Constant(0, Dtype("int"))
_NOWHERE = Constant(-1, Dtype("int"))


def scattered(op: Op, algebra: Algebra, g: Node, own: tuple[str, ...], at: tuple[tuple[str, Node], ...]) -> Node:
    """The gradient by what has the axes `own` and is taken from at some positions along some of them."""
    into = tuple(axis for axis, _ in at)
    return ScatterSum(g, _positions(op, algebra, at), into, algebra.order(own), g.dtype)


def _positions(op: Op, algebra: Algebra, at: tuple[tuple[str, Node], ...]) -> Node:
    """The positions among all elements along some axes: a tensor as it is, or computed in int64."""
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
    bounds = [algebra.plain(*test) for n, size in pairs for test in (("ge", n, _ZERO), ("lt", n, size))]
    inside = functools.reduce(functools.partial(algebra.plain, "logical_and"), bounds)
    return algebra.plain("where", inside, place, _NOWHERE)


def _is_stored(index: Node) -> bool:
    """Whether positions are a line in the dtype that they are stored in."""
    return isinstance(index, Ref) and index.dtype == INT64
