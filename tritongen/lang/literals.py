"""How text and constants of a spec come into generated files, and how analyses of emitted code skip them.

`literal` writes an expression, `prose` a part of a docstring. Nothing else may print
what a spec says, save names and what Python's `ast` has unparsed: so it is read as data, whatever it looks like.
"""

from __future__ import annotations

import math
import re

# A string as emitted code has it, on one line; an apostrophe within a word begins none.
STRING = re.compile(r"(?<!\w)(f?)(?:\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)')")
_BRACES = re.compile(r"\{([^{}]*)\}")
_PLAIN = re.compile(r"[\w.+-]+")


def literal(value: object) -> str:
    """A value of a spec, or a tuple, list or dict of some, as Python writes it. (`inf` is no literal of Python's.)"""
    match value:
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case list():
            return f"[{', '.join(map(literal, value))}]"
        case tuple():
            return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
        case dict():
            return f"{{{', '.join(f'{literal(key)}: {literal(one)}' for key, one in value.items())}}}"
        case _:
            return repr(value)


def prose(text: str) -> str:
    """Text within a docstring, where it stands for itself; black moves a quote at the very beginning."""
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f"\\{text}" if text.startswith('"') else text


def word(text: str) -> str:
    """A word of the user's for readers: in quotes unless it is plain."""
    return text if _PLAIN.fullmatch(text) else repr(text)


def code_of(text: str) -> str:
    """Emitted code without the words in its strings; what an f-string computes is code."""
    return STRING.sub(_computed, text) if '"' in text or "'" in text else text


def masked(text: str) -> str:
    """Text of the same length, with nothing to be seen of what is in its strings."""
    return STRING.sub(lambda found: '"' * len(found[0]), text)


def _computed(found: re.Match[str]) -> str:
    if not found[1]:
        return '""'
    body = found[2] if found[2] is not None else found[3]
    return " ".join(_BRACES.findall(body.replace("{{", "").replace("}}", "")))
