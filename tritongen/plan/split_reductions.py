"""Sums of scores over several axes, split into partial sums by passes: along the streamed axis, or along the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ..families.stream import Stream
from ..lang.ir import Call, Constant, Node, Op, Reduce, Ref, Result, ScatterSum, Take, Value, walk
from ..lang.names import fresh
from ..lang.promotion import promote
from ..lang.unparse import spelled
from ..lowering.tile import needed
from ..passes.contractions import product_of
from ..passes.factors import flat_product
from ..passes.structure import name_reductions


def split_reductions(op: Op, results: Sequence[Result], stream: Stream) -> tuple[Op, tuple[Value, ...]]:
    """The operator whose sums of scores over more than one axis reduce partial sums; and the partial sums.

    Those are summed along what streams, or else along the rows, and have all the other axes of the scores. So are sums
    over one of these axes of which a result is made that no pass can have, as by positions that are taken.
    """
    op = name_reductions(op)
    taken = op.names
    values: list[Value] = []
    partials: list[Value] = []
    separate = {value.name for result in results for value in _separate(op, result, stream)}
    for value in op.values:
        node = _at_once(op, value.node, stream)
        if node == value.node and value.name in separate:
            partials.append(value)
        elif isinstance(node, Reduce) and _is_of_scores(node, stream):
            part, rest = _halved(node, stream)
            name = next((one.name for one in partials if one.node == part), "")
            if not name:
                name = fresh(f"{value.name}_by_{'row' if stream.streamed in part.over else 'column'}", taken)
                partials.append(Value(name, part, spelled(part)))
                values.append(partials[-1])
            value = replace(value, node=replace(node, arg=Ref(name, part.axes, node.dtype), over=rest))
        values.append(value)
    own = {part.name for part in partials}
    # Sums along one axis are read no more where a sum over both is made at once of what they sum.
    read = {value.name for value in needed(tuple(values), [result.output.name for result in results])}
    remaining = tuple(value for value in values if value.name in read or value.name not in own)
    return replace(op, values=remaining), tuple(part for part in partials if part.name in read)


def _halved(node: Reduce, stream: Stream) -> tuple[Reduce, tuple[str, ...]]:
    """The part of a sum of scores along what streams, or else along the rows, and the axes that are left."""
    along = stream.positions if stream.streamed in node.over else (stream.rows,)
    over = tuple(axis for axis in node.over if axis in along)
    axes = tuple(axis for axis in node.arg.axes if axis not in over)
    return replace(node, over=over, axes=axes), tuple(axis for axis in node.over if axis not in over)


def _at_once(op: Op, node: Node, stream: Stream) -> Node:
    """A sum of what another sum of scores multiplies, as one sum: sum(sum(x, B) * y, M) is sum(x * y, B, M)."""
    if not isinstance(node, Reduce) or node.kind != "sum":
        return node
    found = _summed_in(op, node.arg, stream)
    if found is None:
        return node
    arg, inner = found
    over = tuple(axis for axis in op.axes if axis in (*inner, *node.over))
    return _at_once(op, replace(node, arg=arg, over=over), stream)


def _summed_in(op: Op, node: Node, stream: Stream) -> tuple[Node, tuple[str, ...]] | None:
    """A node that is the sum over some axes of another, and that; None where no sum of scores multiplies it."""
    match node:
        case Ref(name=name):
            return _summed_in(op, op.value(name).node, stream)
        case Reduce(kind="sum", arg=arg, over=over) if _has_axes_of_scores(arg, stream):
            return arg, over
        case Call(function="mul"):
            factors = tuple(flat_product(node))
            for place, factor in enumerate(factors):
                found = _summed_in(op, factor, stream)
                others = (*factors[:place], *factors[place + 1 :])
                if found and not any(set(other.axes) & set(found[1]) for other in others):
                    return _mapped(found[0], partial(_times, others)), found[1]
        case Call(function="neg" | "div", args=(arg, *others)):
            found = _summed_in(op, arg, stream)
            if found and not any(set(other.axes) & set(found[1]) for other in others):
                return _mapped(found[0], lambda one: _with_args(node, (one, *others))), found[1]
        case Call(function="where", args=(test, *_)) if (chosen := _chosen(node)) is not None:
            found = _summed_in(op, chosen, stream)
            if found and not set(test.axes) & set(found[1]):
                return _choosing(node, found[0]), found[1]
    return None


def in_tiles(op: Op, name: str, stream: Stream) -> list[Value]:
    """What has the axes of scores in a result: what that scatters or shifts, or sums over the batch and maps."""
    values = needed(op.values, [name])
    args = [part.arg for value in values for part in walk(value.node) if isinstance(part, ScatterSum | Take)]
    names = {arg.name for arg in args if isinstance(arg, Ref)}
    batch = {*stream.batch, *stream.heads}
    names |= {v.name for v in values[:-1] if isinstance(v.node, Reduce) and batch.issuperset(v.node.over)}
    return [value for value in values if value.name in names and _has_axes_of_scores(value.node, stream)]


def _times(factors: tuple[Node, ...], node: Node) -> Node:
    return product_of((node, *factors))


def _mapped(node: Node, of: Callable[[Node], Node]) -> Node:
    """What is made of a node, but not where that is chosen to be 0: factors may be infinite there."""
    chosen = _chosen(node)
    if chosen is None or not isinstance(node, Call):
        return of(node)
    return _choosing(node, of(chosen))


def _chosen(node: Node) -> Node | None:
    """What a node chooses or else 0; None for what is no such choice."""
    match node:
        case Call(function="where", args=(_, Constant(value=0.0), chosen) | (_, chosen, Constant(value=0.0))):
            return chosen
    return None


def _choosing(node: Call, chosen: Node) -> Call:
    """A choice between something else and 0."""
    own = _chosen(node)
    return _with_args(node, tuple(chosen if arg is own else arg for arg in node.args))


def _with_args(node: Call, args: tuple[Node, ...]) -> Call:
    """The call with other arguments, and their axes in the order of the one that has most: `...` comes first."""
    widest_first = sorted(args, key=lambda arg: -len(arg.axes))
    axes = tuple(dict.fromkeys(axis for arg in widest_first for axis in arg.axes))
    dtype = promote(*(arg for arg in args if arg.dtype.kind == "float"))
    return replace(node, args=args, axes=axes, dtype=dtype)


def _is_of_scores(node: Reduce, stream: Stream) -> bool:
    """Whether what has the axes of scores, and none across matrices, is summed over several."""
    is_sum = node.kind == "sum" and len(node.over) > 1 and bool({stream.rows, stream.streamed} & set(node.over))
    is_sum &= not {*node.over} <= {*stream.positions}
    return is_sum and _has_axes_of_scores(node.arg, stream)


def _separate(op: Op, result: Result, stream: Stream) -> list[Value]:
    """The sums along rows, or along what streams, that a result is made of where one of them lies along an axis that
    the result lacks.
    """
    sums = [value for value in needed(op.values, [result.output.name]) if _is_along(value.node, stream)]
    lying = {axis for one in sums for axis in one.node.axes if axis in (stream.rows, stream.streamed)}
    return [] if lying <= {*result.axes} else sums


def _is_along(node: Node, stream: Stream) -> bool:
    """Whether a node is a sum of scores along the rows, or along what streams."""
    if not isinstance(node, Reduce) or node.kind != "sum" or node.over not in ((stream.rows,), (stream.streamed,)):
        return False
    return _has_axes_of_scores(node.arg, stream)


def _has_axes_of_scores(node: Node, stream: Stream) -> bool:
    return {stream.rows, stream.streamed} <= set(node.axes) and not set(node.axes) & set(stream.widths)
