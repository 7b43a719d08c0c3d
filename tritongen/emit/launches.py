"""What host functions launch: values that families return, and `templates/launches.jinja` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
