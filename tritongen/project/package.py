"""The operators of a project as a package elsewhere, with their benchmarks, for commands that run them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ..diagnostics.report import Rejected, Unavailable
from .render import cores, generate_modules, render_all
from .runtime import shared_files
from .settings import Project
from .tree import write

T = TypeVar("T")


def require(command: str, *modules: str) -> None:
    """Raises `Unavailable` where a command lacks modules that it needs."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(f"`{command}` needs {' and '.join(missing)}: pip install {' '.join(missing)}")


def write_package(project: Project, home: str) -> dict[str, str]:
    """Write the operators of a project with their benchmarks into a package; the spec of each, by operator.

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


def in_processes(
    start: Callable[..., None], given: tuple[Any, ...], work: Callable[..., T], jobs: Sequence[tuple[Any, ...]]
) -> Iterator[T]:
    """What becomes of each job, as it ends, in fresh processes that begin by `start`."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    # A fork has imported what this process has. Triton must not be: it looks at the environment then.
    can_fork = sys.platform == "linux" and "triton" not in sys.modules
    context = multiprocessing.get_context("fork" if can_fork else "spawn")
    pool = ProcessPoolExecutor(min(cores(), len(jobs)), context, start, given)
    try:
        yield from (one.result() for one in as_completed([pool.submit(work, *job) for job in jobs]))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
