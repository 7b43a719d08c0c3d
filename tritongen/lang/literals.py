"""Writes text and constants of a spec into generated files, and hides them from analyses of emitted code.

`literal` writes an expression, `prose` text of a docstring. Apart from names and output of `ast.unparse`,
nothing else may print content of a spec, so that it is read as data, whatever it looks like.
"""

from __future__ import annotations

import math
import re

# A string of emitted code, on one line; an apostrophe within a word does not start one.
STRING = re.compile(r"(?<!\w)(f?)(?:\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)')")
_BRACES = re.compile(r"\{([^{}]*)\}")
_PLAIN = re.compile(r"[\w.+-]+")


def literal(value: object) -> str:
    """A value of a spec, or a tuple, list or dict of values, as a Python expression. (Python has no literal `inf`.)"""
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
    """Text escaped for a docstring; also a quote at its start, because black would move it."""
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f"\\{text}" if text.startswith('"') else text


def word(text: str) -> str:
    """A user's word for display: in quotes unless it is plain."""
    return text if _PLAIN.fullmatch(text) else repr(text)


def code_of(text: str) -> str:
    """Emitted code without the text of its strings; expressions inside f-strings remain."""
    return STRING.sub(_computed, text) if '"' in text or "'" in text else text


def masked(text: str) -> str:
    """The text with every character of its strings replaced by a quote; the length stays the same."""
    return STRING.sub(lambda found: '"' * len(found[0]), text)


def _computed(found: re.Match[str]) -> str:
    if not found[1]:
        return '""'
    body = found[2] if found[2] is not None else found[3]
    return " ".join(_BRACES.findall(body.replace("{{", "").replace("}}", "")))
