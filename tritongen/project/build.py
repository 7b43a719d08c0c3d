"""`build` and `check`: which specs need work, and what that makes of the tree.

The tree is only touched once every spec was rendered without a mistake, so that specs and tree
are never half-way to each other because of one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..diagnostics.locate import locate
from ..diagnostics.report import Diagnostic, Mistake, Rejected, in_order
from ..resources import digest, in_checkout, read_text
from .runtime import PACKAGE, SOURCE, compare_runtime, linked_folders, package_files
from .settings import Project, Settings, Source, find_projects, shown_path, stamp_of
from .stamps import Stamps
from .tree import (
    TEMPORARY,
    Change,
    Header,
    Kind,
    body_of,
    compare,
    folders_of_others,
    is_of_another_version,
    is_ours_or_missing,
    listing,
    locked,
    op_folders,
    orphans,
    our_files,
    remove,
    runtime_homes,
    sweep,
    write,
)

if TYPE_CHECKING:
    from .render import Generate, Rendered

# What a terminal shows while specs are rendered: takes the results and how many there will be.
Watch = Callable[["Iterator[Rendered]", int], "Iterator[Rendered]"]

_FINDINGS: dict[Kind, tuple[str, str]] = {
    "missing": ("TG702", "missing: {source} makes it"),
    "stale": ("TG701", "stale: {source} makes another text now"),
    "extra": ("TG703", "extra: {source} does not make it any more"),
    "edited": ("TG704", "edited by hand since it was generated from {source}"),
    "foreign": ("TG705", "not generated, but where {source} puts a file"),
}
# Of files that no spec makes: those of the runtime, and the package that exports the operators.
_SHARED: dict[str, dict[Kind, str]] = {
    SOURCE: {
        "missing": "missing: operators import this part of the runtime",
        "stale": "stale: this version of tritongen writes another runtime",
        "extra": "extra: no operator imports this part of a runtime any more",
        "edited": "edited by hand since tritongen wrote it",
        "foreign": "not generated, but where tritongen puts a part of its runtime",
    },
    PACKAGE: {
        "missing": "missing: it exports the operators",
        "stale": "stale: it should export the operators in another way now",
        "extra": "extra: there are no operators any more that it could export",
        "edited": "edited by hand since tritongen wrote it",
    },
}
_LINKED = "is a symbolic link, so its files would be another folder's"
_FORCE_HINT = "move the change into the spec or the file elsewhere, or build with --force"
_SHARED_HINT = "move the file elsewhere, or build with --force"


@dataclass(frozen=True, slots=True)
class Built:
    """What a build did. With `refused` ones, it did nothing. `example` is a spec and the folder that it makes."""

    specs: int = 0
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    refused: tuple[Diagnostic, ...] = ()
    example: tuple[str, str] = field(default=("", ""), compare=False)


@dataclass(frozen=True, slots=True)
class Drift:
    """What a check found, and the changes that would undo it."""

    specs: int
    findings: tuple[Diagnostic, ...]
    changes: tuple[Change, ...]


@dataclass(slots=True)
class _Work:
    """A project, and what a look at stamps and headers says of its specs."""

    project: Project
    stamps: Stamps
    owners: dict[str, Source] = field(default_factory=dict)  # op -> its spec, of those up to date
    pending: list[Source] = field(default_factory=list)
    rendered: list[Rendered] = field(default_factory=list)

    def changes(self) -> Iterator[Change]:
        """What must change for the tree to be right."""
        for one in self.rendered:
            yield from compare(self.folder(one), one.files, one.source.name)
        owners = {op: source.name for op, source in self.owners.items()}
        owners |= {one.op: one.source.name for one in self.rendered}
        gone = tuple(orphans(self.project.settings.out_dir, owners, self._is_gone))
        yield from gone
        yield from self._shared(owners, {os.path.basename(os.path.dirname(change.path)) for change in gone})

    def _shared(self, owners: Mapping[str, str], gone: Set[str]) -> Iterator[Change]:
        """What must change of the files that no operator owns."""
        out = self.project.settings.out_dir
        ops = {*owners, *op_folders(out, owners)} - gone
        yield from _of_runtime(self.project.settings, ops)
        if is_ours_or_missing(os.path.join(out, "__init__.py")):  # A package of the user's own exports what it likes.
            yield from compare(out, package_files(ops) if ops else {}, PACKAGE)

    def folder(self, one: Rendered) -> str:
        return os.path.join(self.project.settings.out_dir, one.op)

    def _is_gone(self, name: str) -> bool:
        path = os.path.join(self.project.settings.root, name)
        return self.project.covers(name) and not os.path.lexists(path)


def build(
    paths: tuple[str, ...] = (),
    force: bool = False,
    generate: Generate | None = None,
    watch: Watch | None = None,
) -> Built:
    """Brings the tree up to date. Raises `Rejected`, having written nothing, if a spec is wrong."""
    projects = find_projects(paths)
    for project in projects:
        _join_others(project)
    count = sum(len(project.sources) for project in projects)
    works = [_survey(project) for project in projects]
    if all(map(_is_settled, works)):
        return Built(count, example=_example(works))
    with locked(project.settings.out_dir for project in projects) as alone:
        works = [_survey(project) for project in projects]
        _render(works, generate, watch)
        if alone:
            for project in projects:
                sweep(project.settings.out_dir)
        changes = _bring_up_to_date(works, force)
    if not force and any(change.refused for change in changes):
        return Built(count, refused=_told([change for change in changes if change.refused]))
    return Built(
        count,
        tuple(shown_path(change.path) for change in changes if change.new is not None),
        tuple(shown_path(change.path) for change in changes if change.new is None),
        example=_example(works),
    )


def check(
    paths: tuple[str, ...] = (),
    generate: Generate | None = None,
    watch: Watch | None = None,
) -> Drift:
    """Renders everything again and compares. Trusts no stamp and no digest."""
    projects = find_projects(paths)
    works = [_Work(project, Stamps(project.settings), {}, project.sources) for project in projects]
    _render(works, generate, watch)
    changes = tuple(change for work in works for change in work.changes())
    count = sum(len(project.sources) for project in projects)
    moved = [diagnostic for work in works for diagnostic in _moved(work, changes)]
    return Drift(count, in_order([*_told(changes), *moved]), changes)


def _moved(work: _Work, changes: Sequence[Change]) -> Iterator[Diagnostic]:
    """What earlier versions laid out in another way, of operators that one of them wrote."""
    from ..lang.typecheck import moved_dimensions
    from .render import made_of

    replaced = {change.path for change in changes if change.kind == "stale" and is_of_another_version(change)}
    for one in work.rendered:
        if replaced & {os.path.join(work.folder(one), name) for name in one.files}:
            text, _, moved = made_of(one.source, moved_dimensions)
            yield from locate(one.source.shown, text, moved)


def show(path: str, generate: Generate | None = None) -> Rendered:
    """The files of one spec, as `build` would write them."""
    projects = find_projects((path,))
    works = [_Work(project, Stamps(project.settings), {}, project.sources) for project in projects]
    _render(works, generate, None)
    return works[0].rendered[0]


def _of_runtime(settings: Settings, ops: Collection[str]) -> Iterator[Change]:
    """What must change of the runtime of some operators, be it one beside them or one in each.

    Raises `Rejected` where a folder of it is a symbolic link.
    """
    out = settings.out_dir
    homes = {os.path.join(out, op) for op in ops} if settings.runtime == "folder" else {out} if ops else set()
    if linked := [path for home in sorted(homes) for path in linked_folders(home)]:
        hint = "put a folder in its place: `tritongen build` fills it"
        raise Rejected(Diagnostic(path, 0, 0, "TG708", f"this {_LINKED}", hint) for path in map(shown_path, linked))
    for home in sorted(homes | runtime_homes(out)):
        yield from compare_runtime(home, home in homes)


def _join_others(project: Project) -> None:
    """Takes in the specs of all operators beside a runtime that is about to change: one tree has one runtime."""
    settings = project.settings
    ops = op_folders(settings.out_dir, ())
    if not any(True for _ in _of_runtime(settings, ops)):
        return
    known = {source.name for source in project.sources}
    for name in sorted(ops.values()):
        path = os.path.normpath(os.path.join(settings.root, name))
        if name not in known and os.path.isfile(path):
            project.sources.append(Source(path, name, shown_path(path), stamp_of(os.stat(path)), settings))
    project.sources.sort(key=lambda source: source.name)


def _survey(project: Project) -> _Work:
    work = _Work(project, Stamps(project.settings))
    for source in project.sources:
        op = work.stamps.op_if_fresh(source)
        if not op and not in_checkout():
            op = _op_if_headers_agree(source, work.stamps)
        if op and op not in work.owners:
            work.owners[op] = source
        else:
            work.pending.append(source)
    return work


def _is_settled(work: _Work) -> bool:
    if work.pending or any(True for _ in work.changes()):
        return False
    work.stamps.save(work.project)
    return True


def _example(works: Sequence[_Work]) -> tuple[str, str]:
    """The first spec that is not wrong, and the folder that it makes."""
    for work in works:
        sources = work.owners | {one.op: one.source for one in work.rendered}
        for op, source in sorted(sources.items()):
            return source.shown, shown_path(os.path.join(work.project.settings.out_dir, op))
    return "", ""


def _op_if_headers_agree(source: Source, stamps: Stamps) -> str:
    """The op of a spec whose files all say, and are right, that they were made from it by us."""
    import tomllib

    try:
        text = read_text(source.path)
        op = tomllib.loads(text)["op"]["name"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    if not (isinstance(op, str) and op.isidentifier()):
        return ""
    folder = os.path.join(source.settings.out_dir, op)
    files, ours = listing(folder), list(our_files(folder))
    for _, content, header in ours:
        body = digest(body_of(content))
        if header != Header(source.name, len(ours), digest(text), stamps.templates, body):
            return ""
    if not ours or any(name.startswith(TEMPORARY) for name in files):
        return ""
    stamps.record(source, op, files)
    return op


def _render(works: Sequence[_Work], generate: Generate | None, watch: Watch | None) -> None:
    """Fills in `rendered`. Raises `Rejected` with every mistake of every spec."""
    from .render import generate_modules, render_all

    pending = [source for work in works for source in work.pending]
    if not pending:
        return
    results = render_all(pending, generate or generate_modules)
    if watch:
        results = watch(results, len(pending))
    done = sorted(results, key=lambda one: one.source.path)
    wrong = [diagnostic for one in done for diagnostic in one.diagnostics]
    for work in works:
        mine = set(work.pending)
        work.rendered = [one for one in done if one.source in mine and not one.diagnostics]
        wrong += _conflicts(work)
    if wrong:
        raise Rejected(wrong)


def _conflicts(work: _Work) -> Iterator[Diagnostic]:
    """Specs that would write where another's files are."""
    # Some file systems take Add and add for one folder.
    taken = {op.lower(): source for op, source in work.owners.items()}
    names = {source.name for source in work.project.sources}
    settings = work.project.settings
    for one in work.rendered:
        other = taken.setdefault(one.op.lower(), one.source)
        if other is not one.source:
            yield _conflict(one, "TG706", f"{other.shown} makes '{one.op}' too")
            continue
        if os.path.islink(work.folder(one)):
            message = f"{shown_path(work.folder(one))} {_LINKED}"
            yield _conflict(one, "TG708", message, "put a folder in its place, or give the operator another name")
            continue
        folders = [work.folder(one), *folders_of_others(settings.out_dir, one.op)]
        owners = {(folder, header.source) for folder in folders for _, _, header in our_files(folder)}
        for folder, owner in sorted(owners):
            if owner not in names and os.path.lexists(os.path.join(settings.root, owner)):
                yield _conflict(one, "TG707", f"'{os.path.basename(folder)}' was made from {owner}")


_OWN = "every op has a folder of its own: give one of the specs another name"


def _conflict(one: Rendered, code: str, message: str, hint: str = _OWN) -> Diagnostic:
    mistake = Mistake(code, message, ("op", "name"), 0, len(one.op), hint)
    return locate(one.source.shown, read_text(one.source.path), [mistake])[0]


def _bring_up_to_date(works: Sequence[_Work], force: bool) -> list[Change]:
    """Makes the tree right, and says how; or changes nothing, and returns what it refuses to."""
    # Stamped before they are read, so that an edit from now on shows.
    stamps = {work.folder(one): listing(work.folder(one)) for work in works for one in work.rendered}
    found = (change for work in works for change in work.changes())
    changes = sorted(found, key=lambda change: change.path)
    refused = [change for change in changes if change.refused]
    if refused and not force:
        return refused
    for change in changes:
        folder, name = os.path.split(change.path)
        if change.new is None:
            remove(change.path)
            stamps.get(folder, {}).pop(name, None)
        else:
            stamps.setdefault(folder, {})[name] = write(change.path, change.new)
    for work in works:
        for one in work.rendered:
            work.stamps.record(one.source, one.op, stamps[work.folder(one)])
        work.stamps.save(work.project)
    return changes


def _told(changes: Sequence[Change]) -> tuple[Diagnostic, ...]:
    return in_order(map(_finding, changes))


def _finding(change: Change) -> Diagnostic:
    code, message = _FINDINGS[change.kind]
    message = _SHARED.get(change.source, {}).get(change.kind, message.format(source=change.source))
    hint = _SHARED_HINT if change.source in _SHARED else _FORCE_HINT
    return Diagnostic(shown_path(change.path), 0, 0, code, message, hint if change.refused else "")
