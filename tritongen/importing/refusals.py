"""Reasons why code cannot be imported, with places in the user's source."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..diagnostics.report import Diagnostic, Rejected


@dataclass(frozen=True, slots=True)
class Place:
    """A span of source: a line of 0 is the full file; columns count from 1."""

    path: str
    line: int = 0
    column: int = 1
    length: int = 1


NOWHERE = Place("")


class Refusal(Exception):
    """An operator, or arguments of one, that the language cannot express."""

    def __init__(self, message: str, hint: str = "", code: str = "TG001", place: Place = NOWHERE) -> None:
        super().__init__(message)
        self.message, self.hint, self.code, self.place = message, hint, code, place


@contextmanager
def rejecting() -> Iterator[None]:
    """Raises `Rejected` in place of a `Refusal` raised inside."""
    try:
        yield
    except Refusal as refusal:
        raise Rejected([diagnostic(refusal)]) from None


def diagnostic(refusal: Refusal) -> Diagnostic:
    """A refusal as a diagnostic at its place in the source."""
    place = refusal.place
    source = linecache.getline(place.path, place.line).rstrip("\n") if place.line else ""
    path = os.path.relpath(place.path) if os.path.isabs(place.path) else place.path
    shown = place.path if path.startswith("..") else path
    length = max(1, min(place.length, len(source) - place.column + 1))
    return Diagnostic(shown, place.line, place.column, refusal.code, refusal.message, refusal.hint, source, length)
