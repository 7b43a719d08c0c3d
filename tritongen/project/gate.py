"""`compile`: kernels of specs compiled for GPUs that are not at hand, and compared with their lock."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..compiling.launches import Compiled, compile_operator
from ..compiling.lock import LOCK, BadLock, Kernel, Lock, read_lock, regressions
from ..compiling.targets import TARGETS, Target, targets_of
from ..diagnostics.report import Diagnostic, Rejected, in_order
from ..resources import read_text
from .package import PACKAGE, packaged, projects_for
from .processes import in_processes
from .settings import Project, Settings, shown_path

Watch = Callable[[Iterator[Compiled], int], Iterator[Compiled]]


@dataclass(frozen=True)
class Report:
    """The compiled kernels of a project, and findings: kernels that do not compile, and differences from its lock."""

    settings: Settings
    ops: tuple[str, ...]
    targets: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    findings: tuple[Diagnostic, ...]
    lock: Lock  # as it is after an update

    @property
    def lock_path(self) -> str:
        return os.path.join(self.settings.root, LOCK)


def compile_specs(
    paths: tuple[str, ...], targets: Sequence[str], sizes: str | None, compared: bool, watch: Watch
) -> list[Report]:
    """Compile the kernels of specs for `targets`; if none are given, for the lock's, or without a lock for all.

    Raises `Rejected` for specs and locks that are wrong, `BadTarget`, and `Unavailable` without torch or triton.
    """
    projects = projects_for("compile", paths, "torch", "triton")
    wanted = targets_of(targets)
    locks = [_lock_of(project.settings) for project in projects]
    if compared and (missing := [one.settings for one, lock in zip(projects, locks, strict=True) if lock is None]):
        hint = "`tritongen compile --update` writes it"
        raise Rejected(
            Diagnostic(shown_path(os.path.join(one.root, LOCK)), 0, 0, "TG714", "there is no lock", hint)
            for one in missing
        )
    return [
        _report(project, lock, wanted, sizes, compared, watch) for project, lock in zip(projects, locks, strict=True)
    ]


def _lock_of(settings: Settings) -> Lock | None:
    path = os.path.join(settings.root, LOCK)
    if not os.path.exists(path):
        return None
    try:
        return read_lock(read_text(path))
    except BadLock as error:
        message, hint = "not a line of a lock", "`tritongen compile --update` writes it anew once the file is removed"
        raise Rejected([Diagnostic(shown_path(path), error.line, 1, "TG714", message, hint)]) from None


def _report(
    project: Project, lock: Lock | None, wanted: Sequence[Target], sizes: str | None, compared: bool, watch: Watch
) -> Report:
    targets = wanted or (targets_of(lock.targets) if lock else tuple(TARGETS.values()))
    sizes = sizes or (lock.sizes if lock else "largest")
    with packaged(project) as sources:
        found = [*watch(_compiled(sorted(sources), targets, sizes), len(sources) * len(targets))]
    kernels = sorted(kernel for one in found for kernel in one.kernels)
    now = Lock(tuple(kernels), importlib.metadata.version("triton"), sizes)
    findings = [
        Diagnostic(sources[one.op], 0, 0, "TG711", f"{name} for {one.target}: {why}")
        for one in found
        for name, why in one.refused
    ]
    if compared and lock:
        findings += _compared(shown_path(os.path.join(project.settings.root, LOCK)), lock, now, sources)
    updated = lock.updated(now, sources) if lock else now
    names = tuple(one.name for one in targets)
    return Report(project.settings, tuple(sorted(sources)), names, now.kernels, in_order(findings), updated)


def _compared(path: str, lock: Lock, now: Lock, ops: Iterable[str]) -> Iterator[Diagnostic]:
    lines = {line.partition(" : ")[0]: place for place, line in enumerate(lock.text().splitlines(), 1)}
    other = f" (by Triton {now.triton}; the lock is by {lock.triton})" if now.triton != lock.triton else ""
    for kernel, code, message in regressions(lock, now.kernels, ops):
        hint = "`tritongen compile --update` accepts it"
        yield Diagnostic(path, lines.get(kernel, 0), 1, code, f"{kernel} {message}{other}", hint)


def _compiled(ops: Sequence[str], targets: Sequence[Target], sizes: str) -> Iterator[Compiled]:
    """Compile each operator, target by target, because a process can compile for one target only."""
    can_fork = "triton" not in sys.modules  # It reads the environment when it is imported.
    for target in targets:
        yield from in_processes(compile_operator, [(PACKAGE, op, target, sizes) for op in ops], can_fork)
