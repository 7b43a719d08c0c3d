"""The table from ATen operators to builders of their values; modules of `operators` fill it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Builder = Callable[..., Any]
_Made = TypeVar("_Made", bound=Builder)
OPERATORS: dict[str, Builder] = {}  # by the name in torch.ops.aten, with its overload where that matters


def operator(*names: str) -> Callable[[_Made], _Made]:
    """Registers a builder: a function of the translation and of the operator's arguments that returns values."""

    def register(builder: _Made) -> _Made:
        for name in names:
            assert name not in OPERATORS, name
            OPERATORS[name] = builder
        return builder

    return register


def row_of(target: Any) -> tuple[str, Builder] | None:
    """The name and builder of an operator's row; in-place, `_copy` and `special_` variants share the plain row."""
    packet, overload = target._schema.name.split("::")[1], target._overloadname
    in_place = packet.rstrip("_") if not packet.startswith("_") or packet.endswith("_") else packet
    for name in (packet, in_place, packet.removesuffix("_copy"), packet.removeprefix("special_")):
        found = OPERATORS.get(f"{name}.{overload}") or OPERATORS.get(name)
        if found:
            return name, found
    return None
