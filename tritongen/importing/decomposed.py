"""What torch itself makes an operator of, where the table has no row for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .table import row_of


def made_of(node: Any) -> tuple[Any, list[Any]]:
    """The graph that torch decomposes an operator into, or None, and the nodes that are its placeholders."""
    from torch._decomp import core_aten_decompositions

    from .tracer import Tracer, arguments_of

    nodes = list(dict.fromkeys(node.all_input_nodes))
    found = [one.meta["val"] for one in nodes]
    mode = next((getattr(one, "fake_mode", None) for one in found if isinstance(one, torch.Tensor)), None)
    if mode is None:
        return None, []
    tracer = Tracer(mode.shape_env, mode, _decompositions(core_aten_decompositions()))
    for one, value in zip(nodes, found, strict=True):
        tracer.placed(tracer.graph.placeholder(one.name), value)
    args, kwargs = arguments_of(node)
    try:
        with tracer.tracing():
            results = node.target(*args, **kwargs)
        tracer.returns(results)
    except Exception:
        return None, []
    graph = tracer.graph
    made = [one for one in graph.nodes if one.op == "call_function" and isinstance(one.target, torch._ops.OpOverload)]
    if any(one.target is node.target for one in made):
        return None, []
    return graph, nodes


def _decompositions(known: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Torch's, but for operators that have a row."""

    def has_row(one: Any) -> bool:
        return row_of(one._schema.name.split("::")[1], one._overloadname) is not None

    return {one: made for one, made in known.items() if not has_row(one)}
