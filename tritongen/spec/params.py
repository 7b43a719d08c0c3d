"""A param of a spec, from the value or the table that declares it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..diagnostics.report import Mistake, Mistakes, did_you_mean
from .toml import Table
from .types import Param, ParamValue

# Types of params, each with a type that its default may have.
_TAKEN = {("float", "float"), ("float", "int"), ("int", "int"), ("bool", "bool")}


def read_param(name: str, value: Any) -> Param:
    """The param that `value` declares; `value` conforms to the schema. Raises `Mistakes`."""
    if not isinstance(value, dict):
        return Param(name, _kind(value), value)
    mistakes = list(_choice_mistakes(name, value) if "choices" in value else _mistakes(name, value))
    if mistakes:
        raise Mistakes(*mistakes)
    default = value.get("default")
    if "choices" in value:
        return Param(name, "enum", default, tuple(value["choices"]))
    kind = _kind_of(value)
    if kind == "float" and default is not None:
        default = float(default)
    return Param(name, kind, default, (), value.get("min"), value.get("max"))


def instead_of_a_word(name: str, value: object) -> str:
    """How to declare a param whose value was written as a string."""
    word = value.strip() if isinstance(value, str) else ""
    if word in ("float", "int", "bool"):
        return f'a param without a default has a type: {name} = {{ type = "{word}" }}'
    if word.lower() in ("true", "false"):
        return f"write it without quotes: {name} = {word.lower()}"
    try:
        float(word)
    except ValueError:
        word = word if word.isidentifier() and word != "None" else "none"
        return f'one of a few words: {name} = {{ choices = ["{word}", "other"], default = "{word}" }}'
    return f"write it without quotes: {name} = {word}"


def number_of(value: object) -> float | int | None:
    """`value` if it is a number and no boolean; None otherwise."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _kind(value: ParamValue) -> str:
    return type(value).__name__


def _kind_of(table: Table) -> str:
    kind: str = table["type"] if "type" in table else _kind(table["default"])
    return kind


def _choice_mistakes(name: str, table: Table) -> Iterator[Mistake]:
    default, choices = table.get("default"), table["choices"]
    for other in ("type", "min", "max"):
        if other in table:
            message = f"'{name}' has choices, so it cannot have '{other}'"
            yield Mistake("TG133", message, ("params", name, other))
    if default is not None and default not in choices:
        length = len(default) if isinstance(default, str) else 1
        hint = did_you_mean(str(default), choices, f"the choices are {', '.join(choices)}")
        message = f"the default of '{name}' is not among its choices"
        yield Mistake("TG132", message, ("params", name, "default"), 0, length, hint)


def _mistakes(name: str, table: Table) -> Iterator[Mistake]:
    """Mistakes of a flag or a numeric param: of its type, or, if the type is correct, of its range."""
    key = ("params", name)
    default = table.get("default")
    if isinstance(default, str):
        hint = instead_of_a_word("default", default)
        if not hint.startswith("write it"):
            hint = f'list what it may be: choices = ["{default}", ...]'
        message = f"the default of '{name}' is a word, but it has no choices"
        yield Mistake("TG133", message, (*key, "default"), 0, len(default), hint)
    elif default is None and "type" not in table:
        hint = 'write a default, or type = "float", "int" or "bool"'
        yield Mistake("TG130", f"'{name}' has neither a default nor a type", key, hint=hint)
    elif default is not None and (_kind_of(table), _kind(default)) not in _TAKEN:
        message = f"the default of '{name}' is {_kind(default)}, but its type is {_kind_of(table)}"
        yield Mistake("TG133", message, (*key, "default"), 0)
    else:
        yield from _range_mistakes(name, table)


def _range_mistakes(name: str, table: Table) -> Iterator[Mistake]:
    key = ("params", name)
    kind = _kind_of(table)
    low, high, default = (number_of(table.get(field)) for field in ("min", "max", "default"))
    for bound, value in (("min", low), ("max", high)):
        if value is not None and kind == "bool":
            message = f"'{name}' is a flag, so it cannot have '{bound}'"
            yield Mistake("TG133", message, (*key, bound))
        elif value is not None and (value != value or (kind == "int" and value % 1)):
            yield Mistake("TG133", f"'{bound}' of '{name}' cannot be {value}", (*key, bound), 0)
    if low is not None and high is not None and low > high:
        message = f"'min' of '{name}' is {low}, more than 'max', which is {high}"
        yield Mistake("TG131", message, (*key, "min"), 0)
    elif default is not None and low is not None and default < low:
        message = f"the default of '{name}' is {default}, less than 'min', which is {low}"
        yield Mistake("TG131", message, (*key, "default"), 0)
    elif default is not None and high is not None and default > high:
        message = f"the default of '{name}' is {default}, more than 'max', which is {high}"
        yield Mistake("TG131", message, (*key, "default"), 0)
