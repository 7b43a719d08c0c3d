"""The kind of kernel that some math needs, derived from its structure."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from ..diagnostics.report import Mistake
from ..lang.ir import (
    Call,
    Cast,
    Choose,
    Index,
    Load,
    Node,
    Op,
    Reduce,
    Ref,
    Result,
    Scan,
    ScatterSum,
    Take,
    Value,
    children,
)
from ..lang.names import shown
from ..lang.rewrite import named, rebuild, replaced
from ..lang.unparse import spelled

SAVES = "saves"  # the flag of a forward that saves results for the backward


@dataclass(frozen=True, slots=True)
class Program:
    """An operator in which each reduction is a value of its own.

    `over` are the axes that all reductions are over; () if there are none.
    """

    op: Op
    over: tuple[str, ...]

    @property
    def written(self) -> Op:
        """The operator as it was when a family claimed it; `op` may be a rewrite of it."""
        return self.op

    @property
    def reductions(self) -> tuple[Value, ...]:
        return tuple(value for value in self.op.values if isinstance(value.node, Reduce))

    @property
    def maps_back(self) -> bool:
        """Whether an output varies along the reduced axes."""
        return any(set(result.axes) & set(self.over) for result in self.op.results)


def plain(op: Op) -> Program | None:
    """The program of `op`, if all reductions are over the same axes, and each result has all other axes, and all or
    none of the reduced ones; else None.
    """
    overs = reduced_sets(op)
    reduced = {axis for over in overs for axis in over}
    if not only_maps_and_reduces(op) or len(overs) > 1 or differ_in_axes(op, reduced):
        return None
    # A result with only some of the reduced axes would not be empty where another of them is.
    if any({*result.axes} & reduced not in (set(), reduced) for result in op.results):
        return None
    return Program(op, next(iter(overs), ()))


def computed(op: Op, rows: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """The axes that each function, reduction and scan of the math iterates over.

    A kernel over `rows` repeats reductions and scans for each row, even if they do not vary along these.
    """
    nodes = [node for node in op.nodes if isinstance(node, Call | Reduce | Scan)]
    return [gone_through(node, rows) if isinstance(node, Reduce | Scan) else node.axes for node in nodes]


def gone_through(node: Reduce | Scan, rows: Sequence[str] = ()) -> tuple[str, ...]:
    """The axes that a reduction or scan iterates over: `rows`, for which it is repeated, its own, and reduced ones."""
    over = node.over if isinstance(node, Reduce) else (node.over,)
    return tuple(dict.fromkeys((*rows, *node.axes, *over)))


def repeated(op: Op, rows: Sequence[str]) -> list[Reduce | Scan]:
    """The reductions and scans that do not vary along all `rows` of a kernel, which computes them again for each."""
    nodes = (node for value in op.values if rows for node in value.node.nodes if isinstance(node, Reduce | Scan))
    return [node for node in nodes if not {*rows} <= {*gone_through(node)}]


def reduced_sets(op: Op) -> tuple[tuple[str, ...], ...]:
    """The sets of axes that values reduce over."""
    return tuple(dict.fromkeys(value.node.over for value in op.values if isinstance(value.node, Reduce)))


def only_maps_and_reduces(op: Op, by_strips: bool = False) -> bool:
    """Whether an operator has no scans and no scatters, and reductions by strips only if `by_strips`."""
    if any(Scan in value.node.kinds or ScatterSum in value.node.kinds for value in op.values):
        return False
    # An operator without strips has no reductions by strips.
    return by_strips or not op.strips or not any(is_by_strips(node) for node in op.nodes)


def is_extremum(node: Node) -> TypeGuard[Reduce]:
    """Whether a node is a maximum or minimum."""
    return isinstance(node, Reduce) and node.kind in ("max", "min")


def is_by_strips(node: Node) -> bool:
    """Whether a reduction has one value per strip."""
    return isinstance(node, Reduce) and bool(node.strips)


def of_strips(op: Op, result: Result) -> Reduce | None:
    """The reduction by strips that computes a result; None for any other result."""
    node = op.value(result.output.name).node
    return node if isinstance(node, Reduce) and node.strips else None


def gathered(op: Op) -> dict[str, list[Load]]:
    """The loads of each input that `take` alone reads."""
    found: dict[str, list[Load]] = {}
    for node in op.nodes if any(value.node.gathers for value in op.values) else ():
        if isinstance(node, Load):
            found.setdefault(node.name, []).append(node)
    return {name: loads for name, loads in found.items() if all(load.at for load in loads)}


def taken_from(op: Op) -> set[str]:
    """The inputs and values that are read at computed positions anywhere."""
    loads = {node.name for node in op.nodes if isinstance(node, Load) and node.at}
    return loads | {node.arg.name for node in op.nodes if isinstance(node, Take) and isinstance(node.arg, Ref)}


def refusal(op: Op) -> Mistake:
    """The diagnostic for math that no family claims and none has a reason to refuse."""
    line = line_of(op, op.value(op.results[0].output.name))
    return Mistake(
        "TG601", f"{line} is math that no kernel computes", ("compute", line), hint="write it in other terms"
    )


def reduced_name(line: str, node: Node, invented: Container[str]) -> str:
    """A name for a reduction in a line: logits_max, n_valid for a sum of booleans, else from the line's name."""
    arg = node.arg if isinstance(node, Reduce) else node
    arg = arg.arg if isinstance(arg, Cast) else arg
    if isinstance(node, Reduce) and isinstance(arg, Load | Ref) and arg.name not in invented:
        counts = node.kind == "sum" and arg.dtype.kind == "bool"
        return f"n_{arg.name}" if counts else f"{arg.name}_{node.kind}"
    return f"{line}_{getattr(node, 'kind', '')}"


def name_reductions(op: Op) -> Op:
    """Give each reduction and scan inside a larger expression a name of its own."""
    values: list[Value] = []
    names = op.names
    invented = {value.name for value in op.values if not value.source}
    known: dict[Node, Ref] = {}

    def hoist(node: Node, value: Value, top: bool) -> Node:
        if node.kinds.isdisjoint((Reduce, Scan, ScatterSum)):
            return node
        node = rebuild(node, tuple(hoist(child, value, False) for child in children(node)))
        if not isinstance(node, Reduce | Scan | ScatterSum):
            return node
        if node in known:
            return known[node]
        if top:
            known[node] = value.of(node).ref
            return node
        known[node] = named(node, reduced_name(value.name, node, invented), names, values)
        return known[node]

    for value in op.values:
        values.append(value.of(hoist(value.node, value, True)))
    return op.of(values)


def without_aliases(op: Op, required: Container[str]) -> Op:
    """The operator with references to aliases (lines that only rename another) replaced by references to the original.

    References to `required` aliases stay.
    """
    others: dict[str, Ref] = {}

    def own(node: Node) -> Node:
        return others.get(node.name, node) if isinstance(node, Ref) else node

    values: list[Value] = []
    for value in op.values:
        value = value.of(replaced(value.node, own))
        values.append(value)
        if isinstance(value.node, Ref) and value.name not in required:
            others[value.name] = value.node
    return op.of(values) if others else op


def read_lines(op: Op, required: Container[str]) -> Op:
    """The operator without lines that no result depends on, such as those that only `take` reads: elements are computed
    from their inputs. The source of lines that mention them is written out; `required` lines stay.
    """
    refs = op.refs
    roots = [value.name for value in op.values if value.name in required]
    read = reached(refs, [*roots, *(result.output.name for result in op.results)], ())
    unread = [value.name for value in op.values if value.name not in read]
    mentioned = re.compile(rf"\b({'|'.join(map(shown, unread))})\b")
    values = [value for value in op.values if value.name in read]
    if unread:
        mention = {value.name for value in values if mentioned.search(shown(value.source))}
        values = [replace(v, source=_written_out(op, v.node)) if v.name in mention else v for v in values]
    return op.of(values)


def _written_out(op: Op, node: Node) -> str:
    """The source of a node, with lines that are not in the spec replaced by their expressions."""

    def of_lines(inner: Node) -> Node:
        if isinstance(inner, Ref) and not op.value(inner.name).source:
            return replaced(op.value(inner.name).node, of_lines)
        return inner

    return spelled(replaced(node, of_lines))


def differ_in_axes(op: Op, reduced: set[str]) -> bool:
    """Whether results differ in axes other than `reduced`: a kernel would write some many times, or never if one is
    empty.
    """
    visited = {axis for result in op.results for axis in result.axes if axis not in reduced}
    return not all(visited <= {*result.axes} for result in op.results)


def line_of(op: Op, value: Value) -> str:
    """The line of [compute] that a value came from; values that passes named precede their line."""
    after = op.values[op.values.index(value) :]
    return next((v.name for v in after if v.source), value.name)


def references(node: Node) -> frozenset[str]:
    return node.references


def reached(refs: Mapping[str, Iterable[str]], roots: Iterable[str], known: Container[str]) -> set[str]:
    """The values that `roots` depend on, themselves included; those in `known` are included but not followed.

    `refs` maps each value to the names that it refers to.
    """
    found: set[str] = set()
    left = list(roots)
    while left:
        name = left.pop()
        if name not in found and name in refs:
            found.add(name)
            left += () if name in known else refs[name]
    return found


def below(op: Op, node: Node) -> list[Node]:
    """The nodes of an expression, and of the lines that it refers to."""
    lines = reached(op.refs, node.references, ())
    return [inner for one in (node, *(op.value(name).node for name in lines)) for inner in one.nodes]


def with_read_values(op: Op) -> Op:
    """The operator without values that no result depends on."""
    read = reached(op.refs, [result.output.name for result in op.results], ())
    return op.of(value for value in op.values if value.name in read)


def without_strides(op: Op) -> set[str]:
    """The inputs that have one value per row, and those that are passed for their dtype alone."""
    read = set().union(*(reads(value.node) for value in op.values))
    return {tensor.name for tensor in op.inputs if tensor.name not in read} | op.by_row


def reads(node: Node) -> frozenset[str]:
    return node.reads


def guaranteed_axes(op: Op, node: Node, full: Container[str] = ()) -> set[str]:
    """The axes that a node has in full, whatever params choose and whichever optional inputs are absent; the values in
    `full` are known to have all of theirs.
    """
    axes = set(node.axes)
    if isinstance(node, Ref):
        return axes if node.name in full else guaranteed_axes(op, op.value(node.name).node, full)
    if isinstance(node, Load):
        return axes if op.input(node.name).default is None else set()
    if isinstance(node, Index):
        return axes
    if isinstance(node, Choose):
        return guaranteed_axes(op, node.then, full) & guaranteed_axes(op, node.other, full)
    return axes & set[str]().union(*(guaranteed_axes(op, child, full) for child in children(node)))
