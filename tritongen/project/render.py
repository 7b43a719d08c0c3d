"""Specs -> the text of their files, on all cores. Nothing is written here."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import TypeVar

from ..diagnostics.locate import locate
from ..diagnostics.report import Diagnostic, Mistake, Mistakes, Rejected
from ..emit.format import check_black, format_python
from ..resources import digest, read_text, templates_digest
from ..spec.read import read_spec
from ..spec.toml import BadToml, syntax_error
from ..spec.types import Spec
from .processes import cores, in_processes
from .runtime import Needs, in_one_file, needs_of
from .settings import Source, stamp_of
from .tree import with_header, written_by

T = TypeVar("T")
Generate = Callable[[Spec, str, int], Mapping[str, str]]  # takes a spec, the runtime's package, and the line length


@dataclass(frozen=True, slots=True)
class Rendered:
    """A spec's files as text; or diagnostics on the spec; or `crash`, the traceback of a bug of ours."""

    source: Source
    op: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    needs: Needs = frozenset()
    diagnostics: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()  # of costs that the math does not show
    crash: str = ""


class Bug(Exception):
    """An internal error, with the traceback that a bug report needs."""


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
    if generate is generate_modules and len(jobs) > 1:  # A fork has black and the templates loaded.
        from ..operator import compile  # noqa: F401
    for result in in_processes(_work, jobs) if min(cores(), len(jobs)) > 1 else starmap(_work, jobs):
        if result.crash:
            raise Bug(f"while working on {result.source.shown}:\n{result.crash}")
        yield result


def made_of(source: Source, make: Callable[[Spec], T]) -> tuple[str, Spec, T]:
    """The text of a spec, the spec, and `make(spec)`. Raises `Rejected` if it cannot be read or has mistakes."""
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


def all_made_of(sources: Iterable[Source], make: Callable[[Spec], T]) -> list[tuple[Source, str, T]]:
    """Each source with its text and `make(spec)`. Raises `Rejected` with the diagnostics of all specs."""
    found, wrong = [], list[Diagnostic]()
    for source in sources:
        try:
            text, _, made = made_of(source, make)
            found.append((source, text, made))
        except Rejected as rejected:
            wrong += rejected.diagnostics
    if wrong:
        raise Rejected(wrong)
    return found


def render(source: Source, templates: str, generate: Generate) -> Rendered:
    with suppress(OSError):  # Errors of reading are reported below.
        source = replace(source, stamp=stamp_of(os.stat(source.path)))
    try:
        text, spec, modules = modules_of(source, generate)
    except Rejected as rejected:
        return Rendered(source, diagnostics=rejected.diagnostics)
    warnings = locate(source.shown, text, hidden_costs(spec)) if generate is generate_modules else ()
    files = {name: file_of(source, text, spec, modules, name, templates) for name in sorted(modules)}
    return Rendered(source, spec.name, files, needs_of(files.values()), warnings=warnings)


def modules_of(source: Source, generate: Generate) -> tuple[str, Spec, Mapping[str, str]]:
    """The text of a spec, the spec, and its files before formatting, without headers. Raises `Rejected`."""
    runtime = "." if source.settings.runtime == "folder" else ".."
    text, spec, modules = made_of(source, lambda spec: generate(spec, runtime, source.settings.line_length))
    if source.settings.runtime == "file":
        modules = in_one_file(spec.name, spec.summary, modules, source.settings.tests)
    elif not source.settings.tests:
        modules = {name: modules[name] for name in modules if name not in _tests_of(spec)}
    return text, spec, modules


def file_of(source: Source, text: str, spec: Spec, modules: Mapping[str, str], name: str, templates: str) -> str:
    """The final text of the file `name` of `modules`: formatted, with its header."""
    settings = source.settings
    place = written_by(settings.root, settings.out_dir, name if settings.is_single else f"{spec.name}/{name}")
    formatted = format_python(modules[name], settings.line_length)
    return with_header(source.name, digest(text), templates, len(modules), formatted, place)


def _tests_of(spec: Spec) -> tuple[str, ...]:
    return f"test_{spec.name}.py", f"bench_{spec.name}.py"


def _work(source: Source, templates: str, generate: Generate) -> Rendered:
    try:
        return render(source, templates, generate)
    except Exception:
        return Rendered(source, crash=traceback.format_exc())
