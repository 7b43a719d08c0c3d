"""Operators in the place of regions of a trace, as a module that torch.compile takes."""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..importing.tracing import Trace
from .finding import Found
from .layouts import Argument

aten = torch.ops.aten


class Patched(torch.nn.Module):
    """A model that calls operators. It has the model's parameters, and the signature of its forward by keywords.

    What was not a tensor in the example stays as it was there.
    """

    def __init__(self, model: torch.nn.Module, trace: Trace, graph: torch.fx.GraphModule) -> None:
        super().__init__()
        self.model, self.graph = model, graph
        self.arguments = [(one.name, one.path) for one in trace.arguments]
        self.structure = trace.structure

    def forward(self, **tensors: torch.Tensor) -> Any:
        """Raises `TypeError` for tensors that the example had not, or that are missing."""
        state = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        wanted = {name for name, path in self.arguments if not path}
        if set(tensors) != wanted:
            raise TypeError(f"it was traced with the tensors {sorted(wanted)}, and gets {sorted(tensors)}")
        flat = [state[path] if path else tensors[name] for name, path in self.arguments]
        found = iter(self.graph(*flat))
        structure, has = self.structure
        return pytree.tree_unflatten([next(found) if one else None for one in has], structure)


def patched(
    model: torch.nn.Module, trace: Trace, found: Iterable[Found], operators: Mapping[str, Callable[..., Any]]
) -> Patched:
    """The model with operators, by the names of their specs, in the place of what was found of it in its trace."""
    graph = trace.graph.graph
    for one in found:
        _put(graph, one, operators[one.operator.spec.name])
    graph.eliminate_dead_code()
    graph.lint()
    trace.graph.recompile()
    return Patched(model, trace, trace.graph)


def _put(graph: Any, found: Found, call: Callable[..., Any]) -> None:
    with graph.inserting_before(found.root):
        given = {name: _given(graph, one) for name, one in found.inputs.items()}
        made = graph.call_function(call, (), given | dict(found.params))
        made = _laid_out(graph, made, found.result)
        if found.root.meta["val"].dtype != _dtype(found):
            made = graph.call_function(aten.to.dtype, (made, found.root.meta["val"].dtype))
    found.root.replace_all_uses_with(made)


def _given(graph: Any, argument: Argument) -> Any:
    """The tensor that an operator is given, step by step."""
    made = _narrow(argument.node)
    for place in sorted(argument.selected, reverse=True):
        made = graph.call_function(aten.select.int, (made, place, 0))
    for place, count in argument.parts:
        length = graph.call_function(aten.sym_size.int, (made, place))
        length = graph.call_function(python.floordiv, (length, count))
        made = graph.call_function(aten.slice.Tensor, (made, place, 0, length))
    order = [place for places in argument.order for place in places]
    if order != sorted(order):
        made = graph.call_function(aten.permute.default, (made, order))
    for place, places in enumerate(argument.order):
        if len(places) > 1:
            made = graph.call_function(aten.flatten.using_ints, (made, place, place + len(places) - 1))
        elif not places:
            made = graph.call_function(aten.unsqueeze.default, (made, place))
    return _expanded(graph, made, argument)


def _expanded(graph: Any, made: Any, argument: Argument) -> Any:
    lengths = iter(argument.lengths)
    sizes = [-1 if places else _size(graph, *next(lengths)) for places in argument.order]
    if all(isinstance(one, int) and one in (-1, 1) for one in sizes):
        return made
    return graph.call_function(aten.expand.default, (made, sizes))


def _size(graph: Any, node: Any, place: int) -> Any:
    return 1 if node is None else graph.call_function(aten.sym_size.int, (node, place))


def _narrow(node: Any) -> Any:
    """What a tensor was before it was only made wider: kernels compute in float32 in any case."""
    while node.op == "call_function" and node.target in _WIDENING and isinstance(node.args[0], torch.fx.Node):
        before, after = node.args[0].meta["val"], node.meta["val"]
        is_wider = torch.promote_types(before.dtype, after.dtype) == after.dtype and before.is_floating_point()
        if not (is_wider and after.is_floating_point() and before.device == after.device):
            break
        node = node.args[0]
    return node


_WIDENING = (aten.to.dtype, aten._to_copy.default, aten.to.dtype_layout)


def _laid_out(graph: Any, made: Any, result: Sequence[int]) -> Any:
    """A result of an operator, with the dimensions of the root."""
    order = [place for place in result if place >= 0]
    if order != sorted(order):
        made = graph.call_function(aten.permute.default, (made, order))
    for place, one in enumerate(result):
        if one < 0:
            made = graph.call_function(aten.unsqueeze.default, (made, place))
    return made


def _dtype(found: Found) -> torch.dtype:
    """What the operator's result has."""
    output = found.operator.spec.outputs[0]
    dtypes = {name: _narrow(one.node).meta["val"].dtype for name, one in found.inputs.items()}
    if output.dtype in dtypes:
        own: torch.dtype = dtypes[output.dtype]
        return own
    if output.dtype != "auto":
        named: torch.dtype = getattr(torch, output.dtype)
        return named
    floats = [one for one in dtypes.values() if one.is_floating_point] or list(dtypes.values())
    made: torch.dtype = floats[0]
    for one in floats[1:]:
        made = torch.promote_types(made, one)
    return made
