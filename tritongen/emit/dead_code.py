"""Leaves out of a wrapper what it would assign and never read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..lang.literals import code_of

_UNPACKED = re.compile(r"( *)(.+?) = (\w+[._]shape\b.*|folded)")
_ASSIGNED = re.compile(r" *(row_sizes|col_sizes) \+?= (.*)")


def without_unread(lines: list[str], rest: Iterable[str]) -> list[str]:
    """The lines with `_name` for what is unpacked in vain. `rest` is all other text of the wrapper."""
    code = [*map(_code, rest)]
    found = []
    for line in lines:
        others = [*code, *(_code(other) for other in lines if other is not line)]
        unpacked, assigned = _UNPACKED.fullmatch(line), _ASSIGNED.fullmatch(line)
        if unpacked:
            line = _unpacking(unpacked, others)
        elif assigned and not _is_read(assigned[1], others):
            line = ""
        found += [line] if line else []
    return found


def _unpacking(match: re.Match[str], others: list[str]) -> str:
    indent, targets, source = match.groups()
    names = [name for name in re.findall(r"\w+", targets) if name != "_"]
    unread = [name for name in names if not _is_read(name, others)]
    if len(unread) == len(names):
        return ""
    for name in unread:
        targets = re.sub(rf"\b{name}\b", f"_{name}", targets)
    return f"{indent}{targets} = {source}"


def _is_read(name: str, others: list[str]) -> bool:
    return any(re.search(rf"\b{name}\b", other) for other in others)


def _code(line: str) -> str:
    """What a line reads: without the words in its strings, and what is assigned."""
    assigns = _UNPACKED.fullmatch(line) or _ASSIGNED.fullmatch(line)
    return code_of(assigns[assigns.lastindex or 0] if assigns else line)
