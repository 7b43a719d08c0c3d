"""What functions of the host do, as values: families make them, and `templates/host.jinja` prints them.

Their leaves are expressions as text, of which `names_in` says what they read.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..lang.names import shown
from .format import LINE
from .imports import host_imports
from .scoping import OF_ALL

Value = Any  # text, a number, a call, or a tuple or dictionary of such
Names = str | tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """A call of a function, with its arguments in order and by name."""

    function: str
    passed: tuple[Value, ...] = ()
    named: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Let:
    """Gives a value a name, or the elements of one several."""

    name: Names
    value: Value

    @property
    def target(self) -> str:
        if isinstance(self.name, str):
            return self.name
        return ", ".join(self.name) if len(self.name) > 1 else f"({self.name[0]},)"

    @property
    def source(self) -> str:
        """The value as Python has it beside the names."""
        of_each = isinstance(self.name, tuple) and isinstance(self.value, tuple)
        return ", ".join(map(written, self.value)) if of_each else written(self.value)

    @property
    def bound(self) -> tuple[str, ...]:
        return tuple(_NAME.findall(self.target))


@dataclass(frozen=True)
class Length(Let):
    """Gives lengths names, or other numbers: one that nothing reads is left out."""


@dataclass(frozen=True)
class Allocate(Let):
    """Makes the memory of a result, which launches write."""


@dataclass(frozen=True)
class Do:
    """Calls what refuses arguments, or moves memory."""

    value: Value


@dataclass(frozen=True)
class Raise:
    """Refuses arguments; the message has expressions in braces."""

    message: str

    @property
    def text(self) -> str:
        return f'{"f" if "{" in self.message else ""}"{self.message}"'


@dataclass(frozen=True)
class Return:
    value: Value


@dataclass(frozen=True)
class Launch:
    """A call of the runtime that launches kernels, where what `when` says holds.

    Where it `ends` the function, which returns that, it gives whether it has launched all; `instead` is called unless
    it has.
    """

    call: Call
    when: str = ""
    ends: str = ""
    instead: Call | None = None


@dataclass(frozen=True)
class If:
    test: str
    body: tuple[Statement, ...]
    note: str = ""
    other: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class Note:
    """A comment on the next statement."""

    text: str


Statement = Let | Do | Raise | Return | Launch | If | Note


def call(function: str, *passed: Value, **named: Value) -> Call:
    """A call, but for arguments by name that are as they are by default: "", False or None."""
    return Call(function, passed, {name: value for name, value in named.items() if value not in ("", False, None)})


def given(name: str, text: str, otherwise: str = "None") -> str:
    """A value that is made of a tensor, and another where that is None."""
    return f"{text} if {name} is not None else {otherwise}"


def refused(test: str, message: str) -> If:
    return If(test, (Raise(message),))


def written(value: Value) -> str:
    match value:
        case Call():
            named = (f"{name}={written(own)}" for name, own in value.named.items())
            return f"{value.function}({', '.join([*map(written, value.passed), *named])})"
        case Mapping():
            return "{" + ", ".join(f'"{key}": {written(own)}' for key, own in value.items()) + "}"
        case tuple():
            return f"({', '.join(map(written, value))}{',' * (len(value) == 1)})"
    return str(value)


# What statements read

_NAME = re.compile(r"(?<![.\w])[^\W\d]\w*(?![\w(]|=(?!=))")  # but for functions, and for arguments by name
_STRING = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")
_BRACES = re.compile(r"\{([^{}]*)\}")


def names_in(text: str) -> list[str]:
    """The names that an expression reads, but for those of the functions that it calls."""
    return _NAME.findall(_STRING.sub("", text))


def reads(values: Iterable[Any]) -> Counter[str]:
    """How often some statements and values read each name."""
    return Counter(name for text in inside(values) if isinstance(text, str) for name in names_in(text))


def called(values: Iterable[Any]) -> frozenset[str]:
    """The functions that some statements call."""
    return frozenset(one.function for one in inside(values) if isinstance(one, Call))


def inside(values: Iterable[Any]) -> Iterator[str | Call]:
    """The calls in some statements and values, and the expressions that all of these are made of."""
    for one in values:
        match one:
            case str() if one:
                yield one
            case Raise(message):
                alone = message.replace("{{", "").replace("}}", "")  # Doubled braces are the words' own.
                yield from (text.partition("!")[0] for text in _BRACES.findall(alone))
            case Let(value=value) | Do(value) | Return(value):
                yield from inside([value])
            case Launch():
                yield from inside([one.when, one.call, one.instead, one.ends])
            case If():
                yield from inside([one.test, *one.body, *one.other])
            case Call():
                yield one
                yield from inside([*one.passed, *one.named.values()])
            case Mapping():
                yield from inside(one.values())
            case tuple():
                yield from inside(one)


# How they are made simpler


def finished(statements: Iterable[Statement], given: Iterable[str]) -> tuple[Statement, ...]:
    """What a function does that is given some names, without lengths that nothing reads. Raises `TypeError` where that
    is unsound.
    """
    left = without_unread(statements)
    check_function(left, given)
    return left


def without_unread(statements: Iterable[Statement]) -> tuple[Statement, ...]:
    """The statements without lengths that nothing reads; beside one that is read, in a shape, `N` becomes `_N`."""
    every = tuple(statements)
    read = reads(every)
    left = tuple(one for each in every for one in _without_unread(each, read))
    return left if left == every else without_unread(left)


def _without_unread(one: Statement, read: Counter[str]) -> Iterator[Statement]:
    if isinstance(one, If):
        body, other = (tuple(left for each in b for left in _without_unread(each, read)) for b in (one.body, one.other))
        yield replace(one, body=body, other=other)
        return
    if not isinstance(one, Length):
        yield one
        return
    own = reads([one])
    known = {name for name in one.bound if read[name] > own[name]}
    match one.name, one.value:
        case tuple() as names, tuple() as values:
            pairs = [pair for pair in zip(names, values, strict=True) if pair[0] in known]
            yield from [Length(*zip(*pairs, strict=True))] if len(pairs) > 1 else [Length(*pair) for pair in pairs]
        case tuple() as names, _ if known:
            yield replace(one, name=tuple(name if {*_NAME.findall(name)} <= known else _unread(name) for name in names))
        case _ if known:
            yield one


def _unread(name: str) -> str:
    star, own = name[: name[0] == "*"], name.removeprefix("*")
    return name if own[0] == "_" else f"{star}_{own}"


def in_place(let: Let, statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """Some statements and one before them, that gives a text a name. It stands in place of that where they read it
    once, and the argument that does fits into a line with it.
    """
    name, text = str(let.name), str(let.value)
    readers = [one for one in statements if name in reads([one])]
    if reads(readers)[name] != 1 or (isinstance(readers[0], Launch) and readers[0] != Launch(readers[0].call)):
        return (let, *statements)
    arguments = (argument for one in inside(readers) if isinstance(one, Call) for argument in one.named.items())
    lengths = (len(shown(f"        {key}={written(own)},")) for key, own in arguments if name in [*inside([own])])
    fits = any(length + len(text) - len(name) <= LINE for length in lengths)
    return tuple(_with(one, name, text) for one in statements) if fits else (let, *statements)


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


# Whether they are sound

_OF_MODULES = host_imports("").keys()


def check_function(statements: Sequence[Statement], given: Iterable[str]) -> None:
    """Raises `TypeError` where a function reads a name before it has a value, and for memory that nothing writes."""
    lets = [one for one in _all(statements) if isinstance(one, Let)]
    made = {name for one in lets if isinstance(one, Allocate) for name in one.bound}
    launches = [one for one in _all(statements) if isinstance(one, Launch)]
    if unwritten := made - reads([*lets, *launches]).keys():
        raise TypeError(f"no launch writes {', '.join(sorted(unwritten))}")
    _check_names(statements, {*given, *_OF_MODULES, *keyword.kwlist, *OF_ALL})


def _check_names(statements: Sequence[Statement], known: set[str]) -> None:
    for one in statements:
        if missing := reads([one.test] if isinstance(one, If) else [one]).keys() - known:
            raise TypeError(f"{', '.join(sorted(missing))} is read before it has a value: {one}")
        if isinstance(one, If):
            _check_names((*one.body, *one.other), known)
        if isinstance(one, Let):
            known |= {*one.bound}


def _all(statements: Sequence[Statement]) -> Iterator[Statement]:
    for one in statements:
        yield one
        yield from _all((*one.body, *one.other)) if isinstance(one, If) else ()
