"""Replaces regions of a trace by operators, in a module that torch.compile accepts."""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..importing.tracing import Trace
from .finding import Found
from .layouts import Argument

aten = torch.ops.aten


class Patched(torch.nn.Module):
    """A model that calls operators. It shares the model's parameters; `forward` takes the example's tensors by keyword.

    Arguments of the example that are no tensors are constants.
    """

    def __init__(self, model: torch.nn.Module, trace: Trace, graph: torch.fx.GraphModule) -> None:
        super().__init__()
        self.model, self.graph = model, graph
        self.arguments = [(one.name, one.path) for one in trace.arguments]
        self.structure = trace.structure

    def forward(self, **tensors: torch.Tensor) -> Any:
        """Raises `TypeError` for missing tensors, and for tensors that the example did not have."""
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
    """The model with the regions `found` in its trace replaced by calls of `operators`, given by spec name."""
    graph = trace.graph.graph
    for one in reversed(tuple(found)):  # A region that reads another one's result then reads the operator's.
        put(graph, narrowed(one), operators[one.operator.spec.name])
    graph.eliminate_dead_code()
    graph.lint()
    return Patched(model, trace, torch.fx.GraphModule(vars(trace.graph), graph))


def narrowed(found: Found, is_there: Callable[[Any], bool] = lambda _: True) -> Found:
    """The region with each input as it was before casts to wider dtypes."""
    choices = {
        name: tuple(replace(one, node=narrow(one.node, is_there)) for one in choices)
        for name, choices in found.choices.items()
    }
    return replace(found, choices=choices)


def put(graph: Any, found: Found, call: Callable[..., Any]) -> list[Any]:
    """Replaces a region by the call of an operator; returns the new nodes, the last of which replaces the root."""
    before = found.root.prev
    with graph.inserting_before(found.root):
        given = {name: _given(graph, one) for name, one in found.inputs.items()}
        made = graph.call_function(call, (), given | dict(found.params))
        made = _laid_out(graph, made, found.result)
        if found.root.meta["val"].dtype != _dtype(found):
            made = graph.call_function(aten.to.dtype, (made, found.root.meta["val"].dtype))
    found.root.replace_all_uses_with(made)
    nodes = []
    while before.next is not found.root:
        before = before.next
        nodes.append(before)
    return nodes


def _given(graph: Any, argument: Argument) -> Any:
    """Applies an argument's select, narrow, permute, flatten, unsqueeze and expand; returns the last node."""
    argument = _without_new_ones(argument)
    made = argument.node
    for place in sorted(argument.selected, reverse=True):
        made = graph.call_function(aten.select.int, (made, place, 0))
    for place, count in argument.splits:
        length = graph.call_function(aten.sym_size.int, (made, place))
        length = graph.call_function(python.floordiv, (length, count))
        made = graph.call_function(aten.narrow.default, (made, place, 0, length))
    order = [place for places in argument.order for place in places]
    if order != sorted(order):
        made = graph.call_function(aten.permute.default, (made, order))
    for place, places in enumerate(argument.order):
        if len(places) > 1:
            made = graph.call_function(aten.flatten.using_ints, (made, place, place + len(places) - 1))
        elif not places:
            made = graph.call_function(aten.unsqueeze.default, (made, place))
    return _expanded(graph, made, argument)


def _without_new_ones(argument: Argument) -> Argument:
    """The argument without steps that cancel: a dimension of length 1 that is selected and inserted again."""
    shape, rest = argument.node.meta["val"].shape, [places for places in argument.order if places]
    new = tuple(place for place, places in enumerate(argument.order) if not places)
    is_same = new == argument.selected and all(isinstance(shape[one], int) and shape[one] == 1 for one in new)
    if not new or not is_same or rest != [(place,) for place in range(len(rest))]:
        return argument
    left = [place for place in range(len(shape)) if place not in new]
    splits = tuple((left[place], count) for place, count in argument.splits)
    return replace(argument, selected=(), splits=splits, order=tuple((place,) for place in range(len(shape))), new=new)


def _expanded(graph: Any, made: Any, argument: Argument) -> Any:
    lengths = iter(argument.lengths)
    sizes = [
        -1 if places and place not in argument.new else _size(graph, next(lengths))
        for place, places in enumerate(argument.order)
    ]
    if all(isinstance(one, int) and one in (-1, 1) for one in sizes):
        return made
    return graph.call_function(aten.expand.default, (made, sizes))


def _size(graph: Any, dims: Sequence[tuple[Any, int]]) -> Any:
    return graph.call_function(aten.sym_size.int, dims[0]) if dims else 1


def narrow(node: Any, is_there: Callable[[Any], bool] = lambda _: True) -> Any:
    """The node before casts that only widen a float dtype, because kernels compute in float32 anyway."""
    while node.op == "call_function" and node.target in _WIDENING and isinstance(node.args[0], torch.fx.Node):
        before, after = node.args[0].meta["val"], node.meta["val"]
        is_wider = torch.promote_types(before.dtype, after.dtype) == after.dtype and before.is_floating_point()
        is_cast = is_wider and after.is_floating_point() and before.device == after.device
        if not is_cast or not is_there(node.args[0]):
            break
        node = node.args[0]
    return node


_WIDENING = (aten.to.dtype, aten._to_copy.default, aten.to.dtype_layout)


def _laid_out(graph: Any, made: Any, result: Sequence[int]) -> Any:
    """An operator's result, permuted and unsqueezed to the dimensions of the root."""
    order = [place for place in result if place >= 0]
    if order != sorted(order):
        made = graph.call_function(aten.permute.default, (made, order))
    for place, one in enumerate(result):
        if one < 0:
            made = graph.call_function(aten.unsqueeze.default, (made, place))
    return made


def _dtype(found: Found) -> torch.dtype:
    """The dtype of the operator's result: an input's, a named one or, for "auto", promoted from the float inputs."""
    output = found.operator.spec.outputs[0]
    dtypes = {name: one.node.meta["val"].dtype for name, one in found.inputs.items()}
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
