"""The table from ATen operators to what they are in the language; modules of `operators` fill it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Builder = Callable[..., Any]
_Made = TypeVar("_Made", bound=Builder)
OPERATORS: dict[str, Builder] = {}  # by the name in torch.ops.aten, with its overload where that matters


def operator(*names: str) -> Callable[[_Made], _Made]:
    """Registers a function of a translation and the operator's arguments, which returns values."""

    def register(builder: _Made) -> _Made:
        for name in names:
            assert name not in OPERATORS, name
            OPERATORS[name] = builder
        return builder

    return register


def row_of(target: Any) -> tuple[str, Builder] | None:
    """The row of an operator, and its name there; of what writes in place or copies, the row of what does not."""
    packet, overload = target._schema.name.split("::")[1], target._overloadname
    in_place = packet.rstrip("_") if not packet.startswith("_") or packet.endswith("_") else packet
    for name in (packet, in_place, packet.removesuffix("_copy"), packet.removeprefix("special_")):
        found = OPERATORS.get(f"{name}.{overload}") or OPERATORS.get(name)
        if found:
            return name, found
    return None
