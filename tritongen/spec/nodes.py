"""The grammar of tables and keys: one description that `read` validates with and `schema` exports to editors."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ..diagnostics.report import Mistake, did_you_mean, listed

Key = tuple[str, ...]
NAME_PATTERN = "^[A-Za-z][A-Za-z0-9_]*$"


@dataclass(frozen=True, slots=True)
class Text:
    says: str
    choices: tuple[str, ...] = ()
    pattern: str = ""  # for editors; the reader parses the text, and reports more

    noun, types = "a string", (str,)


@dataclass(frozen=True, slots=True)
class Flag:
    says: str

    noun, types = "a boolean", (bool,)


@dataclass(frozen=True, slots=True)
class Number:
    says: str

    noun, types = "a number", (int, float)


@dataclass(frozen=True, slots=True)
class Integer:
    says: str
    minimum: int
    maximum: int
    power_of_two: bool = False

    noun, types = "an integer", (int,)


@dataclass(frozen=True, slots=True)
class Many:
    """An array of at least `least` distinct values."""

    says: str
    item: Text | Integer
    least: int = 1

    types = (list,)

    @property
    def noun(self) -> str:
        return f"an array of {self.item.noun.split()[-1]}s"


@dataclass(frozen=True, slots=True)
class Either:
    says: str
    options: tuple[Text | Flag | Number | Integer | Many | Fields, ...]
    otherwise: str | Callable[[str, object], str] = ""  # the hint for a value of another type, or its function

    @property
    def noun(self) -> str:
        return listed(dict.fromkeys(option.noun for option in self.options))

    @property
    def types(self) -> tuple[type, ...]:
        return tuple(one for option in self.options for one in option.types)


@dataclass(frozen=True, slots=True)
class Entries:
    """A table whose keys are the user's names."""

    says: str
    value: Node
    needed: bool = False

    noun, types = "a table", (dict,)


@dataclass(frozen=True, slots=True)
class Fields:
    """A table whose keys are ours."""

    says: str
    fields: Mapping[str, Node]
    required: tuple[str, ...] = ()
    is_root: bool = field(default=False)

    noun, types = "a table", (dict,)


Node = Text | Flag | Number | Integer | Many | Either | Entries | Fields


def examine(node: Node, value: object, key: Key = ()) -> Iterator[Mistake]:
    """All mistakes of `value` against the description `node`."""
    if type(value) not in node.types:
        message = f"{_named(key)} must be {node.noun}, not {noun_of(value)}"
        hint = node.otherwise if isinstance(node, Either) else ""
        hint = hint if isinstance(hint, str) else hint(key[-1], value)
        yield Mistake("TG105", message, key, 0, 1, hint)
        return
    match node, value:
        case Either(options=options), _:
            fitting = [one for one in options if type(value) in one.types]
            keys = set(value) if isinstance(value, dict) else set()
            known = (one for one in fitting if isinstance(one, Fields) and keys & set(one.fields))
            yield from examine(next(known, fitting[0]), value, key)
        case Text(), str(word):
            yield from _examine_text(node, word, key)
        case Number(), int(number) if abs(number) >= 1 << 63:
            yield Mistake("TG108", f"{_named(key)} does not fit in 64 bits", key, 0)
        case Integer(), int(number):
            yield from _examine_integer(node, number, key)
        case Many(), list(items):
            yield from _examine_items(node, items, key)
        case Entries(), dict(table):
            if node.needed and not table:
                yield Mistake("TG107", f"{_named(key)} is empty", key)
            for name, inner in table.items():
                yield from examine(node.value, inner, (*key, name))
        case Fields(), dict(table):
            yield from _examine_fields(node, table, key)


def noun_of(value: object) -> str:
    return _NOUNS.get(type(value), "a date or time")


_NOUNS: dict[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "a string",
    list: "an array",
    dict: "a table",
}


def _named(key: Key) -> str:
    if len(key) == 1:
        return f"[{key[0]}]"
    return f"'{key[-2]}[{key[-1]}]'" if key[-1].isdigit() else f"'{key[-1]}'"


def _examine_text(node: Text, word: str, key: Key) -> Iterator[Mistake]:
    unseen = next((at for at, sign in enumerate(word) if _is_unseen(sign)), -1)
    if unseen >= 0:
        message = f"{_named(key)} has the invisible character {ascii(word[unseen])[1:-1]}"
        yield Mistake("TG116", message, key, unseen, 1, "generated text must read as it is")
    elif node.choices and word not in node.choices:
        hint = did_you_mean(word, node.choices, f"write {listed(map(repr, node.choices))}")
        message = f"{_named(key)} cannot be {word!r}"
        yield Mistake("TG106", message, key, 0, max(1, len(word)), hint)
    elif not word.strip():
        yield Mistake("TG107", f"{_named(key)} is empty", key, 0, 1, f"write {node.says}")


def _is_unseen(sign: str) -> bool:
    """Whether a character is invisible or changes how others are displayed, as directional controls do."""
    return unicodedata.category(sign) in ("Cc", "Cf", "Zl", "Zp") and sign not in "\t\n\r"


def _examine_integer(node: Integer, number: int, key: Key) -> Iterator[Mistake]:
    if not node.minimum <= number <= node.maximum:
        message = f"{_named(key)} is {number}, but must be from {node.minimum} to {node.maximum}"
        yield Mistake("TG502", message, key, 0)
    elif node.power_of_two and number & (number - 1):
        below = 1 << (number.bit_length() - 1)
        near = [size for size in (below, 2 * below) if size <= node.maximum]
        message = f"{_named(key)} is {number}, which is not a power of two"
        yield Mistake("TG501", message, key, 0, 1, f"write {listed(map(str, near))}")


def _examine_items(node: Many, items: list[object], key: Key) -> Iterator[Mistake]:
    if len(items) < node.least:
        yield Mistake("TG107", f"{_named(key)} is empty", key, 0, 1, "leave it out, or fill it")
    for position, item in enumerate(items):
        at = (*key, str(position))
        yield from examine(node.item, item, at)
        if item in items[:position]:
            yield Mistake("TG115", f"{item!r} is listed twice", at, 0)


def _examine_fields(node: Fields, table: dict[str, object], key: Key) -> Iterator[Mistake]:
    where = f" in {_named(key)}" if key else ""
    what = "table" if node.is_root else "key"
    for name, inner in table.items():
        if name in node.fields:
            yield from examine(node.fields[name], inner, (*key, name))
            continue
        otherwise = f"known are {', '.join(node.fields)}"
        if home := _home_of(node, name):
            otherwise = f"'{name}' belongs to [{home}]"
        hint = did_you_mean(name, node.fields, otherwise)
        yield Mistake("TG103", f"unknown {what} '{name}'{where}", (*key, name), hint=hint)
    for name in node.required:
        if name not in table:
            missing = f"[{name}]" if node.is_root else f"'{name}'"
            hint = f"it holds {node.fields[name].says}"
            yield Mistake("TG104", f"{missing} is missing{where}", (*key, name), hint=hint)


def _home_of(root: Fields, name: str) -> str:
    """The table that a key at the top of a file was meant for."""
    for table, node in root.fields.items():
        if root.is_root and isinstance(node, Fields) and name in node.fields:
            return table
    return ""
