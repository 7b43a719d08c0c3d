"""All diagnostic codes, with the text of `tritongen explain`: the sections of codes.md."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from ..resources import read_text


@dataclass(frozen=True, slots=True)
class Code:
    """A code with a one-line title, and an explanation with an example and a fix."""

    code: str
    title: str
    explanation: str
    topic: str


def _codes() -> Iterator[Code]:
    text = read_text(os.path.join(os.path.dirname(__file__), "codes.md"))
    for chapter in text.split("\n## ")[1:]:
        topic, *sections = chapter.split("\n### ")
        for section in sections:
            heading, _, explanation = section.partition("\n")
            code, _, title = heading.partition(" ")
            yield Code(code, title, explanation.strip("\n"), topic.strip())


CODES = {one.code: one for one in _codes()}
