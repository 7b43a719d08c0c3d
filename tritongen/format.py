"""black, held to the versions that give the same bytes."""

from __future__ import annotations

from .diagnostics import Unavailable

# black promises that a calendar year's releases format stable code alike.
BLACK_YEAR = "26"


def check_black() -> str:
    """The version of black, if it will do."""
    try:
        import black
    except ImportError as error:
        raise Unavailable(f"black is not installed ({error}): pip install 'black==26.*'") from None
    if black.__version__.split(".")[0] != BLACK_YEAR:
        raise Unavailable(
            f"black {black.__version__} may format otherwise than {BLACK_YEAR}.*,"
            f" which generated files are made with: pip install 'black=={BLACK_YEAR}.*'"
        )
    return black.__version__


def format_python(text: str, line_length: int = 88) -> str:
    """`text` as black leaves it."""
    import black

    versions = {black.TargetVersion.PY310}
    mode = black.Mode(target_versions=versions, line_length=line_length)
    return black.format_str(text, mode=mode)
