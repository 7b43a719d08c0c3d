"""Conditions of positions that a trace computes in some way, compared by their values at several lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..importing.regions import is_number
from .forms import Form
from .layouts import Dim
from .windows import Window

_TRIED = (0, 3, 6)  # what is added to open lengths


def is_mask(form: Form, leaf: Form, window: Window, axes: Mapping[int, Dim]) -> bool:
    """Whether an input of a window is of nothing but lengths, and has the values of a condition of the spec."""
    node = window.given.get(str(leaf.data))
    if node is None:
        return False
    try:
        return all(_agrees(form, node, window, axes, more) for more in _TRIED)
    except _Reads:
        return False


class _Reads(Exception):
    """It is computed of tensors, or in ways that are unknown here."""


def _agrees(form: Form, node: Any, window: Window, axes: Mapping[int, Dim], more: int) -> bool:
    import torch

    found = _run(node, {}, more)
    dims = window.dims(node)
    order = [atom for dim in dims for atom in dim]
    if any(len(dim) > 1 for dim in dims) or not isinstance(found, torch.Tensor):
        raise _Reads
    lengths = {dim[0]: length for dim, length in zip(dims, found.shape, strict=True) if dim}
    wanted = _values(form, order, lengths, axes)
    shape = [length for dim, length in zip(dims, found.shape, strict=True) if dim]
    return bool((wanted.expand(shape) == found.reshape(shape)).all())


def _run(node: Any, known: dict[Any, Any], more: int) -> Any:
    """A node's value, where open lengths are so much more than the example's."""
    import torch

    if node not in known:
        if is_number(node):
            known[node] = _number(node.meta["val"], more)
        elif node.op != "call_function":
            raise _Reads
        else:
            made = torch.fx.map_arg((node.args, node.kwargs), lambda one: _run(one, known, more))
            known[node] = node.target(*made[0], **made[1])
    return known[node]


def _number(symbolic: Any, more: int) -> Any:
    import torch

    expr = symbolic.node.expr
    shape_env = symbolic.node.shape_env
    hints = {one: int(shape_env.backed_var_to_val[one]) + more for one in expr.free_symbols}
    found = expr.subs(hints)
    return float(found) if isinstance(symbolic, torch.SymFloat) else int(found)


def _values(form: Form, order: list[int], lengths: Mapping[int, int], axes: Mapping[int, Dim]) -> Any:
    import torch

    if form.kind == "number":
        return torch.tensor(form.data)
    if form.kind == "index":
        atoms = [atom for axis in form.data for atom in axes[axis]]  # type: ignore[attr-defined]
        if len(atoms) != 1 or atoms[0] not in lengths:
            raise _Reads
        place = order.index(atoms[0])
        return torch.arange(lengths[atoms[0]]).view([-1 if one == place else 1 for one in range(len(order))])
    function = _FUNCTIONS.get(form.kind)
    if function is None:
        raise _Reads
    args = [_values(one, order, lengths, axes) for one in form.args]
    made = args[0]
    for other in args[1:]:
        made = getattr(torch, function)(made, other)
    return made if args[1:] else getattr(torch, function)(made)


_FUNCTIONS = {
    **{one: one for one in "le lt eq ne logical_and logical_or logical_not add mul floor_divide remainder".split()},
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
}
