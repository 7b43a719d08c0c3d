"""The factors of a sum of products, and those that can multiply the sum instead of each term."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from ..lang.ir import BOOL, INT64, Call, Cast, Constant, Dtype, Load, Node, Op, Ref, Size, children
from ..spec.grammar import READ_DTYPES
from ..spec.types import FLOAT8S, FLOATS
from .exponentials import resolve
from .structure import below

SHORTEST = 32  # terms of a group that is summed separately: as many bytes as tensor cores multiply at once


def factors_of(op: Op, node: Node, over: tuple[str, ...], by_group: bool) -> list[Node]:
    """The factors of `node`, which is to be summed over `over`.

    A line is decomposed if it has all axes of `node`, or factors that lack all axes of `over` (with `by_group`, some of
    them); any other line is one factor.
    """

    def leaves(factor: Node) -> bool:
        has = set(factor.axes) & set(over)
        return len(has) < len(over) if by_group else not has

    def flat(inner: Node) -> list[Node]:
        if isinstance(inner, Ref):
            line = op.value(inner.name).node
            multiplies = isinstance(line, Call) and line.function == "mul"
            found: list[Node] = flat(line) if multiplies else [inner]
            return found if set(inner.axes) == set(node.axes) or any(map(leaves, found)) else [inner]
        if isinstance(inner, Call) and inner.function == "mul":
            return [factor for arg in inner.args for factor in flat(arg)]
        if isinstance(inner, Call) and inner.function == "div" and set(inner.axes) == set(node.axes):
            number, by = inner.args  # The divisor may be a factor of one side, or of neither.
            return [*flat(number), Call("reciprocal", (by,), by.axes, by.dtype)]
        return [inner]

    return flat(node)


def flat_product(node: Node, op: Op | None = None) -> Iterator[Node]:
    """The factors of a product, looking through lines of `op` if given; any other node is its only factor."""
    inner = resolve(op, node) if op else node
    if isinstance(inner, Call) and inner.function == "mul":
        for arg in inner.args:
            yield from flat_product(arg, op)
    else:
        yield node


def is_outer(op: Op, node: Node) -> bool:
    """Whether a node is a product of factors that all lack some of its axes."""
    factors = factors_of(op, node, node.axes, False)
    axes = {axis for factor in factors for axis in factor.axes}
    return all({*factor.axes} < axes for factor in factors)


def unless_empty(factor: Node, *over: str) -> Call:
    """`factor`, or 1 where an axis of `over` is empty: a sum over these axes is 0 then, whatever the factor."""
    some = Call("ne", (Size(over), Constant(0, INT64)), (), BOOL)
    return Call("where", (some, factor, Constant(1.0, Dtype("float"))), factor.axes, factor.dtype)


def without_casts(op: Op, left: Node, right: Node, in_groups: bool) -> tuple[Node, Node]:
    """Both sides, without casts of 8-bit operands if the products stay the same.

    Long sums of int8 may overflow int32; sums of a group do not.
    """
    sides, read = (left, right), (_bytes_before(op, left), _bytes_before(op, right))
    found: list[Node] = []
    for side, byte, other, others_byte in zip(sides, read, sides[::-1], read[::-1], strict=True):
        if byte is None:
            found.append(side)
            continue
        separate = byte.dtype.kind == "float" or in_groups or others_byte is None
        to_float32 = side.dtype.of == ("float32",) and other.dtype.kind == "float" and separate
        to_other = side.dtype.of == other.dtype.of and others_byte is None
        to_int = side.dtype.kind == "int" and (others_byte or other).dtype.kind == "int"
        found.append(byte if to_float32 or to_other or to_int else side)
    return found[0], found[1]


def _bytes_before(op: Op, factor: Node) -> Load | None:
    """The load of int8 or float8 that a factor only casts to a float, or of int8 only cast to int16 or int32."""
    factor = resolve(op, factor)
    if not isinstance(factor, Cast) or not isinstance(factor.arg, Load) or factor.arg.at:
        return None
    dtypes = set(op.input(factor.arg.name).type.dtypes)
    to_float = factor.dtype.kind == "float" and (dtypes == {"int8"} or dtypes <= set(FLOAT8S))
    to_int = factor.dtype.of in (("int16",), ("int32",)) and dtypes == {"int8"}
    return factor.arg if to_float or to_int else None


def scales_by_group(
    op: Op, products: Sequence[tuple[tuple[Node, ...], tuple[Node, ...]]], over: tuple[str, ...]
) -> tuple[set[Node], tuple[str, ...]]:
    """The float factors that are constant along some of the summed axes, and the groups: the summed axes along which
    they vary. Both are empty if a group has fewer than `SHORTEST` terms, or scales share inputs with the other factors.
    """
    sides = [*chain.from_iterable(products)]
    others = chain.from_iterable(side[1:] for side in sides)
    scales = {one for one in others if not set(over) <= set(one.axes) and one.dtype.kind == "float"}
    along = {axis for scale in scales for axis in scale.axes}
    groups = tuple(axis for axis in over if axis in along)
    sizes = dict(op.sizes)
    within = [sizes.get(axis, 0) for axis in over if axis not in groups]
    rest = [factor for factor in chain.from_iterable(sides) if factor not in scales]
    shared = _names(op, scales) & _names(op, rest)
    full = all(set(over) <= set(side[0].axes) for side in sides)
    if not scales or not within or shared or not full or 0 < math.prod(within) < SHORTEST:
        return set(), ()
    return scales, groups


def multiplied(op: Op, dtype: Dtype) -> Dtype:
    """The dtype of the operands of products with `dtype`: float32 if it is a float that no float input determines."""
    known = [dtypes_of(op, name) for name in dtype.leaves]
    if dtype.kind == "float" and not any(set(dtypes) & set(FLOATS) for dtypes in known):
        return Dtype("float", ("float32",))
    return dtype


def dtypes_of(op: Op, leaf: str) -> tuple[str, ...]:
    """The dtypes of `leaf`: those of an input, itself if it is a dtype, else (an input further upstream) all floats."""
    own = next((tensor.type.dtypes for tensor in op.inputs if tensor.name == leaf), None)
    return own or ((leaf,) if leaf in READ_DTYPES else FLOATS)


def not_as_floats(op: Op, nodes: Sequence[Node]) -> set[str]:
    """The inputs that `nodes`, or lines that they refer to, use in expressions other than floats."""
    found = (
        inner
        for node in nodes
        for inner in below(op, node)
        if inner.dtype.kind != "float" and not isinstance(inner, Ref)
    )
    return {node.name for inner in found for node in children(inner) if isinstance(node, Load)}


def _names(op: Op, nodes: Iterable[Node]) -> set[str]:
    """The inputs and lines that `nodes` are computed from."""
    return {inner.name for node in nodes for inner in below(op, node) if isinstance(inner, Load | Ref)}
