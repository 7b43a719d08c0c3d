"""Brackets laid out as black lays them out, so that it finds nothing to do.

black takes twice as long over text that it must change, and it is nearly all of a cold build.
"""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 88


def bracketed(head: str, items: Sequence[str], tail: str, indent: int = 0) -> str:
    """`head`, which ends in a bracket, `items` and `tail`, which begins with the closing one.

    On one line if that fits; else the items on a line of their own (not those of a list or tuple
    that is written out); else a line for each. `indent` is how many spaces the whole stands in;
    the first line is returned without them. Items may not themselves need to be split.
    """
    inline = ", ".join(items)
    if indent + len(head + inline + tail) <= WIDTH or not items:
        return head + inline + tail
    inner = " " * (indent + 4)
    literal = head[-2:-1] in (" ", "") and len(items) > 1  # black never leaves these on one line
    whole = len(inner + inline) <= WIDTH and not literal
    lines = [inline] if whole else [f"{item}," for item in items]
    return "\n".join([head, *(inner + line for line in lines), " " * indent + tail])
