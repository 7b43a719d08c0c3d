"""Mistakes of a spec, and how they are told: code, file:line:column, the line, a caret, what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake of a spec, as a stage of the program sees it: without a position in the file.

    `key` is the path of TOML keys to the value at fault, () for the whole file. `start` is an
    offset into that value where it is a string; None points at the key itself.
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
