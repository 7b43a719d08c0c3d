"""Integers that an attention mask compares and that are taken by position, such as document ids from one table.

`take(doc, index(M), L) == take(doc, index(N), L)` determines which blocks are empty, as separate inputs for rows and
columns do. So an upstream step stores the taken integers, a few bytes per position, and the streaming step reads these:
blocks are skipped, forward and backward, and no table is read in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..lang.facts import fact
from ..lang.ir import Index, Load, Node, Op, Reduce, Ref, Scan, Take, Value, children, walk
from ..lang.names import fresh
from ..lang.rewrite import rebuild
from ..spec.types import INTS
from .attentions import Attention, attentions
from .exponentials import inlined
from .masks.expressions import Extreme, subexpressions
from .masks.scores import mask_of
from .masks.tiles import tiles_of
from .structure import reached, references


def integers_named(op: Op) -> Op:
    """The operator with a name for each of these integers."""
    found = _taken(op)
    if not found:
        return op
    used = op.names
    values: list[Value] = []
    names: dict[Node, str] = {value.node: value.name for value in op.values if isinstance(value.node, Load)}

    def named(node: Node) -> Node:
        if not isinstance(node, Load) or inlined(op, node) not in found:
            return rebuild(node, tuple(map(named, children(node))))
        if node not in names:
            names[node] = fresh(f"{node.name}_of_{node.axes[-1]}", used)
            values.append(Value(names[node], node, ""))
        return Ref(names[node], node.axes, node.dtype)

    for value in op.values:
        values.append(value if names.get(value.node) == value.name else value.of(named(value.node)))
    return op.of(values)


def integers_taken(op: Op) -> list[str]:
    """The names of such integers, which are to be stored."""
    found = _taken(op)
    return [value.name for value in op.values if isinstance(value.node, Load) and inlined(op, value.node) in found]


@fact
def _taken(op: Op) -> frozenset[Load]:
    """Such integers, without references to lines."""
    if not any(_is_taken(op, node) for value in op.values if value.node.gathers for node in walk(value.node)):
        return frozenset()
    return frozenset(load for one in attentions(op) for load in _of_attention(op, one))


def _of_attention(op: Op, found: Attention) -> Iterator[Load]:
    refs = op.refs
    axes = {found.rows, found.streamed}
    made_of = reached(refs, references(found.total.node), ())
    nodes = [value.node for value in op.values if value.name in made_of and axes <= {*value.node.axes}]
    masks = [mask_of(op, node, neutral) for node in nodes for neutral in (float("-inf"), 0.0)]
    for condition in dict.fromkeys(mask.condition for mask in masks if mask is not None and mask.exact):
        empty = tiles_of(op, condition, found.rows, found.streamed).empty
        compared = {inner.node: inner.axis for inner in subexpressions(empty) if isinstance(inner, Extreme)}
        is_known = found.streamed in compared.values()
        if is_known and all(isinstance(node, Load) and (not node.at or _is_taken(op, node)) for node in compared):
            yield from (node for node in compared if isinstance(node, Load) and node.at)


def _is_taken(op: Op, node: Node) -> bool:
    """Whether a node takes an integer of a required input at a position computed from indices along one axis alone."""
    if not isinstance(node, Load) or not node.at or op.input(node.name).default is not None:
        return False
    nodes = [inner for _, index in node.at for inner in walk(inlined(op, index))]
    along = {inner.axis for inner in nodes if isinstance(inner, Index)}
    is_position = not any(isinstance(inner, Load | Reduce | Scan | Take) for inner in nodes)
    return is_position and len(along) == 1 and {*op.input(node.name).type.dtypes} <= {*INTS}
