"""Nodes of a trace as Python: calls of ATen operators as people write them."""

from __future__ import annotations

import inspect
import math
import operator as python
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

# For scalars and tensors, by names of Python's functions and of ATen operators.
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "truediv": "/"}
_SCALAR_SYMBOLS = _SYMBOLS | {"pow": "**", "mod": "%"}
_ELSEWHERE = ("layout", "pin_memory")  # arguments for the placement in memory, not for the math


def plain(node: Any, args: Sequence[str]) -> str:
    """An item of a list or arithmetic of lengths; "" for another node."""
    if node.target is python.getitem:
        return f"{inner(args[0])}[{args[1]}]"
    name = getattr(node.target, "__name__", str(node.target))
    return f"{inner(args[0])} {_SCALAR_SYMBOLS[name]} {inner(args[1])}" if name in _SCALAR_SYMBOLS else ""


def named_arguments(node: Any) -> dict[str, Any]:
    """The keyword arguments of an ATen call, without `layout`, `pin_memory` and those equal to their defaults."""
    defaults = {one.name: one.default_value for one in node.target._schema.arguments if one.has_default_value()}
    said = {name: one for name, one in node.kwargs.items() if name not in _ELSEWHERE}
    return {name: one for name, one in said.items() if not (name in defaults and _is_same(one, defaults[name]))}


def _is_same(one: Any, default: Any) -> bool:
    return type(one) is type(default) and bool(one == default)


def called(node: Any, args: Sequence[str], named: Mapping[str, str]) -> str:
    """A call of an ATen operator: as an operator of Python, a method, or a function of torch."""
    names = [one.name for one in node.target._schema.arguments]
    name = node.target._schema.name.split("::")[1]
    special = _special(node, name, args) if not named else ""
    if special:
        return special
    given = [*args, *(f"{key}={text}" for key, text in named.items())]
    if names[:1] == ["self"] and hasattr(torch.Tensor, name) and isinstance(node.args[0], torch.fx.Node):
        return f"{inner(args[0])}.{name}({', '.join(given[1:])})"
    if _has_arguments(getattr(torch.nn.functional, name, None), names):
        return f"torch.nn.functional.{name}({', '.join(given)})"
    if names[:1] != ["self"] and inspect.isbuiltin(getattr(torch, name, None)):
        return f"torch.{name}({', '.join(given)})"
    return f"torch.ops.{node.target}({', '.join(given)})"


def _special(node: Any, name: str, args: Sequence[str]) -> str:
    """A call that has a syntax of its own, such as arithmetic or a slice; "" for other calls."""
    if name in _SYMBOLS and len(args) == 2:
        return f"{inner(args[0])} {_SYMBOLS[name]} {inner(args[1])}"
    if name == "sym_size":
        return f"{inner(args[0])}.shape[{args[1]}]"
    if name == "narrow" and node.args[2] == 0:
        before = ":, " * node.args[1]
        return f"{inner(args[0])}[{before}:{args[3]}]"
    return _slice(node, args) if name == "slice" else ""


def _slice(node: Any, args: Sequence[str]) -> str:
    tensor = node.args[0].meta.get("val")
    _, place, start, end = [*node.args, *(0, None, None)[len(node.args) - 1 :]][:4]
    if tensor is None or len(node.args) > 4 or not isinstance(place, int):
        return ""
    starts = args[2] if len(args) > 2 and start not in (0, None) else ""
    ends = args[3] if len(args) > 3 and end is not None and not (isinstance(end, int) and end > 2**60) else ""
    place %= tensor.dim()
    before = "..., " if place and place == tensor.dim() - 1 else ":, " * place
    return inner(args[0]) + (f"[{before}{starts}:{ends}]" if starts or ends else "")


def _has_arguments(function: Any, names: list[str]) -> bool:
    """Whether a function of torch has the same arguments as an operator, in the same order."""
    if inspect.isbuiltin(function) or function is None:
        return function is not None
    return list(inspect.signature(function).parameters)[1:] == names[1:]


def inner(text: str) -> str:
    """An expression as an operand: in parentheses if it has spaces outside of brackets."""
    outside, before = text, ""
    while outside != before:
        outside, before = re.sub(r"[\[(][^\[\]()]*[\])]", "", outside), outside
    return f"({text})" if " " in outside else text


def literal(value: Any) -> str:
    """A dtype, number, string or None as Python; "" for other values."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value) if isinstance(value, torch.dtype | int | float | str | None) else ""
