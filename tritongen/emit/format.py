"""black, held to the versions that give the same bytes."""

from __future__ import annotations

from ..diagnostics.report import Unavailable
from .layout import laid_out

# black promises that a calendar year's releases format stable code alike.
BLACK_YEAR = "26"


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
    """`text` as black leaves it."""
    import black
    import black.mode

    versions = {black.mode.TargetVersion.PY310}
    mode = black.mode.Mode(target_versions=versions, line_length=line_length)
    return str(black.format_str(laid_out(text, line_length), mode=mode))
