"""The operators of a project as a package elsewhere, with their benchmarks, for commands that run them."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..diagnostics.report import Rejected, Unavailable
from .render import generate_modules, render_all
from .runtime import shared_files
from .settings import Project, find_projects
from .tree import write

PACKAGE = "run_by_tritongen"


def require(command: str, *modules: str) -> None:
    """Raise `Unavailable` if a module that a command needs is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(f"`{command}` needs {' and '.join(missing)}: pip install {' '.join(missing)}")


def projects_for(command: str, paths: tuple[str, ...], *modules: str) -> list[Project]:
    """The projects that have specs in `paths`. Raises `Unavailable` as `require` does."""
    require(command, *modules)
    return [project for project in find_projects(paths) if project.sources]


@contextmanager
def packaged(project: Project) -> Iterator[dict[str, str]]:
    """The spec path of each operator of a project, while `PACKAGE` can be imported, here and in processes started here:
    the operators with tests and benchmarks. Raises `Rejected` for specs that are wrong.
    """
    with tempfile.TemporaryDirectory() as home:
        sources = _write(project, os.path.join(home, PACKAGE))
        sys.path.insert(0, home)
        try:
            yield sources
        finally:
            sys.path.remove(home)
            for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
                del sys.modules[name]


def _write(project: Project, home: str) -> dict[str, str]:
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
