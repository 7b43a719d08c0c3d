"""Torch's decompositions of operators that the table has no row for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .table import row_of
from .tracer import Tracer


def made_of(node: Any) -> tuple[Any, list[Any]]:
    """The graph that torch decomposes an operator into, or None, and the nodes that are its placeholders."""
    nodes = list(dict.fromkeys(node.all_input_nodes))
    found = [one.meta["val"] for one in nodes]
    mode = next((getattr(one, "fake_mode", None) for one in found if isinstance(one, torch.Tensor)), None)
    if mode is None:
        return None, []
    tracer = Tracer(mode.shape_env, mode, _decompositions())
    for one, value in zip(nodes, found, strict=True):
        tracer.placed(tracer.graph.placeholder(one.name), value)
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
    try:
        with tracer.tracing():
            results = node.target(*args, **kwargs)
        tracer.returns(results)
    except Exception:
        return None, []
    is_itself = any(one.op == "call_function" and one.target is node.target for one in tracer.graph.nodes)
    return (None, []) if is_itself else (tracer.graph, nodes)


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Torch's decompositions, except of operators that have a row."""
    from torch._decomp import core_aten_decompositions

    known: Mapping[Any, Callable[..., Any]] = core_aten_decompositions()
    return {one: made for one, made in known.items() if row_of(one) is None}
