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
_FINITE = {"add", "sub", "mul", "neg", "positive", "square", "abs", "where"}  # finite for finite arguments, including 0


def outside(op: Op, name: str, factor: Node, over: tuple[str, ...], others: tuple[str, ...] = ()) -> Node:
    """A factor of the terms that value `name` sums over `over`, and later over `others`, as it multiplies the sum.

    It is replaced by 1 where the sum is empty, if results depend on that.
    """
    summed, undefined = possibly_empty(op, over), undefined_over(op, factor) - {*others}
    if factor.dtype.kind != "float" or not is_seen(op, name, summed, undefined):
        return factor
    return unless_empty(factor, *(axis for axis in over if axis in summed))


def undefined_over(op: Op, node: Node, divides: bool = False) -> Axes:
    """The axes that make `node`, or with `divides` its reciprocal, NaN or infinite if any of them is empty.

    They come from means, `take` along an empty axis, and the reciprocal or another function of an empty sum. A per-row
    input of a step may have been reduced over any axis that it lacks.
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
    """The factor and the axes that `unless_empty` was called with to make `node`; None for any other node."""
    match node:
        case Call(function="where", args=(Call(function="ne", args=(Size(over=over), _)), factor, _)):
            return (factor, over) if node == unless_empty(factor, *over) else None
    return None


def possibly_empty(op: Op, axes: set[str] | tuple[str, ...]) -> Axes:
    """The axes among `axes` without a fixed length."""
    return frozenset(axes) - {axis for axis, length in op.sizes if length}


def is_seen(op: Op, name: str, summed: Axes, undefined: Axes) -> bool:
    """Whether elements of a result depend on value `name` where an axis of `summed` and one of `undefined` are empty.

    Values that have such an axis have no elements then.
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
    """For each reference to `name` in a node, the axes of all expressions around it."""
    axes |= {*node.axes}
    if isinstance(node, Ref) and node.name == name:
        yield axes
    for child in children(node):
        yield from _above(child, name, axes)
