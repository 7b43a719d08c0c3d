"""Conditions of positions that a trace computes in some way, compared by their values at several lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..importing.formulas import symbols_of, value
from ..importing.regions import is_number
from .forms import Form
from .layouts import Dim
from .windows import Window

_TRIED = (0, 3, 6)  # what is added to open lengths


def params_of_mask(
    form: Form, leaf: Form, window: Window, axes: Mapping[int, Dim], known: Mapping[str, float]
) -> dict[str, float] | None:
    """The params with which a condition of the spec has the values of an input of a window, which is of nothing but
    lengths: the `known` ones, and one more where the condition has it alone. None where there are none.
    """
    node = window.given.get(str(leaf.data))
    if node is None:
        return None
    grown = _symbols(form, window, axes)
    unknown = sorted({str(one.data) for one in _within(form) if one.kind == "param"} - known.keys())
    choices: list[dict[str, float]] = [{}]
    if unknown:
        choices = [{unknown[0]: one} for one in _integers(node)] if len(unknown) == 1 else []
    for params in choices:
        beyond = max((abs(int(one)) + 2 for one in params.values()), default=0)  # Where a window is shorter than rows.
        lengths = [_Lengths(more) for more in _TRIED] + ([_Lengths(beyond, grown)] if params else [])
        try:
            if all(_agrees(form, node, window, axes, one, {**known, **params}) for one in lengths):
                return params
        except _Reads:
            return None
    return None


class _Reads(Exception):
    """It is computed of tensors, or by unknown functions."""


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Open lengths that are so much more than the example's: some of them, or all."""

    more: int
    symbols: frozenset[Any] | None = None

    def of(self, symbolic: Any) -> Any:
        node = symbolic.node
        hints, read = node.shape_env.hints, symbols_of(node.expr)
        grown = read if self.symbols is None else self.symbols
        return node.pytype(value(node.expr, {one: hints[one] + self.more * (one in grown) for one in read}))


def _within(form: Form) -> Iterator[Form]:
    yield form
    for one in form.args:
        yield from _within(one)


def _symbols(form: Form, window: Window, axes: Mapping[int, Dim]) -> frozenset[Any]:
    """The lengths of the axes that a condition is along, as the trace has them."""
    atoms = (atom for one in _within(form) for axis in one.axes for atom in axes.get(axis, ()))
    formulas = map(window.translation.axes.formula, atoms)
    return frozenset().union(*map(symbols_of, formulas))


def _integers(node: Any) -> Iterator[int]:
    """The integers that a node is computed of, each with those beside it: `<` of one is `<=` of another."""
    found, left = dict[int, None](), [node]
    seen = set(left)
    while left:
        one = left.pop()
        found |= dict.fromkeys(number for number in one.args if type(number) is int)
        left += [other for other in one.all_input_nodes if other not in seen]
        seen |= set(left)
    yield from dict.fromkeys(number + beside for beside in (0, 1, -1) for number in found if abs(number) < _LONGEST)


_LONGEST = 1 << 13  # A mask of rows that are longer takes too much memory.


def _agrees(
    form: Form, node: Any, window: Window, axes: Mapping[int, Dim], at: _Lengths, params: Mapping[str, float]
) -> bool:
    import torch

    found = _run(node, {}, at)
    dims = window.dims(node)
    order = [atom for dim in dims for atom in dim]
    if any(len(dim) > 1 for dim in dims) or not isinstance(found, torch.Tensor):
        raise _Reads
    lengths = {dim[0]: length for dim, length in zip(dims, found.shape, strict=True) if dim}
    wanted = _Values(order, lengths, axes, params)(form)
    shape = [length for dim, length in zip(dims, found.shape, strict=True) if dim]
    return bool((wanted.expand(shape) == found.reshape(shape)).all())


def _run(node: Any, known: dict[Any, Any], at: _Lengths) -> Any:
    """A node's value at some lengths."""
    import torch

    if node not in known:
        if is_number(node):
            known[node] = at.of(node.meta["val"])
        elif node.op != "call_function":
            raise _Reads
        else:
            made = torch.fx.map_arg((node.args, node.kwargs), lambda one: _run(one, known, at))
            known[node] = node.target(*made[0], **made[1])
    return known[node]


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a spec's form along the axes of the trace in some order, of some lengths."""

    order: Sequence[int]
    lengths: Mapping[int, int]
    axes: Mapping[int, Dim]
    params: Mapping[str, float]

    def __call__(self, form: Form) -> Any:
        import torch

        if form.kind == "number":
            return torch.tensor(form.data)
        if form.kind == "param":
            return torch.tensor(self.params[str(form.data)])
        if form.kind == "size":
            return torch.tensor(self.lengths[self._atom((form.data,))])
        if form.kind == "index":
            atom = self._atom(form.data)
            place = self.order.index(atom)
            shape = [-1 if one == place else 1 for one in range(len(self.order))]
            return torch.arange(self.lengths[atom]).view(shape)
        function = _FUNCTIONS.get(form.kind)
        if function is None:
            raise _Reads
        first, *rest = map(self, form.args)
        for other in rest:
            first = getattr(torch, function)(first, other)
        return first if rest else getattr(torch, function)(first)

    def _atom(self, axes: Any) -> int:
        atoms = [atom for axis in axes for atom in self.axes[axis]]
        if len(atoms) != 1 or atoms[0] not in self.lengths:
            raise _Reads
        return atoms[0]


_FUNCTIONS = {
    **{one: one for one in "le lt eq ne logical_and logical_or logical_not add mul floor_divide remainder".split()},
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
}
