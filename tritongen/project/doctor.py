"""Which versions are installed, and whether they suffice."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator

from .. import __version__
from ..diagnostics.report import Unavailable
from ..emit.format import check_black


def diagnose() -> Iterator[tuple[str, str, bool]]:
    """Each part: its name, what was found, and whether `build` can live with that."""
    yield "tritongen", __version__, True
    yield "python", platform.python_version(), True
    try:
        yield "black", check_black(), True
    except Unavailable as error:
        yield "black", str(error), False
    for name in ("click", "jinja2"):
        found = _version(name)
        yield name, found or "not installed: pip install tritongen brings it", bool(found)
    for name in ("torch", "triton"):
        yield name, _version(name) or "not installed; only generated code needs it", True
    yield "gpu", _gpu(), True


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _gpu() -> str:
    try:
        import torch
    except ImportError:
        return "unknown without torch"
    if not torch.cuda.is_available():
        return "none; tests run in Triton's interpreter, with TRITON_INTERPRET=1"
    return str(torch.cuda.get_device_name())
