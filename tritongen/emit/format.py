"""black, held to the versions that give the same bytes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from ..diagnostics.report import Unavailable

if TYPE_CHECKING:
    import black.mode

# black promises that a calendar year's releases format stable code alike.
BLACK_YEAR = "26"
LINE = 88  # characters, unless a project wants others
LONGEST = 110  # of a comment, which black leaves as it is


def check_black() -> str:
    """The version of black, if it will do."""
    need = f"pip install 'black=={BLACK_YEAR}.*'"
    try:
        import black
    except ImportError as error:
        raise Unavailable(f"black is not installed ({error}): {need}") from None
    version = str(black.__dict__["__version__"])
    if version.split(".")[0] != BLACK_YEAR:
        raise Unavailable(
            f"black {version} may format otherwise than {BLACK_YEAR}.*, which generated files are made with: {need}"
        )
    return version


def format_python(text: str, line_length: int = LINE) -> str:
    """`text` as black leaves it, which is nearly all of a cold build.

    `black.format_str` formats what it has changed a second time, since trailing commas that it put in may count for
    more then. Templates emit text that is the same after one pass, in half the time; that is no promised part of black.
    """
    import black

    once = getattr(black, "_format_str_once", black.format_str)
    laid_out = _KERNEL.sub(lambda found: _grouped(found, line_length), _with_comments_wrapped(text))
    return str(once(laid_out, mode=black_mode(line_length)))


def black_mode(line_length: int) -> black.mode.Mode:
    import black.mode

    return black.mode.Mode(target_versions={black.mode.TargetVersion.PY310}, line_length=line_length)


def wrapped(line: str, after: str = "    ", width: int = LONGEST) -> list[str]:
    """A line of prose or math, wrapped; lines after the first are indented and begin with `after`."""
    indent = line[: -len(line.lstrip())] if line.strip() else ""
    return textwrap.wrap(line, width, subsequent_indent=indent + after, break_long_words=False) or [line]


def _with_comments_wrapped(text: str) -> str:
    """The text with long comments wrapped; no line of our docstrings begins like a comment."""
    lines: list[str] = []
    for line in text.split("\n"):
        is_long = len(line) > LONGEST and line.lstrip().startswith("# ")
        lines += wrapped(line, after="# ") if is_long else [line]
    return "\n".join(lines)


# The signature of a kernel, as templates have it: on the line below its decorator.
_KERNEL = re.compile(r"(?m)(?<=^)(@(?:triton|gluon)\.jit.*\ndef \w+)\((.*)\):$")


def _grouped(found: re.Match[str], line_length: int) -> str:
    """A kernel's signature, if it is too long for a line, with a line for each group of parameters: pointers, lengths,
    the strides of each tensor, params, constants. black would have one for each parameter.
    """
    head, names = found[1], found[2].split(", ")
    if len(found[0]) - found[0].index("\n") - 1 <= line_length:
        return found[0]
    tensors = [name.rpartition("_")[0] for name in names if name.endswith(("_ptr", "_desc"))]
    lines = [head + "("]
    groups = [_group_of(name, tensors) for name in names]
    # Tensors with one stride share a line.
    kinds = iter("strides" if kind in tensors and groups.count(kind) == 1 else kind for kind in groups)
    for _, group in groupby(names, lambda _: next(kinds)):
        lines += [f"    {line}," for line in _packed(group, line_length - len("    ,"))]
    return "\n".join([*lines, "):  # fmt: skip"])


def _group_of(name: str, tensors: Iterable[str]) -> str:
    """The group of a parameter of a kernel: its tensor if it is a stride, else its kind."""
    name, _, kind = name.partition(": ")
    if name.startswith("stride_"):
        return max((one for one in tensors if name.startswith(f"stride_{one}_")), key=len, default=name)
    return kind or ("tensors" if name.endswith(("_ptr", "_desc")) else "lengths")


def _packed(words: Iterable[str], width: int) -> list[str]:
    """Words separated by commas, on as few lines as possible."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(f", {word}") <= width:
            lines[-1] += f", {word}"
        else:
            lines.append(word)
    return lines
