"""Specs -> the text of their files, on all cores. Nothing is written here."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ..diagnostics.locate import locate
from ..diagnostics.report import Diagnostic, Mistake, Mistakes, Rejected
from ..emit.format import check_black, format_python
from ..resources import digest, read_text, templates_digest
from ..spec.read import read_spec
from ..spec.toml import BadToml, syntax_error
from ..spec.types import Spec
from .runtime import Needs, in_one_file, needs_of
from .settings import Source, stamp_of
from .tree import with_header, written_by

T = TypeVar("T")
Generate = Callable[[Spec, str, int], Mapping[str, str]]  # of a spec, where the runtime is, and the length of lines


@dataclass(frozen=True, slots=True)
class Rendered:
    """A spec's files as text, or what is wrong with the spec, or with us."""

    source: Source
    op: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    needs: Needs = frozenset()
    diagnostics: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()  # of costs that the math does not show
    crash: str = ""


class Bug(Exception):
    """Ours, with the traceback that a report needs."""


def generate_modules(spec: Spec, runtime: str, width: int) -> Mapping[str, str]:
    from ..operator.compile import generate

    return generate(spec, runtime, width)


def hidden_costs(spec: Spec) -> tuple[Mistake, ...]:
    from ..roofline.account import warnings_of

    return warnings_of(spec)


def render_all(sources: Sequence[Source], generate: Generate) -> Iterator[Rendered]:
    """Renders every source, in no particular order."""
    check_black()
    shapes = {source.settings.shape for source in sources}
    digests = {shape: templates_digest(shape) for shape in shapes}
    jobs = [(source, digests[source.settings.shape], generate) for source in sources]
    workers = min(cores(), len(jobs))
    results = map(_work, jobs) if workers < 2 else _in_processes(jobs, workers)
    for result in results:
        if result.crash:
            raise Bug(f"while working on {result.source.shown}:\n{result.crash}")
        yield result


def made_of(source: Source, make: Callable[[Spec], T]) -> tuple[str, Spec, T]:
    """The text of a spec, the spec, and what is made of it. Raises `Rejected` with what is wrong with the spec."""
    try:
        text = read_text(source.path)
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise Rejected([Diagnostic(source.shown, 0, 0, "TG100", message)]) from None
    except UnicodeDecodeError as error:
        message = f"not UTF-8 text: {error.reason} at byte {error.start}"
        raise Rejected([Diagnostic(source.shown, 0, 0, "TG102", message)]) from None
    try:
        spec = read_spec(source.name, text)
        return text, spec, make(spec)
    except BadToml:
        raise Rejected([syntax_error(source.shown, text, "TG101")]) from None
    except Mistakes as mistakes:
        raise Rejected(locate(source.shown, text, mistakes.mistakes)) from None


def render(source: Source, templates: str, generate: Generate) -> Rendered:
    with suppress(OSError):  # What cannot be read is reported below.
        source = replace(source, stamp=stamp_of(os.stat(source.path)))
    try:
        text, spec, modules = modules_of(source, generate)
    except Rejected as rejected:
        return Rendered(source, diagnostics=rejected.diagnostics)
    warnings = locate(source.shown, text, hidden_costs(spec)) if generate is generate_modules else ()
    files = {name: file_of(source, text, spec, modules, name, templates) for name in sorted(modules)}
    return Rendered(source, spec.name, files, needs_of(files.values()), warnings=warnings)


def modules_of(source: Source, generate: Generate) -> tuple[str, Spec, Mapping[str, str]]:
    """The text of a spec, the spec, and its files without format and header. Raises `Rejected`."""
    runtime = "." if source.settings.runtime == "folder" else ".."
    text, spec, modules = made_of(source, lambda spec: generate(spec, runtime, source.settings.line_length))
    if source.settings.runtime == "file":
        modules = in_one_file(spec.name, spec.summary, modules, source.settings.tests)
    elif not source.settings.tests:
        modules = {name: modules[name] for name in modules if name not in _tests_of(spec)}
    return text, spec, modules


def file_of(source: Source, text: str, spec: Spec, modules: Mapping[str, str], name: str, templates: str) -> str:
    """One of the files, as it is written."""
    settings = source.settings
    place = written_by(settings.root, settings.out_dir, name if settings.is_single else f"{spec.name}/{name}")
    formatted = format_python(modules[name], settings.line_length)
    return with_header(source.name, digest(text), templates, len(modules), formatted, place)


def _tests_of(spec: Spec) -> tuple[str, ...]:
    return f"test_{spec.name}.py", f"bench_{spec.name}.py"


Job = tuple[Source, str, Generate]


def _work(job: Job) -> Rendered:
    try:
        return render(*job)
    except Exception:
        return Rendered(job[0], crash=traceback.format_exc())


def _in_processes(jobs: Sequence[Job], workers: int) -> Iterator[Rendered]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    if jobs[0][2] is generate_modules:
        from ..operator import compile  # noqa: F401

    # A fork has black and the templates loaded; other systems cannot fork safely.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    pool = ProcessPoolExecutor(workers, context, initializer=_start_worker)
    try:
        futures = [pool.submit(_work, job) for job in jobs]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """Leaves Ctrl-C to the parent, and does not outlive it: it inherits the lock."""
    import gc
    import multiprocessing
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    # black's trees are garbage a file at a time; looking for it oftener takes a fifth of the time.
    gc.freeze()
    gc.set_threshold(200_000)


def cores() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
