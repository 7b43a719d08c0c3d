"""Masks of positions in a trace, compared with a spec's conditions by their values at several lengths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..importing.formulas import symbols_of, value
from ..importing.regions import is_number
from .forms import Form, reached, within
from .layouts import Dim
from .windows import Window

_TRIED = (0, 3, 6)  # added to symbolic lengths


@dataclass(frozen=True, slots=True)
class Mask:
    """A condition of positions that an operator computes itself, and the traced tensor (`node`) with its values."""

    node: Any
    form: Form
    axes: Mapping[int, Dim]
    params: Mapping[str, float]
    window: Window

    def condition(self, node: Any) -> str:
        """The condition as Python, with positions `i` and lengths `n` by dimension; "" if `node` has other values."""
        beyond = max((abs(int(one)) + 2 for one in self.params.values()), default=0)  # Makes rows longer than a window.
        lengths = [_Lengths(more) for more in _TRIED]
        if 0 < beyond < _LONGEST:
            lengths.append(_Lengths(beyond, _symbols(self.form, self.window, self.axes)))
        try:
            text = self._text(self.form, _places(node, self.window))
            return text if all(_agrees(text, node, one) for one in lengths) else ""
        except _Reads:
            return ""

    def _text(self, form: Form, places: Mapping[int, int]) -> str:
        if form.kind in ("number", "param"):
            number = float(form.data) if form.kind == "number" else self.params[str(form.data)]  # type: ignore[arg-type]
            return repr(int(number) if number == int(number) else number)
        if form.kind in ("size", "index"):
            axes = [atom for axis in (form.data if form.kind == "index" else (form.data,)) for atom in self.axes[axis]]  # type: ignore
            if len(axes) != 1 or axes[0] not in places:
                raise _Reads
            return f"{'n' if form.kind == 'size' else 'i'}[{places[axes[0]]}]"
        if form.kind not in _SYMBOLS:
            raise _Reads
        args = [text if one.kind in _PLAIN else f"({text})" for one in form.args for text in [self._text(one, places)]]
        text = f" {_SYMBOLS[form.kind]} ".join(args) if len(args) > 1 else f"{_SYMBOLS[form.kind]}{args[0]}"
        return re.sub(r"\+ \((\([^()]*\)|\S+) \* -1\)", r"- \1", text).replace("+ -", "- ")


def mask_of(form: Form, leaf: Form, window: Window, axes: Mapping[int, Dim], known: Mapping[str, float]) -> Mask | None:
    """The mask of the spec's condition `form`, if the window's input `leaf` has the same values; None otherwise. Params
    are `known`; a single unknown one is searched for among the integers that `leaf` is computed from.
    """
    node = window.given.get(str(leaf.data))
    if node is None:
        return None
    params = {str(one.data) for one in within(form) if one.kind == "param"}
    own = {name: known[name] for name in params & known.keys()}
    unknown = sorted(params - known.keys())
    choices: list[dict[str, float]] = [{}]
    if unknown:
        choices = [{unknown[0]: one} for one in _integers(node)] if len(unknown) == 1 else []
    made = (Mask(node, form, axes, own | choice, window) for choice in choices)
    return next((one for one in made if one.condition(node)), None)


class _Reads(Exception):
    """The mask reads tensors, or is computed by functions that are not supported here."""


@dataclass(frozen=True, slots=True)
class _Lengths:
    """The example's symbolic lengths increased by `more`: those in `symbols`, or all if it is None."""

    more: int
    symbols: frozenset[Any] | None = None

    def of(self, symbolic: Any) -> Any:
        node = symbolic.node
        hints, read = node.shape_env.hints, symbols_of(node.expr)
        grown = read if self.symbols is None else self.symbols
        return node.pytype(value(node.expr, {one: hints[one] + self.more * (one in grown) for one in read}))


def _symbols(form: Form, window: Window, axes: Mapping[int, Dim]) -> frozenset[Any]:
    """The symbols in the lengths of a condition's axes."""
    atoms = (atom for one in within(form) for axis in one.axes for atom in axes.get(axis, ()))
    formulas = (window.translation.axes[one].formula for one in atoms)
    return frozenset().union(*map(symbols_of, formulas))


def _integers(node: Any) -> Iterator[int]:
    """The integers that a node is computed from, then each plus and minus 1, because `<` and `<=` differ by that."""
    nodes = reached([node], lambda one: one.all_input_nodes)
    found = [one for node in nodes for one in node.args if type(one) is int and abs(one) < _LONGEST]
    yield from dict.fromkeys(number + offset for offset in (0, 1, -1) for number in found)


_LONGEST = 1 << 13  # A mask with longer rows takes too much memory.


def _places(node: Any, window: Window) -> dict[int, int]:
    """The dimension of each axis of a tensor. Raises `_Reads` for groups of axes."""
    dims = window.dims(node) if node in window.values else ()
    if any(len(dim) > 1 for dim in dims):
        raise _Reads
    return {dim[0]: place for place, dim in enumerate(dims) if dim}


def _agrees(condition: str, node: Any, at: _Lengths) -> bool:
    import torch

    found = _run(node, {}, at)
    if not isinstance(found, torch.Tensor):
        raise _Reads
    shapes = [(-1, *[1] * (found.ndim - place - 1)) for place in range(found.ndim)]
    positions = [torch.arange(length).view(shape) for length, shape in zip(found.shape, shapes, strict=True)]
    wanted = eval(condition, {"i": positions, "n": found.shape})
    return bool((torch.as_tensor(wanted).expand(found.shape) == found).all())


def _run(node: Any, known: dict[Any, Any], at: _Lengths) -> Any:
    """The value of a node, computed at the lengths `at`."""
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


_PLAIN = ("number", "param", "size", "index")
_SYMBOLS = {
    "le": "<=", "lt": "<", "eq": "==", "ne": "!=", "add": "+", "mul": "*", "floor_divide": "//", "remainder": "%",
    "logical_and": "&", "bitwise_and": "&", "logical_or": "|", "bitwise_or": "|", "logical_not": "~",
}  # fmt: skip
