"""Checks operators that write in place: they are allowed if nothing else reads the memory that they write."""

from __future__ import annotations

import operator as python
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .refusals import Refusal

if TYPE_CHECKING:
    from .tracing import Argument


WRITES_TO_BUFFERS = (
    "this writes to buffers, as batch_norm in training does",
    "import it in evaluation, as model.py:Model(...).eval(), or with track_running_stats=False",
)


def check_write(node: Any, arguments: Sequence[Argument]) -> None:
    """Raises `Refusal` for a write to one of `arguments`, and to a part of a tensor that is read later."""
    for written in written_by(node):
        _check_written(node, written, arguments)


def written_by(node: Any) -> Iterator[Any]:
    """The tensors that an operator writes to."""
    schema = getattr(node.target, "_schema", None)
    for place, one in enumerate(schema.arguments if schema is not None else ()):
        if one.alias_info is not None and one.alias_info.is_write:
            given = node.args[place] if place < len(node.args) else node.kwargs.get(one.name)
            yield from given if isinstance(given, tuple | list) else [given] if given is not None else []


def _check_written(node: Any, written: Any, arguments: Sequence[Argument]) -> None:
    memory = _memory(written)
    later = False
    placeholders = [one for one in node.graph.nodes if one.op == "placeholder"]
    for other in node.graph.nodes:
        if other is node:
            later = True
        elif memory is not None and _memory(other) == memory and not _is_other_item(other, written):
            if other in placeholders:
                argument = arguments[placeholders.index(other)]
                if argument.path and not argument.wants_gradient:
                    raise Refusal(*WRITES_TO_BUFFERS)
                raise Refusal(f"this writes to its input {argument.name}", "compute a new tensor, and return it")
            if other is not written and not later and any(user > node for user in other.users):
                raise Refusal("this writes to a part of a tensor", "write torch.where with positions")


def _memory(node: Any) -> object:
    found = node.meta.get("val")
    return found.untyped_storage()._cdata if isinstance(found, torch.Tensor) else None


def _is_other_item(one: Any, other: Any) -> bool:
    """Whether both are different items of one split, which share no element."""
    one, other = map(_first_written, (one, other))
    are_items = one.target is python.getitem and other.target is python.getitem
    return are_items and one.args[0] is other.args[0] and one.args[1] != other.args[1]


def _first_written(node: Any) -> Any:
    """The node whose memory a chain of in-place operators writes to and returns."""
    while node.op == "call_function" and (written := next(written_by(node), None)) is not None:
        node = written
    return node
