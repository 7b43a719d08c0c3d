"""Names for subexpressions of an operator that may be stored between its steps."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from ..lang.ir import Call, Cast, Load, Node, Op, Reduce, Ref, ScatterSum, Take, Value, children, walk
from ..lang.names import fresh
from ..lang.rewrite import rebuild
from ..lang.special import is_nan_outside
from ..passes.contractions import dot_of, is_product, product_of, sides_of
from ..passes.empty_sums import outside
from ..passes.exponentials import resolve
from ..passes.structure import is_extremum
from ..spec.types import plain_shape


def with_plain_axes(op: Op) -> Op:
    """The operator without groups of axes, as its steps see it: the host of the operator unflattens them."""
    inputs = tuple(replace(t, type=replace(t.type, shape=plain_shape(t.type.axes))) for t in op.inputs)
    results = tuple(replace(r, output=replace(r.output, shape=plain_shape(r.axes))) for r in op.results)
    return replace(op, inputs=inputs, results=results, by_row=frozenset(), fuse=True)


def takes_resolved(op: Op) -> Op:
    """The operator whose takes read the first name of a value, because steps store only one of its names; and read
    inputs and results, which are stored anyway, rather than values that are computed from them elementwise.
    """
    results = {result.node.name for result in op.results if isinstance(result.node, Ref)}
    results = {_first_name(op, name) for name in results}

    def resolved(node: Node) -> Node:
        node = rebuild(node, tuple(map(resolved, children(node))))
        if not isinstance(node, Take) or not isinstance(node.arg, Ref):
            return node
        name = _first_name(op, node.arg.name)
        moved = None if name in results else _taken_before(op, op.value(name).node, dict(node.at), results)
        taken = (inner for inner in walk(moved) if isinstance(inner, Take)) if moved is not None else ()
        if moved is not None and any(inner.arg.axes == node.arg.axes for inner in taken) and is_nan_outside(moved):
            return moved
        return replace(node, arg=replace(node.arg, name=name)) if name != node.arg.name else node

    return op.with_nodes(resolved)


def _first_name(op: Op, name: str) -> str:
    """The first name of a value: references that are lines of their own are followed."""
    node = op.value(name).node
    return _first_name(op, node.name) if isinstance(node, Ref) else name


def _taken_before(op: Op, node: Node, at: Mapping[str, Node], results: Container[str]) -> Node | None:
    """The node at the positions `at`, computed from elements taken from inputs and results; None if impossible."""
    if at.keys().isdisjoint(node.axes):
        return node
    match node:
        case Ref(name=name) if _first_name(op, name) not in results:
            return _taken_before(op, op.value(name).node, at, results)
        case Ref():
            return Take(node, _own(at, node), _moved(op, node, at), node.dtype)
        case Load(at=()):
            return replace(node, at=_own(at, node), axes=_moved(op, node, at))
        case Call() | Cast():
            nodes = [_taken_before(op, child, at, results) for child in children(node)]
            made = tuple(inner for inner in nodes if inner is not None)
            return replace(rebuild(node, made), axes=_moved(op, node, at)) if len(made) == len(nodes) else None
    return None


def _own(at: Mapping[str, Node], node: Node) -> tuple[tuple[str, Node], ...]:
    """The positions at which a node is taken, along the axes that it has."""
    return tuple((axis, index) for axis, index in at.items() if axis in node.axes)


def _moved(op: Op, node: Node, at: Mapping[str, Node]) -> tuple[str, ...]:
    """The axes of the elements taken from a node at `at`."""
    brought = {axis for one, index in at.items() if one in node.axes for axis in index.axes}
    return tuple(axis for axis in op.axes if axis in brought or (axis in node.axes and axis not in at))


def rows_named(op: Op) -> Op:
    """The operator with names for subexpressions that read reductions and have fewer axes than their line; and for
    operands of reductions computed from a max or a sum of exponentials, as of a loss that is a sum of lse.
    """
    reductions = {value.name: value.node for value in op.values if isinstance(value.node, Reduce)}
    used = op.names
    values: list[Value] = []

    def named(node: Node, line: Value) -> Node:
        refers = any(isinstance(inner, Ref) and inner.name in reductions for inner in walk(node))
        if isinstance(node, Call) and refers and set(node.axes) < set(line.node.axes):
            return _as_value(node, f"{line.name}_{node.function}", used, values)
        return rebuild(node, tuple(named(child, line) for child in children(node)))

    def rows(node: Reduce, line: Value) -> Reduce:
        names = {inner.name for inner in walk(node.arg) if isinstance(inner, Ref)}
        made_of = [one for name, one in reductions.items() if name in names and _is_of_softmax(op, one)]
        if not made_of or not {*node.arg.axes} <= {axis for one in made_of for axis in one.axes}:
            return node
        values.append(Value(fresh(f"{line.name}_terms", used), node.arg, ""))
        return replace(node, arg=Ref(values[-1].name, node.arg.axes, node.arg.dtype))

    for value in op.values:
        node = value.node
        values.append(value.of(rows(node, value) if isinstance(node, Reduce) else named(node, value)))
    return replace(op, values=tuple(values))


def _is_of_softmax(op: Op, node: Reduce) -> bool:
    power = resolve(op, node.arg)
    return is_extremum(node) or (node.kind == "sum" and isinstance(power, Call) and power.function == "exp")


def factors_named(op: Op) -> Op:
    """The operator with a name for each operand of a matmul that its line computes, so that it may be stored.

    Factors without a summed axis, which multiply the sum, get a name if they are gathered; the sum gets one if they
    have axes that it lacks.
    """
    used = op.names
    values: list[Value] = []

    def named(side: Node, line: str) -> Node:
        if isinstance(side, Ref) or (is_full(side) and not may_be_absent(op, side)):
            return side
        return _as_value(side, f"{line}_factor", used, values)

    for value in op.values:
        node, sides = value.node, sides_of(op, value.node)
        if isinstance(node, Reduce) and sides is not None:
            factors = (*sides[:2], *sides[2])
            found = [named(one, value.name) if one in sides[:2] or one.gathers else one for one in factors]
            dot, others = dot_of(node, (found[0], found[1])), found[2:]
            if {axis for one in others for axis in one.axes} <= {*dot.axes}:
                node = replace(node, arg=product_of(tuple(found))) if found != [*factors] else node
            else:
                there = (outside(op, value.name, one, node.over) for one in others)
                node = product_of((_as_value(dot, f"{value.name}_dot", used, values), *there))
            value = replace(value, node=node)
        values.append(value)
    return replace(op, values=tuple(values))


def scattered_named(op: Op) -> Op:
    """The operator with names for the operands and positions of scatter-adds that are not plain inputs."""
    used = op.names
    values: list[Value] = []

    def named(node: Node, name: str) -> Node:
        while isinstance(node, Ref) and isinstance(other := op.value(node.name).node, Ref | Load):
            node = other
        return node if isinstance(node, Ref) or is_full(node) else _as_value(node, name, used, values)

    for value in op.values:
        node = value.node
        if isinstance(node, ScatterSum):
            node = replace(
                node, arg=named(node.arg, f"{value.name}_terms"), at=named(node.at, f"{value.name}_positions")
            )
        values.append(value.of(node))
    return replace(op, values=tuple(values))


def sums_parted(op: Op) -> Op:
    """The operator with sums, means and extrema over rows and their elements split: over elements, then over rows.

    So a row-wise kernel that reads the elements anyway may reduce them, as for the gradient of a temperature.
    """
    used = op.names
    rows = {value.node.over for value in op.values if isinstance(value.node, Reduce) and not is_product(op, value.node)}
    values: list[Value] = []
    for value in op.values:
        node = value.node
        inner = next((over for over in sorted(rows) if isinstance(node, Reduce) and set(over) < set(node.over)), None)
        is_parted = isinstance(node, Reduce) and node.kind in ("sum", "mean", "max", "min")
        if inner and isinstance(node, Reduce) and is_parted and not is_product(op, node):
            axes = tuple(axis for axis in node.arg.axes if axis not in inner)
            inner_sums = _as_value(replace(node, over=inner, axes=axes), f"{value.name}_inner", used, values)
            others = tuple(axis for axis in node.over if axis not in inner)
            value = replace(value, node=replace(node, arg=inner_sums, over=others))
        values.append(value)
    return replace(op, values=tuple(values))


def _as_value(node: Node, name: str, used: set[str], values: list[Value]) -> Ref:
    """A reference to a node, which is appended to `values` if it is none of them yet."""
    known = next((value.name for value in values if value.node == node), "")
    if not known:
        known = fresh(name, used)
        values.append(Value(known, node, ""))
    return Ref(known, node.axes, node.dtype)


def is_full(node: Node) -> bool:
    """Whether a node is a full input, not elements gathered from one."""
    return isinstance(node, Load) and not node.at


def may_be_absent(op: Op, node: Node) -> bool:
    """Whether a node is an optional matrix. Matmuls do not read it directly, but a stored tensor of its default."""
    return isinstance(node, Load) and op.input(node.name).default is not None and len(node.axes) > 1
