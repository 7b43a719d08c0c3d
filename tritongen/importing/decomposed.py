"""What torch itself makes an operator of, where the table has no row for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .table import builder_of


def made_of(node: Any) -> tuple[Any, list[Any]]:
    """The graph that torch decomposes an operator into, or None, and the nodes that are its placeholders."""
    import torch
    from torch._decomp import core_aten_decompositions
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    flat, shape = pytree.tree_flatten((list(node.args), dict(node.kwargs)))
    places = [place for place, one in enumerate(flat) if isinstance(one, torch.fx.Node)]
    nodes = [flat[place] for place in places]

    def called(*given: Any) -> Any:
        filled = list(flat)
        for place, one in zip(places, given, strict=True):
            filled[place] = one
        args, kwargs = pytree.tree_unflatten(filled, shape)
        return node.target(*args, **kwargs)

    given = [one.meta["val"] for one in nodes]
    mode = next((getattr(one, "fake_mode", None) for one in given if isinstance(one, torch.Tensor)), None)
    if mode is None:
        return None, []
    try:
        with mode:
            graph = make_fx(called, decomposition_table=_decompositions(core_aten_decompositions()))(*given).graph
    except Exception:
        return None, []
    graph.eliminate_dead_code()
    made = [one for one in graph.nodes if one.op == "call_function" and isinstance(one.target, torch._ops.OpOverload)]
    if any(one.target is node.target for one in made):
        return None, []
    return graph, nodes


def _decompositions(known: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Torch's, but for operators that have a row."""

    def has_row(one: Any) -> bool:
        return builder_of(one._schema.name.split("::")[1], one._overloadname) is not None

    return {one: made for one, made in known.items() if not has_row(one)}
