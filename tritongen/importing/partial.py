"""`--partial`: the longest runs of a trace that specs can express, and the Python that calls these and torch."""

from __future__ import annotations

import operator as python
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch

from ..diagnostics.report import Rejected
from .building import hint
from .refusals import Refusal
from .regions import Region, is_number
from .regions_module import Module
from .table import row_of
from .targets import Length, Target
from .tracing import Argument, Trace, symbols_in
from .translation import Translation
from .variables import variables
from .writing import written


@dataclass(frozen=True, slots=True)
class Partial:
    """The regions of a function, and the text of a module that calls their operators in place of their nodes."""

    name: str
    target: Target
    trace: Trace
    regions: tuple[Region, ...]
    left: tuple[str, ...]  # names of the nodes that are left to torch
    source: str


def regions(target: Target, trace: Trace, scalars: Mapping[str, float | int], name: str) -> list[Region]:
    """The runs of nodes that specs can express, in order, each as long as possible."""
    nodes = [one for one in trace.graph.graph.nodes if one.op not in ("placeholder", "output")]
    names = variables(trace)
    found: list[Region] = []
    start = 0
    while start < len(nodes):
        limit = start + _sayable(trace, scalars, nodes[start:], names)
        ends = (one for one in range(limit, start, -1) if not is_number(nodes[one - 1]) and _is_math(nodes[start:one]))
        own = f"{name}_{len(found) + 1}"
        tried = (_region(target, trace, scalars, nodes[start:end], names, own) for end in ends)
        made = next(filter(None, tried), None)
        found += [made] if made else []
        start += len(made.nodes) if made else 1
    return found


def _sayable(trace: Trace, scalars: Mapping[str, float | int], nodes: Sequence[Any], names: Mapping[str, str]) -> int:
    """The number of nodes before the first one that the language cannot express."""
    if _reads_lists(nodes):
        return 0
    translation = Translation(subgraph_of(trace, nodes, [], names)[0], scalars)
    translation.run()
    places = {one.name: place for place, one in enumerate(nodes)}
    return min((places[one] for one in translation.refused), default=len(nodes))


def _reads_lists(nodes: Sequence[Any]) -> bool:
    """Whether any of `nodes` reads a list of tensors from a node outside of them."""
    inside = set(nodes)
    lists = (one for node in nodes for one in node.all_input_nodes if isinstance(one.meta.get("val"), list | tuple))
    return any(one not in inside for one in lists)


def _is_math(nodes: Sequence[Any]) -> bool:
    """Whether nodes are worth a kernel: more than views, and more than one elementwise function."""
    kinds = [kind for kind in map(kind_of, nodes) if kind not in ("", "shapes", "creation")]
    return len(kinds) > 1 or any(kind != "pointwise" for kind in kinds)


def kind_of(node: Any) -> str:
    """The module of the table that has a node's operator; "" for lengths and items of lists."""
    if is_number(node) or not hasattr(node.target, "_schema"):
        return ""
    if row := row_of(node.target):
        return row[1].__module__.rpartition(".")[2]
    aliases = [one.alias_info for one in node.target._schema.returns]
    return "shapes" if any(one is not None and not one.is_write for one in aliases) else "other"


def _region(
    target: Target, trace: Trace, scalars: Mapping[str, float | int], nodes: Sequence[Any], names: Mapping[str, str],
    name: str,
) -> Region | None:  # fmt: skip
    """The region of some nodes; None if no spec can express it."""
    tensors = [one for one in nodes if isinstance(one.meta.get("val"), torch.Tensor)]
    results = [one for one in tensors if not set(one.users) <= set(nodes)]
    subgraph, given = subgraph_of(trace, nodes, results, names)
    own = replace(target, command=f"{target.command} --partial", summary="", is_region=True)
    try:
        made = written(own, subgraph, scalars, name)
    except (Rejected, Refusal):
        return None
    return Region(tuple(nodes), given, tuple(results), subgraph, made)


def subgraph_of(
    trace: Trace, nodes: Sequence[Any], results: Sequence[Any], names: Mapping[str, str]
) -> tuple[Trace, tuple[Any, ...]]:
    """The trace of `nodes` alone, and the other nodes that they read, which are its arguments."""
    known = dict(zip((one for one in trace.graph.graph.nodes if one.op == "placeholder"), trace.arguments, strict=True))
    inside = set(nodes)
    reads = [one for node in nodes if not is_number(node) for one in node.all_input_nodes]
    given = [one for one in dict.fromkeys(reads) if one not in inside and not is_number(one)]
    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    arguments: list[Argument] = []
    for one in given:
        argument = known[one] if one in known else _argument(one, names, [other.name for other in arguments])
        arguments.append(argument)
        copies[one] = graph.placeholder(one.name)
        copies[one].meta = dict(one.meta)

    def copied(one: Any) -> Any:
        if one not in copies:  # A length: its metadata has the formula.
            copies[one] = graph.create_node("call_function", python.index, (), {}, one.name)
            copies[one].meta = dict(one.meta)
        return copies[one]

    for node in nodes:
        copies[node] = copied(node) if is_number(node) else graph.node_copy(node, copied)
        copies[node].name = node.name
    graph.output([copies[one] for one in results])
    symbols = symbols_in(arguments, "expr")
    own = SimpleNamespace(**{**vars(trace.graph), "graph": graph})
    return replace(trace, graph=own, arguments=tuple(arguments), results=(), symbols=symbols), tuple(given)


def _argument(node: Any, names: Mapping[str, str], used: Sequence[str]) -> Argument:
    tensor = node.meta["val"]
    name = names.get(node.name, node.name)
    while name in used or not name.isidentifier():
        name = f"{node.name}_{len(used)}" if name == node.name else node.name
    shape = tuple(Length(hint(one), "", not isinstance(one, torch.SymInt)) for one in tensor.shape)
    return Argument(name, tensor, shape, "", tensor.dtype.is_floating_point)


def partial(target: Target, trace: Trace, scalars: Mapping[str, float | int], name: str) -> Partial:
    """Imports the regions of a function. Raises `Refusal` if specs can express none of it."""
    found = regions(target, trace, scalars, name)
    if not found:
        raise Refusal("no part of it can be said", "a part is more than one elementwise function")
    inside = {one for region in found for one in region.nodes}
    left = [one for one in trace.graph.graph.nodes if one.op == "call_function" and one not in inside]
    shown = [one.name for one in left if not is_number(one) and one.target is not python.getitem]
    return Partial(name, target, trace, tuple(found), tuple(shown), Module(trace, found, name).text())
