"""Positions of keys and values in TOML text. Used only if there is a mistake to report.

`tomllib` gives no positions, so this scans the text again. It may assume that the text is valid
TOML: a syntax error carries its own position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .report import Diagnostic, Mistake, in_order

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'", re.DOTALL)
_SCALAR = re.compile(r"[^,\]}\n#]+")
_ESCAPE = re.compile(r"\\(?:[ \t]*\n\s*|u.{4}|U.{8}|.)", re.DOTALL)

Key = tuple[str, ...]
Span = tuple[int, int]


def locate(path: str, text: str, mistakes: Iterable[Mistake]) -> tuple[Diagnostic, ...]:
    """The diagnostics of mistakes in the TOML `text`, each at its line and column."""
    positions = Positions(text)
    return in_order(_located(path, text, mistake, positions.of(mistake)) for mistake in mistakes)


def _located(path: str, text: str, mistake: Mistake, span: Span) -> Diagnostic:
    begin = min(span[0], len(text))
    start_of_line = text.rfind("\n", 0, begin) + 1
    end_of_line = text.find("\n", begin)
    source = text[start_of_line : end_of_line if end_of_line >= 0 else len(text)].rstrip()
    column = begin - start_of_line
    return Diagnostic(
        path=path,
        line=text.count("\n", 0, begin) + 1,
        column=column + 1,
        code=mistake.code,
        message=mistake.message,
        hint=mistake.hint,
        source=source,
        length=max(1, min(span[1] - begin, len(source) - column)),
    )


class Positions:
    """The offsets of all keys and values of a TOML document."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._places: dict[Key, tuple[Span, Span]] = {}  # of the key, and of its value
        self._scan()

    def of(self, mistake: Mistake) -> Span:
        """Begin and end offset of the text that the mistake points at."""
        key = mistake.key
        while key and key not in self._places:
            key = key[:-1]
        if not key:
            return 0, 0
        of_key, (begin, end) = self._places[key]
        if key != mistake.key or mistake.start is None:
            return of_key
        if not _STRING.match(self._text, begin):
            return begin, end
        offsets = _offsets_of_characters(self._text[begin:end])
        first = min(mistake.start, len(offsets) - 1)
        last = min(first + max(1, mistake.length), len(offsets) - 1)
        return begin + offsets[first], begin + max(offsets[last], offsets[first] + 1)

    def _scan(self) -> None:
        table: Key = ()
        self._skip()
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip()

    def _skip(self) -> None:
        blank = _BLANK.match(self._text, self._at)
        assert blank
        self._at = blank.end()

    def _header(self) -> Key:
        begin = self._at
        self._at += 2 if self._text.startswith("[[", begin) else 1
        self._skip()
        table = self._key(())
        self._at = self._text.index("]", self._at) + 1
        if self._text.startswith("]", self._at):
            self._at += 1
        self._places[table] = (begin, self._at), (begin, self._at)
        return table

    def _pair(self, table: Key) -> None:
        begin = self._at
        key = self._key(table)
        end = self._at
        self._at = self._text.index("=", self._at) + 1
        self._skip()
        value = self._at
        self._value(key)
        for depth in range(len(table) + 1, len(key) + 1):
            self._places.setdefault(key[:depth], ((begin, end), (value, self._at)))

    def _key(self, path: Key) -> Key:
        """Read a dotted key; the scan stops just after its last part."""
        while True:
            found = _BARE_KEY.match(self._text, self._at) or _STRING.match(self._text, self._at)
            assert found
            self._at = found.end()
            path += (_decoded(found[0]),)
            dot = re.compile(r"[ \t]*\.[ \t]*").match(self._text, self._at)
            if not dot:
                return path
            self._at = dot.end()

    def _value(self, path: Key) -> None:
        opening = self._text[self._at]
        if opening in "[{":
            self._at += 1
            self._skip()
            count = 0
            while self._text[self._at] not in "]}":
                if opening == "{":
                    self._pair(path)
                else:
                    self._element((*path, str(count)))
                count += 1
                self._skip()
                if self._text[self._at] == ",":
                    self._at += 1
                    self._skip()
            self._at += 1
            return
        token = _STRING.match(self._text, self._at) or _SCALAR.match(self._text, self._at)
        assert token
        self._at = token.start() + len(token[0].rstrip())

    def _element(self, path: Key) -> None:
        begin = self._at
        self._value(path)
        self._places[path] = (begin, self._at), (begin, self._at)


def _decoded(key: str) -> str:
    if key[0] not in "\"'":
        return key
    import tomllib

    value = tomllib.loads(f"key = {key}")["key"]
    return str(value)


def _offsets_of_characters(token: str) -> list[int]:
    """The offset in a quoted TOML string of each character of its value, and of the closing quote."""
    quote = token[:3] if token[:3] in ('"""', "'''") else token[:1]
    at, end = len(quote), len(token) - len(quote)
    if len(quote) == 3 and token.startswith("\n", at):
        at += 1
    offsets = []
    while at < end:
        escape = _ESCAPE.match(token, at) if quote[0] == '"' else None
        line_ends = escape is not None and escape[0][1:].lstrip(" \t").startswith("\n")
        if not line_ends:
            offsets.append(at)
        at = escape.end() if escape else at + 1
    return [*offsets, end]
