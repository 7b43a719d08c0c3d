"""black, held to the versions that give the same bytes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ..diagnostics.report import Unavailable

if TYPE_CHECKING:
    import black.mode

# black promises that a calendar year's releases format stable code alike.
BLACK_YEAR = "26"
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


def format_python(text: str, line_length: int = 88) -> str:
    """`text` as black leaves it, which is nearly all of a cold build.

    `black.format_str` formats what it has changed a second time, since trailing commas that it put in may count for
    more then. Templates emit text that is the same after one pass, in half the time; that is no promised part of black.
    """
    import black

    once = getattr(black, "_format_str_once", black.format_str)
    return str(once(_with_comments_wrapped(text), mode=black_mode(line_length)))


def black_mode(line_length: int) -> black.mode.Mode:
    import black.mode

    return black.mode.Mode(target_versions={black.mode.TargetVersion.PY310}, line_length=line_length)


def wrapped(line: str, after: str = "    ", width: int = LONGEST) -> list[str]:
    """A line of prose or of the math on as many lines as it needs, the others after something more."""
    indent = line[: -len(line.lstrip())] if line.strip() else ""
    return textwrap.wrap(line, width, subsequent_indent=indent + after, break_long_words=False) or [line]


def _with_comments_wrapped(text: str) -> str:
    """The text with its long comments on several lines; no line of our docstrings begins as one."""
    lines: list[str] = []
    for line in text.split("\n"):
        is_long = len(line) > LONGEST and line.lstrip().startswith("# ")
        lines += wrapped(line, after="# ") if is_long else [line]
    return "\n".join(lines)
