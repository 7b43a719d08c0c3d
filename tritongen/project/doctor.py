"""Check that the installed versions suffice."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Iterator

from .. import __version__
from ..diagnostics.report import Unavailable
from ..emit.format import check_black

# The first and the last version that generated code is tested with.
TESTED = {"torch": ((2, 11), (2, 13)), "triton": ((3, 6), (3, 9)), "numpy": ((1, 25), (2, 4))}


def diagnose() -> Iterator[tuple[str, str, bool]]:
    """For each dependency and the GPU: its name, the version found or a remark, and whether that suffices."""
    yield "tritongen", __version__, True
    yield "python", platform.python_version(), True
    try:
        yield "black", check_black(), True
    except Unavailable as error:
        yield "black", str(error), False
    for name in ("click", "jinja2"):
        found = _version(name)
        yield name, found or "not installed: pip install tritongen brings it", bool(found)
    for name in TESTED:
        yield name, *_in_range(name, _version(name), _version("triton"))
    yield "gpu", _gpu(), True


def _in_range(name: str, found: str, triton: str) -> tuple[str, bool]:
    """The text on a version of torch, triton or numpy, and whether generated code supports it."""
    if not found:
        wants = "its tests need" if name == "numpy" else "needs"
        return f"not installed; only generated code {wants} it", True
    first, last = TESTED[name]
    release = _release(found)
    if name == "numpy" and release >= (2, 4) and (3,) < _release(triton) < (3, 7):
        return f"{found}; the interpreter of Triton {triton} needs numpy before 2.4: pip install 'numpy<2.4'", False
    if release < first:
        return f"{found}; generated code needs {_text(first)} or later: pip install '{name}>={_text(first)}'", False
    if release > last:
        return f"{found}, newer than {_text(last)}, up to which generated code is tested", True
    return found, True


def _release(version: str) -> tuple[int, ...]:
    """The first two components of a version."""
    return tuple(map(int, re.findall("[0-9]+", version)[:2]))


def _text(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))


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
