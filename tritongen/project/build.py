"""`build` and `check`: find specs that need rendering, and update the tree of generated files or compare it.

The tree is written only once every spec has rendered without a mistake, so that no mistake leaves it half updated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..diagnostics.locate import locate
from ..diagnostics.report import Diagnostic, Mistake, Rejected, in_order
from ..resources import digest, in_checkout, read_text
from .runtime import changed_definitions, is_of_this_version, needs_in, package_files, tests_package
from .settings import Project, Source, Stamp, find_projects, shown_path
from .sharing import LINKED, homes_of, is_single, needs_on_disk, runtime_changes
from .stamps import Stamps
from .tree import (
    PACKAGE,
    SHARED,
    TEMPORARY,
    TESTS,
    Change,
    Header,
    Kind,
    body_of,
    compare,
    folders_of_others,
    is_ours_or_missing,
    locked,
    op_folders,
    orphans,
    our_files,
    remove,
    single_files,
    sweep,
    write,
)

if TYPE_CHECKING:
    from .render import Generate, Rendered

# Shows progress on a terminal while specs are rendered: passes the results on, given their total.
Watch = Callable[["Iterator[Rendered]", int], "Iterator[Rendered]"]

_FINDINGS: dict[Kind, tuple[str, str]] = {
    "missing": ("TG702", "missing: {source} makes it"),
    "stale": ("TG701", "out of date: {source} renders to other text now"),
    "extra": ("TG703", "extra: {source} does not make it any more"),
    "edited": ("TG704", "edited by hand since it was generated from {source}"),
    "foreign": ("TG705", "not generated, but where {source} puts a file"),
    "stray": ("TG710", "generated from {source}, but not here or not by this project: left alone"),
}
# Messages on files that belong to no single spec: the runtime, and the package that exports the operators.
_SHARED: dict[str, dict[Kind, str]] = {
    SHARED: {
        "missing": "missing: operators import this module of the runtime",
        "stale": "out of date: the operators use other definitions of it",
        "extra": "extra: no operator imports this module of the runtime any more",
        "edited": "edited by hand since tritongen wrote it",
        "foreign": "not generated, but where tritongen puts a module of its runtime",
    },
    PACKAGE: {
        "missing": "missing: it exports the operators",
        "stale": "out of date: it should export other operators",
        "extra": "extra: there are no operators any more that it could export",
        "edited": "edited by hand since tritongen wrote it",
    },
}
_FORCE_HINT = "move the change into the spec or the file elsewhere, or build with --force"
_SHARED_HINT = "move the file elsewhere, or build with --force"
_STRAY_HINT = "if it is a copy, move it out of the generated folder, or remove it"


@dataclass(frozen=True, slots=True)
class Built:
    """The outcome of a build. If there are `refused` changes, nothing was written.

    `strays` are generated files in other places, such as copies, which no build updates or removes.
    """

    specs: int = 0
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()  # definitions added to runtimes or removed: "generated/_runtime: + reduce.nan_max"
    refused: tuple[Diagnostic, ...] = ()
    strays: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()  # of hidden costs, in specs that were rendered


@dataclass(frozen=True, slots=True)
class Drift:
    """The findings of a check, and the changes that would resolve them."""

    specs: int
    findings: tuple[Diagnostic, ...]
    changes: tuple[Change, ...]


@dataclass(slots=True)
class _Work:
    """A project, and the state of its specs by stamps and headers."""

    project: Project
    stamps: Stamps
    owners: dict[str, Source] = field(default_factory=dict)  # op -> its spec, if up to date
    pending: list[Source] = field(default_factory=list)
    rendered: list[Rendered] = field(default_factory=list)
    trusts: bool = True  # whether stamps are trusted

    def changes(self) -> list[Change]:
        """The changes that bring the folders of operators up to date."""
        settings = self.project.settings
        found: list[Change] = []
        for one in self.rendered:
            names = self.names(one.op)
            found += compare(self.folder(one), one.files, one.source.name, settings.root, settings.out_dir, names)
        owners = self.specs_of_ops()
        return [*found, *orphans(settings.root, settings.out_dir, owners, self._is_gone, settings.is_single)]

    def specs_of_ops(self) -> dict[str, str]:
        """Each operator, up to date or rendered, with the name of its spec."""
        made = {op: source.name for op, source in self.owners.items()}
        return made | {one.op: one.source.name for one in self.rendered}

    def folder(self, one: Rendered) -> str:
        return self.project.settings.folder_of(one.op)

    def names(self, op: str) -> tuple[str, ...] | None:
        """The files of an operator if it is in one file, in a folder with others; else None."""
        return single_files(op) if self.project.settings.is_single else None

    def _is_gone(self, name: str) -> bool:
        path = os.path.join(self.project.settings.root, name)
        return self.project.covers(name) and not os.path.lexists(path)


def build(
    paths: tuple[str, ...] = (),
    force: bool = False,
    generate: Generate | None = None,
    watch: Watch | None = None,
    waits: Callable[[str], None] = lambda _: None,
) -> Built:
    """Bring the tree up to date. Raises `Rejected`, and writes nothing, if a spec is wrong.

    `waits` is called with the folder that another build is writing, before this one waits for it.
    """
    projects = _with_others(find_projects(paths))
    count = sum(len(project.sources) for project in projects)
    works = [_survey(project) for project in projects]
    if not any(work.pending for work in works):
        changes = _changes(works)
        if all(change.kind == "stray" for change in changes):
            for work in works:
                work.stamps.save(work.project)
            return Built(count, strays=_findings(changes))
    with locked((project.settings.out_dir for project in projects), lambda out: waits(shown_path(out))) as alone:
        works = [_survey(project) for project in projects]
        _render(works, generate, watch)
        if alone:
            for project in projects:
                sweep(project.settings.out_dir)
        changes = _bring_up_to_date(works, force)
    strays = _findings([change for change in changes if change.kind == "stray"])
    refused = [] if force else [change for change in changes if change.refused]
    if refused:
        return Built(count, refused=_findings(refused), strays=strays)
    return Built(
        count,
        tuple(shown_path(change.path) for change in changes if change.new is not None),
        tuple(shown_path(change.path) for change in changes if change.new is None and change.kind != "stray"),
        changed_definitions(changes),
        strays=strays,
        warnings=in_order(one for work in works for rendered in work.rendered for one in rendered.warnings),
    )


def check(
    paths: tuple[str, ...] = (),
    generate: Generate | None = None,
    watch: Watch | None = None,
) -> Drift:
    """Render everything again and compare with the tree, without trusting stamps or digests."""
    works = _rendered(paths, generate, watch)
    changes = tuple(_changes(works))
    return Drift(sum(len(work.pending) for work in works), _findings(changes), changes)


def show(path: str, generate: Generate | None = None) -> Rendered:
    """The files of one spec, as `build` would write them."""
    return _rendered((path,), generate, None)[0].rendered[0]


def _rendered(paths: tuple[str, ...], generate: Generate | None, watch: Watch | None) -> list[_Work]:
    projects = find_projects(paths)
    works = [_Work(project, Stamps(project.settings), {}, project.sources, trusts=False) for project in projects]
    _render(works, generate, watch)
    return works


def _changes(works: Sequence[_Work]) -> list[Change]:
    """The changes that bring the trees of all projects up to date; several projects may share a tree."""
    changes = [change for work in works for change in work.changes()]
    extra = [change.path for change in changes if change.kind == "extra"]
    gone = {*map(os.path.dirname, extra), *(path.removesuffix(".py") for path in extra)}
    for out in sorted({work.project.settings.out_dir for work in works}):
        here = [work for work in works if work.project.settings.out_dir == out]
        changes += _shared(out, here, gone)
    return changes


def _shared(out: str, here: Sequence[_Work], gone: Set[str]) -> Iterator[Change]:
    """The changes of files that no operator owns: runtimes, and the packages of operators and of their tests."""
    made = {op: work for work in here for op in work.specs_of_ops()}
    others = [op for op in op_folders(out, made) if os.path.join(out, op) not in gone]
    stamps = [work.stamps for work in here if work.trusts]
    needs = {one.op: one.needs for work in here for one in work.rendered}
    needs |= {op: needs_on_disk(out, op, stamps) for op in (*made, *others) if op not in needs}
    kinds = {op: work.project.settings.runtime for op, work in made.items()}
    yield from runtime_changes(out, kinds, needs, gone, stamps)
    singles = {op for op in needs if is_single(out, op, kinds)}
    if is_ours_or_missing(os.path.join(out, "__init__.py")):  # The user's own package is left alone.
        files = package_files(needs, bool(singles)) if needs else {}
        yield from compare(out, files, PACKAGE, "", out, ("__init__.py",))
    tests = os.path.join(out, TESTS)
    if TESTS not in needs and is_ours_or_missing(os.path.join(tests, "__init__.py")):
        tested = any(needs[op] for op in singles)
        yield from compare(tests, tests_package() if tested else {}, PACKAGE, "", out, ("__init__.py",))


def _with_others(projects: Sequence[Project]) -> list[Project]:
    """Add the specs of all operators that share a runtime of another version, since all must be rendered with ours."""
    all_of_them = {project.settings.root: project for project in projects}
    for project in projects:
        settings = project.settings
        out = settings.out_dir
        headers = op_folders(out, ())
        ours = {op for op, one in headers.items() if one.is_from(settings.root, out, os.path.join(out, one.path))}
        homes = homes_of(out, dict.fromkeys(ours, settings.runtime), dict.fromkeys(headers, frozenset()))
        if all(map(is_of_this_version, homes)):
            continue
        folders = {op: os.path.dirname(os.path.join(out, one.path)) for op, one in headers.items()}
        paths = [one.spec_path(settings.root, folders[op]) for op, one in headers.items()]
        for other in find_projects(tuple(filter(os.path.isfile, paths))):
            if other.settings.out_dir == out:
                mine = all_of_them.setdefault(other.settings.root, other)
                known = {source.name for source in mine.sources}
                mine.sources += [source for source in other.sources if source.name not in known]
                mine.sources.sort(key=lambda source: source.name)
    return sorted(all_of_them.values(), key=lambda project: project.settings.root)


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


def _op_if_headers_agree(source: Source, stamps: Stamps) -> str:
    """The op of a spec, recorded as fresh, if the headers of all its files match spec, templates and text; else ""."""
    import tomllib

    try:
        text = read_text(source.path)
        op = tomllib.loads(text)["op"]["name"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    if not (isinstance(op, str) and op.isidentifier()):
        return ""
    settings = source.settings
    names = single_files(op) if settings.is_single else None
    files, ours = stamps.files_of(op), list(our_files(settings.folder_of(op), names))
    for path, content, header in ours:
        facts = source.name, len(ours), digest(text), stamps.templates, digest(body_of(content))
        is_here = header.root and header.is_from(settings.root, settings.out_dir, path)
        if not is_here or header != Header(*facts, header.path, header.root):
            return ""
    if not ours or any(name.startswith(TEMPORARY) for name in files):
        return ""
    stamps.record(source, op, files, needs_in(settings.folder_of(op), names))
    return op


def _render(works: Sequence[_Work], generate: Generate | None, watch: Watch | None) -> None:
    """Render all pending specs into `rendered`. Raises `Rejected` with every mistake of every spec."""
    from .render import generate_modules, render_all

    pending = [source for work in works for source in work.pending]
    if not pending:
        return
    results = render_all(pending, generate or generate_modules)
    if watch:
        results = watch(results, len(pending))
    done = sorted(results, key=lambda one: one.source.path)
    wrong = [diagnostic for one in done for diagnostic in one.diagnostics]
    # Case-insensitive file systems have one folder for Add and add.
    used = {
        os.path.join(work.project.settings.out_dir, op.lower()): one
        for work in works
        for op, one in work.owners.items()
    }
    for work in works:
        mine = set(work.pending)
        work.rendered = [one for one in done if one.source in mine and not one.diagnostics]
        wrong += _conflicts(work, used)
    if wrong:
        raise Rejected(wrong)


def _conflicts(work: _Work, used: dict[str, Source]) -> Iterator[Diagnostic]:
    """Diagnostics on specs that would overwrite another's files, have a reserved name, or meet a symbolic link."""
    paths = {source.path for source in work.project.sources}
    settings = work.project.settings
    for one in work.rendered:
        other = used.setdefault(os.path.join(settings.out_dir, one.op.lower()), one.source)
        if other is not one.source:
            yield _conflict(one, "TG706", f"{other.shown} makes '{one.op}' too")
            continue
        if settings.is_single and one.op in _NOT_IN_ONE_FILE:
            yield _conflict(one, "TG706", f"'{one.op}' is {_NOT_IN_ONE_FILE[one.op]}", "give the operator another name")
            continue
        own = os.path.join(settings.out_dir, TESTS) if settings.is_single else work.folder(one)
        if os.path.islink(own):
            message = f"{shown_path(own)} {LINKED}"
            yield _conflict(one, "TG708", message, "put a folder in its place, or give the operator another name")
            continue
        places = [(work.folder(one), work.names(one.op))]
        places += ((folder, None) for folder in folders_of_others(settings.out_dir, one.op))
        owners = {
            (one.op if names else os.path.basename(folder), header.spec_path(settings.root, os.path.dirname(path)))
            for folder, names in places
            for path, _, header in our_files(folder, names)
        }
        for name, owner in sorted(owners):
            if owner not in paths and os.path.lexists(owner):
                yield _conflict(one, "TG707", f"'{name}' was made from {shown_path(owner)}")


# Names that no operator in one file can have, for its file or for its function.
_NOT_IN_ONE_FILE = {
    TESTS: "the folder of the tests of operators in one file each",
    "super": "a name by which Python finds the class of a method, which the operator's file has",
    "tl": "the name by which Triton's interpreter finds its language in the operator's file",
}
_OWN = "every op has a folder of its own: give one of the specs another name"


def _conflict(one: Rendered, code: str, message: str, hint: str = _OWN) -> Diagnostic:
    mistake = Mistake(code, message, ("op", "name"), 0, len(one.op), hint)
    return locate(one.source.shown, read_text(one.source.path), [mistake])[0]


def _bring_up_to_date(works: Sequence[_Work], force: bool) -> list[Change]:
    """Apply all changes and return them; or, if some are refused and not `force`, change nothing and return those."""
    # Stamped before the files are read, so that later edits are noticed.
    stamps = [(work, one, work.stamps.files_of(one.op)) for work in works for one in work.rendered]
    changes = sorted(_changes(works), key=lambda change: change.path)
    refused = [change for change in changes if change.refused]
    if refused and not force:
        return refused
    written: dict[str, Stamp] = {}
    for change in changes:
        if change.kind == "stray":
            continue
        if change.new is None:
            remove(change.path)
        else:
            written[change.path] = write(change.path, change.new)
    removed = {change.path for change in changes if change.new is None and change.kind != "stray"}
    for work, one, files in stamps:
        paths = {name: os.path.join(work.folder(one), name) for name in (*files, *one.files)}
        left = {name: files[name] for name in files if paths[name] not in removed}
        left |= {name: written[path] for name, path in paths.items() if path in written}
        work.stamps.record(one.source, one.op, left, one.needs)
    for work in works:
        work.stamps.save(work.project)
    return changes


def _findings(changes: Sequence[Change]) -> tuple[Diagnostic, ...]:
    return in_order(map(_finding, changes))


def _finding(change: Change) -> Diagnostic:
    code, message = _FINDINGS[change.kind]
    message = _SHARED.get(change.source, {}).get(change.kind, message.format(source=change.source))
    hint = _SHARED_HINT if change.source in _SHARED else _FORCE_HINT
    hint = hint if change.refused else _STRAY_HINT if change.kind == "stray" else ""
    return Diagnostic(shown_path(change.path), 0, 0, code, message, hint)
