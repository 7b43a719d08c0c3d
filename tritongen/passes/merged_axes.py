"""Merges axes that are adjacent in everything that an operator reads, computes and returns.

The heads of attention may have two axes, as rotary position embedding writes them: `float[..., S, (P=2 D)]`. A kernel
whose tiles have a single axis across iterates over both as one axis of their joint length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..lang.ir import Index, Load, Node, Op, Reduce, Result, Size, children, walk
from ..lang.names import numbered
from ..lang.rewrite import rebuild
from ..spec.types import BATCH, AxisTerm, Input
from .structure import reached


@dataclass(frozen=True, slots=True)
class MergedAxes:
    """Merged axes, each with the axes that it stands for: adjacent in all tensors and in the same order."""

    every: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def joined(self, op: Op) -> Op:
        """The operator along the merged axes, which are appended to its own."""
        if not self.every:
            return op
        sizes = dict(op.sizes)
        fixed = ((name, axes) for name, axes in self.every if {*axes} <= sizes.keys())
        return replace(
            op.with_nodes(lambda node: _along(node, self.joined_axes)),
            inputs=tuple(map(self.joined_input, op.inputs)),
            results=tuple(map(self.joined_result, op.results)),
            axes=(*op.axes, *(name for name, _ in self.every)),
            sizes=(*op.sizes, *((name, math.prod(sizes[axis] for axis in axes)) for name, axes in fixed)),
        )

    def with_batch(self, op: Op) -> MergedAxes:
        """A copy that also merges all dimensions of `...` into one axis."""
        return MergedAxes((*self.every, (numbered("BATCH", {*op.axes, *op.names}), (BATCH,))))

    def parted(self, op: Op, before: Op) -> Op:
        """The joined operator `op`, whose values may have changed since, along the original axes of `before`."""
        if not self.every:
            return op
        return replace(before, values=op.with_nodes(self.parted_node).values)

    def parted_node(self, node: Node) -> Node:
        return _along(node, self.parted_axes)

    def joined_axes(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        for name, group in self.every:
            if {*group} <= {*axes}:
                axes = tuple(dict.fromkeys(name if axis in group else axis for axis in axes))
        return axes

    def of(self, axis: str) -> str:
        """The merged axis that contains `axis`, or `axis` itself."""
        return next((name for name, group in self.every if axis in group), axis)

    def parted_axes(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        groups = dict(self.every)
        return tuple(one for axis in axes for one in groups.get(axis, (axis,)))

    def lengths(self, axis: str, length: int, sizes: Mapping[str, int]) -> dict[str, int]:
        """Lengths for the axes that `axis` of some `length` stands for, rounded up.

        Axes without a fixed size get 2, and the last of them the remaining factor.
        """
        axes = self.parted_axes((axis,))
        free = [one for one in axes if one not in sizes]
        found = {one: sizes.get(one, 2) for one in axes}
        if free:
            found[free[-1]] = -(-length // math.prod(found[one] for one in axes if one != free[-1]))
        return found

    def joined_input(self, tensor: Input) -> Input:
        return replace(tensor, type=replace(tensor.type, shape=self.joined_shape(tensor.type.shape)))

    def joined_result(self, result: Result) -> Result:
        shape = result.output.shape
        output = replace(result.output, shape=None if shape is None else self.joined_shape(shape))
        node = self.joined_axes(result.node.axes)
        return replace(result, output=output, node=replace(result.node, axes=node), axes=self.joined_axes(result.axes))

    def joined_shape(self, shape: tuple[AxisTerm, ...]) -> tuple[AxisTerm, ...]:
        """The dimensions of `shape`, with those of merged axes combined into one."""
        for name, axes in self.every:
            one = AxisTerm((name,), (None,))
            if is_grouped(shape, axes):
                shape = tuple(_renamed(term, name, axes) for term in shape)
            elif any(axes[0] in term.names for term in shape):
                shape = tuple(
                    one if term.names == axes[:1] else term for term in shape if not {*term.names} <= {*axes[1:]}
                )
        return shape


def _renamed(term: AxisTerm, name: str, axes: tuple[str, ...]) -> AxisTerm:
    if axes[0] not in term.names:
        return term
    first = term.names.index(axes[0])
    last = first + len(axes)
    names = (*term.names[:first], name, *term.names[last:])
    return AxisTerm(names, (*term.sizes[:first], None, *term.sizes[last:]))


def is_grouped(shape: tuple[AxisTerm, ...], axes: tuple[str, ...]) -> bool:
    """Whether some axes are in one dimension of a tensor."""
    return any({*axes} <= {*term.names} for term in shape)


def axes_together(op: Op, wanted: Container[str]) -> MergedAxes:
    """The merges of `wanted` axes: no tensor, value, sum or formula of the operator has one without the others."""
    shapes = [tensor.type.shape for tensor in op.inputs]
    shapes += [op.grouping(result) for result in op.results]
    refs = op.refs
    read = reached(refs, [result.output.name for result in op.results], ())
    values = [value for value in op.values if value.name in read]
    along = [{axis for term in shape for axis in term.names} for shape in shapes]
    along += [axes for value in values for node in walk(value.node) for axes in _sets(node)]
    along += [{axis} for formula in op.formulas for axis in (formula.axis, *formula.reads)]
    groups = _grouped(filter(wanted.__contains__, op.axes), along)
    used = {*op.axes, *op.names}
    found = []
    for group in groups:
        order = next((order for shape in shapes if (order := _order(shape, group))), ())
        if len(group) > 1 and all(_is_aligned(shape, order) for shape in shapes):
            found.append((numbered("_".join(order), used), order))
    return MergedAxes(tuple(found))


def _grouped(axes: Iterable[str], along: list[set[str]]) -> list[list[str]]:
    """`axes` grouped by which sets of `along` contain them."""
    groups: dict[tuple[bool, ...], list[str]] = {}
    for axis in axes:
        groups.setdefault(tuple(axis in one for one in along), []).append(axis)
    return [*groups.values()]


def _sets(node: Node) -> Iterator[set[str]]:
    """The sets of axes that a node has together, reduces over, or indexes separately."""
    yield {*node.axes}
    match node:
        case Reduce(over=over):
            yield {*over}
        case Index(axis=axis):
            yield {axis}
        case Load(at=at):
            yield from ({axis} for axis, _ in at)


def _order(shape: tuple[AxisTerm, ...], axes: list[str]) -> tuple[str, ...]:
    """`axes` in the order of a tensor's dimensions."""
    return tuple(axis for term in shape for axis in term.names if axis in axes)


def _is_aligned(shape: tuple[AxisTerm, ...], order: tuple[str, ...]) -> bool:
    """Whether a tensor has the axes of `order` adjacent, in one dimension or each in its own; or has none of them."""
    names = [axis for term in shape for axis in term.names]
    if not {*order} & {*names}:
        return True
    first = names.index(order[0])
    alone = all(len(term.names) == 1 for term in shape if {*term.names} & {*order})
    return tuple(names[first : first + len(order)]) == order and (alone or is_grouped(shape, order))


def _along(node: Node, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Node:
    """A node with `change` applied to its axes and to those that it reduces over."""
    node = rebuild(node, tuple(_along(child, change) for child in children(node)))
    if isinstance(node, Reduce | Size):
        node = replace(node, over=change(node.over))
    return replace(node, axes=change(node.axes))
