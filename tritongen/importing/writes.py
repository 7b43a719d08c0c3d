"""Operators that write in place, which are fine where nothing else reads the memory that they write."""

from __future__ import annotations

import operator as python
from collections.abc import Sequence
from typing import Any

from .refusals import Refusal


def check_write(node: Any, arguments: Sequence[str]) -> None:
    """Refuses a write to an argument, by their names in order, and to a part of a tensor that is read later."""
    written = node.args[0]
    memory = _memory(written)
    later = False
    placeholders = [one for one in node.graph.nodes if one.op == "placeholder"]
    for other in node.graph.nodes:
        if other is node:
            later = True
        elif memory is not None and _memory(other) == memory and not _is_other_part(other, written):
            if other in placeholders:
                name = arguments[placeholders.index(other)] if len(placeholders) == len(arguments) else other.name
                raise Refusal(f"this writes to its input {name}", "compute a new tensor, and return it")
            if other is not written and not later and any(user > node for user in other.users):
                raise Refusal("this writes to a part of a tensor", "write torch.where with positions")


def _memory(node: Any) -> object:
    import torch

    found = node.meta.get("val")
    return found.untyped_storage()._cdata if isinstance(found, torch.Tensor) else None


def _is_other_part(one: Any, other: Any) -> bool:
    """Whether both are chunks of one split, which share no element."""
    one, other = map(_first_written, (one, other))
    are_items = one.target is python.getitem and other.target is python.getitem
    return are_items and one.args[0] is other.args[0] and one.args[1] != other.args[1]


def _first_written(node: Any) -> Any:
    """The node whose memory an operator writes to, and gives as its result."""
    while node.op == "call_function" and getattr(getattr(node.target, "_schema", None), "is_mutable", False):
        node = node.args[0]
    return node
