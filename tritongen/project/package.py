"""The operators of a project as a package elsewhere, with their benchmarks, for commands that run them."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace

from ..diagnostics.report import Rejected, Unavailable
from .render import generate_modules, render_all
from .runtime import shared_files
from .settings import Project
from .tree import write


def require(command: str, *modules: str) -> None:
    """Raise `Unavailable` if a module that a command needs is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(f"`{command}` needs {' and '.join(missing)}: pip install {' '.join(missing)}")


def write_package(project: Project, home: str) -> dict[str, str]:
    """Write the operators of a project, with tests and benchmarks, as a package at `home`; the spec path of each.

    Raises `Rejected` for specs that are wrong.
    """
    settings = replace(project.settings, runtime="shared", tests=True)
    rendered = [*render_all([replace(one, settings=settings) for one in project.sources], generate_modules)]
    if wrong := [diagnostic for one in rendered for diagnostic in one.diagnostics]:
        raise Rejected(wrong)
    shared = shared_files(frozenset().union(*(one.needs for one in rendered)))
    files = {f"{folder}/{name}": text for folder, texts in shared.items() for name, text in texts.items()}
    files |= {"__init__.py": ""}
    for one in rendered:
        files |= {f"{one.op}/{name}": text for name, text in one.files.items()}
    for name, text in files.items():
        write(os.path.join(home, name), text)
    return {one.op: one.source.shown for one in rendered}
