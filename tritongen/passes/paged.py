"""Paged positions, whose pages are listed in a table: `take(k, page, P)` of `k[P, S, D]` by `page[B, J]`.

Sums over the pages of a sequence and over the positions of each page, J and S, iterate over one axis of positions, page
by page. Along that axis `take(k, page, P)` is like an input with a row for each position, so that streaming, masks and
lengths work as for any other input. Other values per position or per page, such as the scales of a quantised cache, are
paged as well, or have axes J and S of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..lang.ir import INT64, Call, Constant, Index, Load, Node, Op, Reduce, Ref, Size, children
from ..lang.rewrite import rebuild
from ..spec.types import Input


@dataclass(frozen=True, slots=True)
class Paged:
    """An input in pages: how the math reads it, the axis of its pages, and the input with the page indices."""

    load: Load
    pages: str
    table: str


@dataclass(frozen=True, slots=True)
class Pages:
    """The axis `page` of pages, the axis `slot` of positions in a page, and paged inputs; both axes merged are `axis`.

    `along` are other inputs with either axis.
    """

    page: str
    slot: str
    inputs: tuple[Paged, ...]
    along: tuple[Load, ...] = ()

    @property
    def axis(self) -> str:
        return f"({self.page} {self.slot})"

    def of(self, name: str) -> Paged | None:
        """How an input is read, if it is in pages."""
        return next((one for one in self.inputs if one.load.name == name), None)

    def merged(self, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Pages:
        """A copy whose inputs are read along axes mapped by `change`."""

        def changed(load: Load) -> Load:
            return replace(load, axes=change(load.axes))

        inputs = (replace(one, load=changed(one.load)) for one in self.inputs)
        return replace(self, inputs=tuple(inputs), along=tuple(map(changed, self.along)))

    def axes_of(self, tensor: Input) -> tuple[str, ...]:
        """The axes of an input, with pages and positions merged."""
        paged = self.of(tensor.name)
        return self.joined_axes(paged.load.axes if paged else tensor.type.axes)

    def joined(self, op: Op) -> Op:
        """The operator along the merged axis, with inputs as if they had a row for each position."""
        return replace(op.with_nodes(lambda node: self.join(op, node)), axes=(*op.axes, self.axis))

    def parted(self, op: Op) -> Op:
        """The operator along both axes again."""
        return replace(op.with_nodes(self.split), axes=tuple(axis for axis in op.axes if axis != self.axis))

    # From both axes to one

    def join(self, op: Op, node: Node) -> Node:
        if self.is_position(op, node):
            return self.position
        match node:
            case Index(axis=axis) if axis in (self.page, self.slot):
                function = "floor_divide" if axis == self.page else "remainder"
                return Call(function, (self.position, Size((self.slot,))), (self.axis,), INT64)
            case Load(at=at) if at and self.of(node.name):
                return replace(node, axes=self.joined_axes(node.axes), at=())
            case Size(over=over):
                return replace(node, over=self.joined_axes(over) if {self.page, self.slot} <= {*over} else over)
            case Reduce(over=over):
                node = replace(node, over=self.joined_axes(over))
        node = rebuild(node, tuple(self.join(op, child) for child in children(node)))
        return replace(node, axes=self.joined_axes(node.axes))

    def joined_axes(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.axis if axis in (self.page, self.slot) else axis for axis in axes))

    @property
    def position(self) -> Index:
        return Index(self.axis, (self.axis,))

    def is_position(self, op: Op, node: Node) -> bool:
        """Whether it is index(page) * size(slot) + index(slot)."""
        match node:
            case Call(function="add", args=(one, other)):
                return any(self.is_first(op, x) and _is_index(y, self.slot) for x, y in ((one, other), (other, one)))
        return False

    def is_first(self, op: Op, node: Node) -> bool:
        """Whether it is the first position of a page."""
        match node:
            case Ref(name=name):
                return self.is_first(op, op.value(name).node)
            case Call(function="mul", args=(one, other)):
                pairs = ((one, other), (other, one))
                return any(_is_index(x, self.page) and self.is_size(op, y) for x, y in pairs)
        return False

    def is_size(self, op: Op, node: Node) -> bool:
        """Whether it is the number of positions of a page."""
        match node:
            case Constant(value=value):
                return (self.slot, value) in op.sizes
        return node == Size((self.slot,))

    # And back

    def split(self, node: Node) -> Node:
        match node:
            case Index(axis=self.axis):
                first = Call("mul", (Index(self.page, (self.page,)), Size((self.slot,))), (self.page,), INT64)
                return Call("add", (first, Index(self.slot, (self.slot,))), (self.page, self.slot), INT64)
            case Load(name=name) if paged := self.of(name):
                return paged.load
            case Load(name=name) if found := [load for load in self.along if load.name == name]:
                return found[0]
            case Size(over=over) | Reduce(over=over):
                node = replace(node, over=self.parted_axes(over))
        node = rebuild(node, tuple(map(self.split, children(node))))
        return replace(node, axes=self.parted_axes(node.axes))

    def parted_axes(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(one for axis in axes for one in ((self.page, self.slot) if axis == self.axis else (axis,)))


def pages_of(op: Op) -> Pages | None:
    """The pages that an operator sums over in full; None if it has none, or uses their positions in another way."""
    if not any(value.node.gathers for value in op.values):
        return None
    reads = {load for value in op.values for load in _read(value.node)}
    iterated = {axis for load in reads for axis in load.axes}  # No kernel iterates over an axis of pages in memory.
    found = (one for load in reads if (one := _paged(op, load)) and one.pages not in iterated)
    paged = sorted(found, key=lambda one: one.load.name)
    pairs = dict.fromkeys(pair for one in paged for pair in _axes_of(op, one))
    return next((pages for pair in pairs if (pages := _pages_along(op, *pair, paged, reads))), None)


def _pages_along(op: Op, page: str, slot: str, paged: list[Paged], reads: set[Load]) -> Pages | None:
    both = {page, slot}
    tables = {one.table for one in paged if (page, slot) in _axes_of(op, one)}
    # A paged input does not have the axis of the table's pages.
    found = tuple(one for one in paged if one.table in tables and not both & {*_own(op, one)} - {slot})
    names = {one.load.name for one in found}
    others = reads - {one.load for one in found}
    along = sorted((load for load in others if both & {*load.axes}), key=lambda load: load.name)
    takes = (
        _are_summed_together(op, both)
        and len(names) == len(found)
        and not any(load.name in names for load in others)
        and not any(load.at for load in along)
        and not any(both & {*result.axes} for result in op.results)
    )
    return Pages(page, slot, found, tuple(along)) if takes else None


def _are_summed_together(op: Op, both: set[str]) -> bool:
    """Whether a reduction is over exactly these two axes, and none is over one of them without the other."""
    overs = [{*node.over} for node in op.nodes if isinstance(node, Reduce)]
    return both in overs and all(both <= over or not both & over for over in overs)


def _read(node: Node) -> Iterator[Load]:
    """The loads of a node, except those that compute positions."""
    if isinstance(node, Load):
        yield node
    else:
        for child in children(node):
            yield from _read(child)


def _paged(op: Op, load: Load) -> Paged | None:
    """A required input that `load` reads by page indices from another one; None for any other load."""
    match load.at:
        case ((pages, Load(at=(), name=table)),) if op.input(load.name).default is op.input(table).default is None:
            return Paged(load, pages, table)
    return None


def _axes_of(op: Op, paged: Paged) -> list[tuple[str, str]]:
    """The candidate pairs of an axis of pages and an axis of positions in a page."""
    own, table = _own(op, paged), op.input(paged.table).type.axes
    shared = {*own} & {*table}
    return [(page, slot) for page in table for slot in own if slot != paged.pages and not {page, slot} & shared]


def _own(op: Op, paged: Paged) -> tuple[str, ...]:
    return op.input(paged.load.name).type.axes


def _is_index(node: Node, axis: str) -> bool:
    return isinstance(node, Index) and node.axis == axis
