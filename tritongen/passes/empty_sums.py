"""Factors of sums that are undefined where the sums are empty.

An empty sum is 0, whatever its terms are multiplied by. Where kernels multiply the sum instead of the terms, a factor
that is NaN or infinite there, as rstd is over no elements, would make it NaN.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..lang.ir import Call, Load, Node, Op, Reduce, Ref, Size, children
from ..spec.types import COMPUTED
from .factors import unless_empty

Axes = frozenset[str]
_FINITE = {"add", "sub", "mul", "neg", "positive", "square", "abs", "where"}  # of finite values, 0 among them


def outside(op: Op, name: str, factor: Node, over: tuple[str, ...], others: tuple[str, ...] = ()) -> Node:
    """A factor of the terms that a value sums over some axes, and maybe over others later, as it multiplies the sum.

    It is 1 where the sum is empty, if results depend on that.
    """
    summed, undefined = possibly_empty(op, over), undefined_over(op, factor) - {*others}
    if factor.dtype.kind != "float" or not is_seen(op, name, summed, undefined):
        return factor
    return unless_empty(factor, *(axis for axis in over if axis in summed))


def undefined_over(op: Op, node: Node, divides: bool = False) -> Axes:
    """The axes of which one being empty makes a node NaN or infinite, or its reciprocal if something `divides` by it.

    An empty mean does, what is taken of nothing, and the reciprocal or another function of an empty sum. A value for
    each row that a step reads may have been reduced over any axis that it lacks.
    """
    found: set[str] = set()
    rows = {tensor.name for tensor in op.inputs if tensor.type.dtypes == COMPUTED}
    seen = {(node, divides)}
    left = [(node, divides)]
    while left:
        node, divides = left.pop()
        below = [(child, divides) for child in children(node)]
        match node:
            case Reduce(kind=kind, over=over):
                found.update(over if divides or kind != "sum" else ())
            case Call() if guarded := unless_empty_of(node):
                factor, over = guarded
                found.update(undefined_over(op, factor, divides) - {*over})
                below = []
            case Size(over=over) if divides:
                found.update(over)
            case Call(function="clamp_min", args=(Size(), _)):
                below = []
            case Load(name=name) if name in rows:
                found.update({*op.axes} - {*node.axes})
            case Load(at=at):  # Every position along an empty axis is outside.
                found.update(axis for axis, _ in at)
            case Ref(name=name):
                below = [(op.value(name).node, divides)]
            case Call(function="div", args=(number, by)):
                below = [(number, divides), (by, True)]
            case Call(function=function) if function not in _FINITE:
                below = [(child, True) for child in children(node)]
        left += [one for one in below if one not in seen]
        seen.update(below)
    return possibly_empty(op, found)


def unless_empty_of(node: Node) -> tuple[Node, tuple[str, ...]] | None:
    """What `unless_empty` was given: a factor, and the axes; None for another node."""
    match node:
        case Call(function="where", args=(Call(function="ne", args=(Size(over=over), _)), factor, _)):
            return (factor, over) if node == unless_empty(factor, *over) else None
    return None


def possibly_empty(op: Op, axes: set[str] | tuple[str, ...]) -> Axes:
    """Those of some axes whose length is not fixed."""
    return frozenset(axes) - {axis for axis, length in op.sizes if length}


def is_seen(op: Op, name: str, summed: Axes, undefined: Axes) -> bool:
    """Whether a result has elements that depend on a value where one axis of `summed` and one of `undefined` are empty.

    What has such an axis has no elements then.
    """
    left, seen = [(name, summed, undefined)], set[tuple[str, Axes, Axes]]()
    while left:
        name, summed, undefined = one = left.pop()
        if not summed or not undefined or one in seen:
            continue
        seen.add(one)
        results = (result for result in op.results if result.output.name == name)
        if any(not summed <= {*result.axes} and not undefined <= {*result.axes} for result in results):
            return True
        users = ((v.name, above) for v in op.values for above in _above(v.node, name, frozenset()))
        left += [(user, summed - above, undefined - above) for user, above in users]
    return False


def _above(node: Node, name: str, axes: Axes) -> Iterator[Axes]:
    """The axes of what a value is a part of, for each place where a node refers to it."""
    axes |= {*node.axes}
    if isinstance(node, Ref) and node.name == name:
        yield axes
    for child in children(node):
        yield from _above(child, name, axes)
