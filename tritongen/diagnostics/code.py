"""A row of the table of diagnostic codes, which is in `tritongen.diagnostics.codes`."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True, slots=True)
class Code:
    """A code; its title is a line, its explanation has an example and the way out."""

    code: str
    title: str
    explanation: str


def row(code: str, title: str, explanation: str) -> Code:
    return Code(code, title, dedent(explanation).strip())
