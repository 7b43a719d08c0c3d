"""Removes casts of probabilities to the dtype of a matrix operand, as in `softmax(s, dtype=float32).to(v.dtype)`.

A streaming kernel rounds operands of matmuls to that dtype anyway: exponentials, which it divides later.
"""

from __future__ import annotations

from dataclasses import replace

from ..lang.ir import Call, Cast, Load, Node, Op, Reduce, Ref, Value
from ..lang.rewrite import rebuild
from ..spec.types import have_same_dtype
from .factors import flat_product
from .structure import is_extremum, reached, references, with_read_values


def weights_before_casts(op: Op) -> Op:
    """The operator with such casts removed from sums of products; its reductions must have names."""
    values: list[Value] = []
    for value in op.values:
        node = value.node
        if isinstance(node, Reduce) and node.kind == "sum" and node.dtype.kind == "float":
            loads = [inner for inner in flat_product(node.arg) if isinstance(inner, Load)]
            value = replace(value, node=replace(node, arg=_without_casts(op, node.arg, node, loads)))
        values.append(value)
    if tuple(values) == op.values:
        return op
    return with_read_values(replace(op, values=tuple(values)))


def _without_casts(op: Op, node: Node, total: Reduce, loads: list[Load]) -> Node:
    """A product without casts of probabilities to the dtype of a matrix among its factors."""

    def without(inner: Node) -> Node:
        return _without_casts(op, inner, total, loads)

    match node:
        case Ref(name=name):
            found = without(op.value(name).node)
            return node if found == op.value(name).node else found
        case Call(function="mul", args=args):
            return rebuild(node, tuple(map(without, args)))
        case Call(function="div", args=(above, below)):
            return rebuild(node, (without(above), below))
        case Call(function="where", args=(test, *args)):
            return rebuild(node, (test, *map(without, args)))
        case Cast(arg=arg) if any({*load.axes} - {*node.axes} and is_of(op, node, load) for load in loads):
            made_of = reached(op.refs, references(arg), ())
            extrema = (value.node for value in op.values if value.name in made_of and is_extremum(value.node))
            return arg if any({*largest.over} & {*total.over} for largest in extrema) else node
    return node


def is_of(op: Op, cast: Cast, load: Load) -> bool:
    """Whether a cast is surely to the dtype of the input that `load` reads."""
    types = {tensor.name: tensor.type for tensor in op.inputs}
    own = types[load.name]
    named = (types[name] for name in cast.dtype.of if name in types)
    return own.dtypes == cast.dtype.of or any(have_same_dtype((own, other)) for other in named)
