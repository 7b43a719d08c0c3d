"""TOML text -> tables, and the position and cause of syntax errors."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import Any

from ..diagnostics.report import Diagnostic

Table = dict[str, Any]
# Hints for the parser's messages, by how these begin.
_HINTS = {
    "Invalid value": "a string stands in quotes",
    "Illegal character '\\n'": "a string in single or double quotes ends on its line",
    "Cannot overwrite a value": "this key is given twice",
    "Cannot declare": "a table is written once",
}
_TUPLE = re.compile(r"\('[^)]*\)")  # a path of keys, as Python writes it
_PAIR = re.compile(r"\s*[\w\"'.-]+\s*=")
_SYNTAX = re.compile(r"(.*?) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


@dataclass(eq=False)
class BadToml(Exception):
    """A syntax error of TOML, with its position."""

    message: str
    line: int
    column: int
    hint: str = ""


def parse_toml(text: str) -> Table:
    """The tables of a document. Raises `BadToml`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _SYNTAX.fullmatch(str(error))
        message, line, column = found.groups() if found else (str(error), "1", "1")
        if line is None:
            lines = text.rstrip("\n").split("\n")
            line, column = len(lines), len(lines[-1]) + 1
        hint = next((hint for start, hint in _HINTS.items() if message.startswith(start)), "")
        if message.startswith("Cannot overwrite a value"):  # Reported after the value; the mistake is in the key.
            written = text.split("\n")[int(line) - 1]
            column = len(written) - len(written.lstrip()) + 1 if _PAIR.match(written) else column
        message = _TUPLE.sub(lambda keys: ".".join(re.findall(r"'([^']*)'", keys[0])), message)
        message = message[:1].lower() + message[1:]
        raise BadToml(message, int(line), int(column), hint) from None
    except ValueError:  # Python limits the digits of an integer.
        start = next((found.start() for found in re.finditer(r"[+-]?[0-9][0-9_]{4000,}", text)), 0)
        line, before = text.count("\n", 0, start) + 1, text[:start].rpartition("\n")[2]
        raise BadToml("a number of too many digits", line, len(before) + 1, "numbers fit in 64 bits") from None
    except RecursionError:
        raise BadToml("nested too deep", 1, 1) from None


def syntax_error(shown: str, text: str, code: str) -> Diagnostic:
    """The diagnostic for text that is not valid TOML."""
    try:
        parse_toml(text)
    except BadToml as error:
        lines = text.split("\n")
        line = lines[error.line - 1] if error.line <= len(lines) else ""
        hint = "save the file without a byte order mark" if text.startswith("\ufeff") else error.hint
        return Diagnostic(shown, error.line, error.column, code, f"not valid TOML: {error.message}", hint, line)
    raise AssertionError("this text is TOML")
