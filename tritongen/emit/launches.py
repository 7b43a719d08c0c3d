"""What host functions launch: values that families return, and `templates/launches.jinja` prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..lang.names import shown
from .format import LINE

Value = Any  # text, a number, a call, or a tuple or dictionary of such


@dataclass(frozen=True)
class Call:
    """A call of a function, with its arguments in order and by name."""

    function: str
    passed: tuple[Value, ...] = ()
    named: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Let:
    """Gives a value a name."""

    name: str
    value: Value


@dataclass(frozen=True)
class Launch:
    """A call of the runtime that launches kernels, where what `when` says holds.

    Where it `ends` the function, it gives whether it has launched all; `instead` is called unless it has.
    """

    call: Call
    when: str = ""
    ends: bool = False
    instead: Call | None = None


def call(function: str, *passed: Value, **named: Value) -> Call:
    """A call, but for arguments by name that are as they are by default: "", False or None."""
    return Call(function, passed, {name: value for name, value in named.items() if value not in ("", False, None)})


def written(value: Value) -> str:
    """A value as Python."""
    match value:
        case Call():
            named = (f"{name}={written(own)}" for name, own in value.named.items())
            return f"{value.function}({', '.join([*map(written, value.passed), *named])})"
        case Mapping():
            return "{" + ", ".join(f'"{key}": {written(own)}' for key, own in value.items()) + "}"
        case tuple():
            return f"({', '.join(map(written, value))}{',' * (len(value) == 1)})"
    return str(value)


def in_place(name: str, text: str, statements: tuple[Any, ...]) -> tuple[Any, ...]:
    """Statements in which a text stands where they read a name, if that is once and an argument that does fits into a
    line with it; else nothing.
    """
    readers = [one for one in statements for read in texts_of([one]) if re.search(rf"\b{name}\b", read)]
    if len(readers) != 1 or (isinstance(readers[0], Launch) and readers[0] != Launch(readers[0].call)):
        return ()
    arguments = (argument for one in inside(readers) if isinstance(one, Call) for argument in one.named.items())
    lengths = (len(shown(f"        {key}={written(own)},")) for key, own in arguments if name in texts_of([own]))
    fits = any(length + len(text) - len(name) <= LINE for length in lengths)
    return tuple(_with(one, name, text) for one in statements) if fits else ()


def _with(value: Value, name: str, text: str) -> Value:
    """A value with a text in place of a name."""
    match value:
        case Call() | Let() | Launch():
            return replace(value, **{one.name: _with(getattr(value, one.name), name, text) for one in fields(value)})
        case Mapping():
            return {key: _with(own, name, text) for key, own in value.items()}
        case tuple():
            return tuple(_with(own, name, text) for own in value)
    return text if value == name else value


def texts_of(values: Iterable[Any]) -> Iterator[str]:
    """The texts that some statements and values are made of."""
    return (one for one in inside(values) if isinstance(one, str))


def inside(values: Iterable[Any]) -> Iterator[str | Call]:
    """The calls in some statements and values, and the texts that all of these are made of."""
    for one in values:
        match one:
            case str():
                yield one
            case Let(value=value):
                yield from inside([value])
            case Launch():
                yield from inside([one.when, one.call, one.instead])
            case Call():
                yield one
                yield from inside([*one.passed, *one.named.values()])
            case Mapping():
                yield from inside(one.values())
            case tuple():
                yield from inside(one)
