"""Check that the axes of an operator's nodes are consistent, as every rewrite must leave them."""

from __future__ import annotations

from collections.abc import Iterator

from .ir import Index, Load, Node, Op, Reduce, Ref, Scan, ScatterSum, Take, children, walk
from .names import shown
from .unparse import spelled


def verify(op: Op) -> None:
    """Raise `AssertionError` if a node lacks axes of its operands, or a result lacks axes of its node.

    A kernel of such an operator would read one element in place of several, or store out of bounds.
    """
    for value in op.values:
        for node in walk(value.node):
            if lacks := {*_axes(op, node)} - {*node.axes}:
                raise AssertionError(_message(op, f"{spelled(node)} in {value.name}", lacks))
    for result in op.results:
        if lacks := {*result.node.axes} - {*result.axes}:
            raise AssertionError(_message(op, f"the result {result.output.name}", lacks))


def _message(op: Op, what: str, lacks: set[str]) -> str:
    return shown(f"{op.name}: {what} lacks axes of what it is made of: {', '.join(sorted(lacks, key=shown))}")


def _axes(op: Op, node: Node) -> Iterator[str]:
    """The axes along which a node varies, derived from its operands."""
    match node:
        case Ref(name=name):
            yield from op.value(name).node.axes
        case Load(name=name, at=at):
            yield from _taken(op.input(name).type.axes, at)
        case Take(arg=arg, at=at):
            yield from _taken(arg.axes, at)
        case Reduce(arg=arg, over=over):
            yield from (axis for axis in arg.axes if axis not in over)
        case ScatterSum(arg=arg, into=into):
            yield from (axis for axis in arg.axes if axis not in node.over)
            yield from into
        case Index(axis=axis):
            yield axis
        case Scan(over=over):
            yield from (*_axes_of_children(node), over)
        case _:
            yield from _axes_of_children(node)


def _axes_of_children(node: Node) -> Iterator[str]:
    return (axis for child in children(node) for axis in child.axes)


def _taken(axes: tuple[str, ...], at: tuple[tuple[str, Node], ...]) -> Iterator[str]:
    """The axes of a tensor that `at` does not index, and the axes of the indices."""
    yield from (axis for axis in axes if axis not in dict(at))
    yield from (axis for _, position in at for axis in position.axes)
