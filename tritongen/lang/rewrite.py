"""Rewrites of nodes: with other children, or with subexpressions replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import is_

from .ir import Call, Cast, Choose, Dtype, Load, Node, Op, Reduce, Ref, Scan, ScatterSum, Take, Value, children
from .names import fresh


def named(node: Node, name: str, used: set[str], values: list[Value]) -> Ref:
    """Append a node to `values` under a fresh name, and return a reference to it."""
    values.append(Value(fresh(name, used), node, ""))
    return values[-1].ref


def rebuild(node: Node, new_children: tuple[Node, ...]) -> Node:
    """The node with other children of the same axes and dtypes; itself if they are the same objects."""
    if all(map(is_, new_children, children(node))):
        return node
    match node:
        case Call():
            return replace(node, args=new_children)
        case Cast() | Reduce():
            return replace(node, arg=new_children[0])
        case Scan():
            return replace(node, arg=new_children[0], decay=new_children[1] if len(new_children) > 1 else None)
        case Choose():
            return replace(node, condition=new_children[0], then=new_children[1], other=new_children[2])
        case Load(at=at):
            return replace(node, at=tuple((axis, index) for (axis, _), index in zip(at, new_children, strict=True)))
        case Take(at=at):
            moved = tuple((axis, index) for (axis, _), index in zip(at, new_children[1:], strict=True))
            return replace(node, arg=new_children[0], at=moved)
        case ScatterSum():
            return replace(node, arg=new_children[0], at=new_children[1])
        case _:
            return node


def replaced(node: Node, other: Callable[[Node], Node]) -> Node:
    """The node with `other` applied to subexpressions from the root down; replacements are not visited further."""
    made: dict[int, Node] = {}  # by `id`, since many nodes may share a child

    def of(inner: Node) -> Node:
        if id(inner) not in made:
            found = other(inner)
            made[id(inner)] = found if found is not inner else rebuild(inner, tuple(map(of, children(inner))))
        return made[id(inner)]

    return of(node)


def shared(nodes: Iterable[Node]) -> list[Node]:
    """The nodes with equal subexpressions as one object, so that a comparison visits each of them once."""
    made: dict[int, Node] = {}
    first: dict[Node, Node] = {}

    def of(node: Node) -> Node:
        if id(node) not in made:
            own = rebuild(node, tuple(map(of, children(node))))
            made[id(node)] = first.setdefault(own, own)
        return made[id(node)]

    return [of(node) for node in [*nodes]]


def as_loads(node: Node, names: Mapping[str, str], of_their_own: bool = False) -> Node:
    """Replace lines by loads of `names[line]`: floats if `of_their_own` (except bool), else of the line's dtype."""
    line = node.arg if isinstance(node, Take) else node
    if not isinstance(line, Ref) or line.name not in names:
        return rebuild(node, tuple(as_loads(child, names, of_their_own) for child in children(node)))
    name = names[line.name]
    dtype = Dtype("float", (name,)) if of_their_own and node.dtype.kind != "bool" else node.dtype
    indices = node.at if isinstance(node, Take) else ()
    at = tuple((axis, as_loads(index, names, of_their_own)) for axis, index in indices)
    return Load(name, node.axes, dtype, at)


def as_lines(node: Node, lines: Mapping[str, Ref]) -> Node:
    """Replace loads of inputs by references to `lines`: the inverse of `as_loads`."""

    def line(inner: Node) -> Node:
        if not isinstance(inner, Load) or inner.name not in lines:
            return inner
        own = lines[inner.name]
        return Take(own, inner.at, inner.axes, inner.dtype) if inner.at else Ref(own.name, inner.axes, inner.dtype)

    return replaced(node, line)


def renamed_values(op: Op, names: Mapping[str, str]) -> Op:
    """The operator with values renamed by `names`."""
    return replace(op, values=tuple(renamed_value(value, names) for value in op.values))


def renamed_value(value: Value, names: Mapping[str, str]) -> Value:
    """A value with its name and its references renamed by `names`."""

    def renamed(node: Node) -> Node:
        if isinstance(node, Ref):
            return replace(node, name=names.get(node.name, node.name))
        return node

    return Value(names.get(value.name, value.name), replaced(value.node, renamed), value.source)
