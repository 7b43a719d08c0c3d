"""Matrices that are selected by index, one per batch element: an expert's weights, `take(w, expert, E)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..lang.ir import Load, Node, Op, Ref
from ..lang.rewrite import replaced
from ..lang.unparse import spelled
from ..spec.types import BATCH, Input, plain_shape
from .structure import references


@dataclass(frozen=True, slots=True)
class Gathered:
    """An input whose position along `axis` is in `index`, for each of the `batch`; `load` is how the math reads it."""

    load: Load
    axis: str
    index: str
    batch: str

    @property
    def name(self) -> str:
        return self.load.name

    def as_batch(self, tensor: Input) -> Input:
        """The input as if it had a matrix for each batch element."""
        axes = tuple(self.batch if axis == self.axis else axis for axis in tensor.type.axes)
        return replace(tensor, type=replace(tensor.type, shape=plain_shape(axes)))


def gathered_in(op: Op) -> tuple[Gathered, ...] | None:
    """The inputs gathered by one index per batch element; None if the operator also gathers in another way."""
    if not any(value.node.gathers for value in op.values):
        return ()
    loads = {node for node in op.nodes if isinstance(node, Load)}
    found = tuple(map(_gathered, (load for load in loads if load.at)))
    names = [load.name for load in loads]
    optional = {tensor.name for tensor in op.inputs if tensor.default is not None}
    gathers = [one for one in found if one and names.count(one.name) == 1 and not {one.name, one.index} & optional]
    return tuple(sorted(gathers, key=lambda one: one.name)) if len(gathers) == len(found) else None


def with_gathers_inside(op: Op) -> Op:
    """The operator with gathers inlined where lines refer to them; sources that name generated ones are respelled."""
    picks = {value.name: value for value in op.values if isinstance(value.node, Load) and value.node.at}
    if not picks:
        return op
    ours = {name for name, value in picks.items() if not value.source}
    found = _changed(op, lambda node: picks[node.name].node if isinstance(node, Ref) and node.name in picks else node)
    values = tuple(
        replace(value, source=spelled(value.node)) if value.source and references(before.node) & ours else value
        for before, value in zip(op.values, found.values, strict=True)
    )
    return replace(found, values=values)


def _gathered(load: Load) -> Gathered | None:
    (axis, index), *others = load.at
    if others or not isinstance(index, Load) or index.at or len(index.axes) != 1 or BATCH in index.axes:
        return None
    return Gathered(load, axis, index.name, index.axes[0])


def as_batches(op: Op, gathered: tuple[Gathered, ...]) -> Op:
    """The operator as if gathered inputs had a matrix for each batch element."""
    if not gathered:
        return op
    gathers = {one.name: one for one in gathered}
    inputs = tuple(gathers[t.name].as_batch(t) if t.name in gathers else t for t in op.inputs)
    plain: dict[Node, Node] = {one.load: replace(one.load, at=()) for one in gathered}
    return _changed(replace(op, inputs=inputs), lambda node: plain.get(node, node))


def with_gathers(op: Op, inputs: tuple[Input, ...], gathered: tuple[Gathered, ...]) -> Op:
    """The inverse of `as_batches`: the operator with its own `inputs`, which it gathers from."""
    if not gathered:
        return replace(op, inputs=inputs)
    loads: dict[Node, Node] = {replace(one.load, at=()): one.load for one in gathered}
    return _changed(replace(op, inputs=inputs), lambda node: loads.get(node, node))


def _changed(op: Op, other: Callable[[Node], Node]) -> Op:
    """The operator with `other` in place of some leaves."""
    return op.with_nodes(lambda node: replaced(node, other))
