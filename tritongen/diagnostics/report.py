"""Mistakes of a spec, and their reports: code, position, source line, caret and hint."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake of a spec as a stage reports it, without a position in the file.

    `key` is the path of TOML keys to the value at fault, () for the file itself; elements of arrays
    have their index, as a string. `start` is an offset into the value if it is a string, and 0 for
    any other value; None points at the key itself.
    """

    code: str
    message: str
    key: tuple[str, ...] = ()
    start: int | None = None
    length: int = 1
    hint: str = ""


class Mistakes(Exception):
    """All mistakes that one stage found in one spec."""

    def __init__(self, *mistakes: Mistake) -> None:
        super().__init__("; ".join(mistake.message for mistake in mistakes))
        self.mistakes = mistakes


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A mistake or a finding at its place. A line of 0 means the file as a whole."""

    path: str
    line: int
    column: int
    code: str
    message: str
    hint: str = ""
    source: str = ""  # the line itself
    length: int = 1

    @property
    def level(self) -> str:
        """The severity: "warning" for findings that are no mistakes, else "error"."""
        return "warning" if self.code.startswith("TG9") or self.code in ("TG504", "TG505") else "error"

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else self.path


class Rejected(Exception):
    """The specs or the settings have mistakes, so nothing was done."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = in_order(diagnostics)
        super().__init__("\n".join(map(as_text, self.diagnostics)))


class BadOption(ValueError):
    """An invalid value of a command-line option, with the reason."""

    option = ""


class Unavailable(Exception):
    """A dependency of the command is not installed, or not in a supported version."""


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    def place(one: Diagnostic) -> tuple[str, int, int, str, str]:
        return one.path, one.line, one.column, one.code, one.message

    return tuple(sorted(dict.fromkeys(diagnostics), key=place))


def closest(word: str, options: Iterable[str]) -> str:
    """The option closest to `word`, regardless of case; "" if none is close."""
    by_lower = {option.lower(): option for option in sorted(set(options))}
    if word.lower() in by_lower:
        return by_lower[word.lower()]
    found = difflib.get_close_matches(word.lower(), by_lower, 1) if len(word) > 2 else []
    return by_lower[found[0]] if found else ""


def did_you_mean(word: str, options: Iterable[str], otherwise: str = "") -> str:
    """A hint that names the closest option, else `otherwise`."""
    found = closest(word, options)
    return f"did you mean '{found}'?" if found else otherwise


def listed(options: Iterable[str], last: str = "or") -> str:
    """`a, b or c`"""
    names = list(options)
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def as_text(diagnostic: Diagnostic, color: bool = False) -> str:
    import click

    def paint(text: str, **style: object) -> str:
        return click.style(text, **style) if color else text  # type: ignore[arg-type]

    hue = "red" if diagnostic.level == "error" else "yellow"
    label = paint(f"{diagnostic.level} {diagnostic.code}", fg=hue, bold=True)
    place, message = printable(diagnostic.place), printable(diagnostic.message)
    where = f"{paint(place, bold=True)}: " if place else ""  # Diagnostics of the command line have no place.
    lines = [f"{where}{label}: {paint(message, bold=True)}"]
    if diagnostic.source.strip():
        margin = f"{diagnostic.line:5} | "
        before = diagnostic.source[: diagnostic.column - 1]
        marked = diagnostic.source[diagnostic.column - 1 :][: diagnostic.length]
        carets = "^" * max(1, sum(map(_width, marked)))
        lines += [
            paint(margin, fg="blue") + _aligned(diagnostic.source),
            paint(" " * 5 + " | ", fg="blue") + _blank(before) + paint(carets, fg=hue, bold=True),
        ]
    if diagnostic.hint:
        lines.append(paint("help:", fg="cyan", bold=True) + f" {printable(diagnostic.hint)}")
    return "\n".join(lines)


def as_data(diagnostic: Diagnostic) -> dict[str, str | int]:
    """The diagnostic as fields for `--format json`."""
    names = "path", "line", "column", "length", "code", "level", "message", "hint"
    return {name: getattr(diagnostic, name) for name in names}


def as_github(diagnostic: Diagnostic) -> str:
    """A workflow command that GitHub shows next to the line."""

    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    line, column = max(1, diagnostic.line), max(1, diagnostic.column)
    fields = {"file": diagnostic.path, "line": line, "col": column, "title": f"tritongen {diagnostic.code}"}
    properties = (
        f"{name}={escaped(str(value)).replace(':', '%3A').replace(',', '%2C')}" for name, value in fields.items()
    )
    message = printable(diagnostic.message) + (f"\n{printable(diagnostic.hint)}" if diagnostic.hint else "")
    return f"::{diagnostic.level} {','.join(properties)}::{escaped(message)}"


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _blank(text: str) -> str:
    return "".join("\t" if one == "\t" else " " * _width(one) for one in text)


def printable(text: str) -> str:
    """`text` with nonprintable characters escaped, since specs, paths and arguments may contain terminal controls."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _aligned(text: str) -> str:
    """A line of a spec with "?" for nonprintable characters but tabs, so that each character keeps its column."""
    return "".join(one if one.isprintable() or one == "\t" else "?" for one in text)
