"""Decomposes losses with a reduction into unreduced losses and a reduction, so that operators of either one match."""

from __future__ import annotations

from typing import Any

from ..importing.tracing import Trace

_COUNTED = ("cross_entropy_loss", "nll_loss")  # whose mean is over the targets that are not ignored


def decompose_reductions(trace: Trace) -> None:
    """Decomposes unweighted ATen losses with a reduction in the graph of a trace."""
    graph = trace.graph.graph
    for node in list(graph.nodes):
        schema = getattr(node.target, "_schema", None)
        names = [one.name for one in schema.arguments] if schema else []
        given = dict(node.kwargs) | dict(zip(names, node.args, strict=False))
        if (
            "reduction" in names
            and given.get("reduction", 1)
            and given.get("weight") is None
            and node.target.namespace == "aten"
        ):
            _decompose(trace, node, given)
    graph.eliminate_dead_code()


def _decompose(trace: Trace, node: Any, given: dict[str, Any]) -> None:
    import torch

    aten = torch.ops.aten
    is_mean = given.get("reduction", 1) == 1
    name = node.target._schema.name.split("::")[1]
    places, calls = trace.recording.places.get(node.name, ()), trace.recording.calls

    def made(target: Any, args: tuple[Any, ...]) -> Any:
        new = trace.graph.graph.call_function(target, args)
        new.meta["val"] = target(*torch.fx.map_arg(args, lambda one: one.meta["val"]))
        trace.recording.places[new.name] = places
        if node.name in calls:
            calls[new.name] = calls[node.name]
        return new

    mode = node.meta["val"].fake_mode
    with trace.graph.graph.inserting_before(node), mode:
        names = [one.name for one in node.target._schema.arguments]
        defaults = {one.name: one.default_value for one in node.target._schema.arguments}
        loss = made(node.target, tuple((defaults | given | {"reduction": 0})[one] for one in names))
        if is_mean and name in _COUNTED:
            target = next(value for key, value in given.items() if key == "target")
            if target.meta["val"].is_floating_point():
                return
            valid = made(aten.ne.Scalar, (target, given.get("ignore_index", -100)))
            count = made(aten.to.dtype, (made(aten.sum.default, (valid,)), node.meta["val"].dtype))
            one_over = made(aten.reciprocal.default, (count,))
            result = made(aten.sum.default, (made(aten.mul.Tensor, (loss, one_over)),))
        else:
            result = made(aten.mean.default if is_mean else aten.sum.default, (loss,))
    node.replace_all_uses_with(result)
    trace.graph.graph.erase_node(node)
    result.name = node.name  # Recorded calls have this name as their result.
