"""`tritongen.toml` or `[tool.tritongen]`, searched upward from a spec; and the specs under given paths."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..diagnostics.report import Diagnostic, Mistake, Rejected

FILE = "tritongen.toml"
PYPROJECT = "pyproject.toml"
NO_SPECS = (FILE, PYPROJECT)
_ENCODING = re.compile(r"coding[:=]")  # Python reads an encoding declaration in such a line of a header
Stamp = list[int]


@dataclass(frozen=True, slots=True)
class Settings:
    root: str  # the folder of the settings, or the current one; all paths are relative to it
    specs: tuple[str, ...] = ("specs",)
    out: str = "generated"
    line_length: int = 88
    runtime: str = "shared"  # or "folder": every operator has a copy of its own; "file": in its one file
    tests: bool = True  # whether there are tests and benchmarks

    @property
    def shape(self) -> str:
        """The settings that the text of generated files depends on, as a key."""
        left = ("" if self.runtime == "shared" else f" {self.runtime}") + ("" if self.tests else " untested")
        return f"{self.line_length}{left}"

    @property
    def out_dir(self) -> str:
        return os.path.normpath(os.path.join(self.root, self.out))

    @property
    def is_single(self) -> bool:
        """Whether operators are one file each, and not folders."""
        return self.runtime == "file"

    def folder_of(self, op: str) -> str:
        """The folder that an operator's files are in."""
        return self.out_dir if self.is_single else os.path.join(self.out_dir, op)


@dataclass(frozen=True, slots=True)
class Source:
    """A spec file: its path, its `name` in headers, as `shown` in messages, its stamp and settings."""

    path: str
    name: str
    shown: str
    stamp: Stamp = field(compare=False)
    settings: Settings


@dataclass(slots=True)
class Project:
    """The specs that share settings, and so an output folder.

    `roots` are the folders that were searched: files generated from a spec that is gone from one of them are orphans.
    """

    settings: Settings
    sources: list[Source] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)

    def covers(self, name: str) -> bool:
        path = os.path.normpath(os.path.join(self.settings.root, name))
        return any(path.startswith(root.rstrip(os.sep) + os.sep) for root in self.roots)


def stamp_of(status: os.stat_result) -> Stamp:
    """Values that change with a file's content: size and mtime, which can be reset, inode, and ctime, which cannot."""
    return [status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns]


def shown_path(path: str) -> str:
    """A path for messages: relative if it is below the current folder, else as given."""
    relative = os.path.relpath(path)
    return (path if relative.startswith("..") else relative).replace(os.sep, "/")


def find_settings(folder: str) -> Settings:
    return _Finder().settings(os.path.abspath(folder))


def find_projects(paths: tuple[str, ...] = ()) -> list[Project]:
    """The specs under `paths`, or the specs of the current folder's settings if it is empty, grouped by settings."""
    return _Finder().projects(paths)


class _Finder:
    def __init__(self) -> None:
        self._known: dict[str, Settings | None] = {}
        self._projects: dict[Settings, Project] = {}
        self._seen: set[str] = set()
        self._wrong: list[Diagnostic] = []

    def settings(self, folder: str) -> Settings:
        return self._upward(folder) or Settings(os.getcwd())

    def projects(self, paths: tuple[str, ...]) -> list[Project]:
        here = self.settings(os.getcwd())
        if not paths:
            self._project(here).roots.append(here.root)
            paths = tuple(os.path.join(here.root, path) for path in here.specs)
        for path in paths:
            self._add(os.path.abspath(path))
        if self._wrong:
            raise Rejected(self._wrong)
        for project in self._projects.values():
            project.sources.sort(key=lambda source: source.name)
        return sorted(self._projects.values(), key=lambda project: project.settings.root)

    def _add(self, path: str) -> None:
        if os.path.isdir(path):
            self._project(self.settings(path)).roots.append(path)
            for folder, entries in _specs_under(path):
                self._add_files(folder, entries)
        elif os.path.isfile(path):
            name = os.path.basename(path)
            entries = [] if name in NO_SPECS else [(name, stamp_of(os.stat(path)))]  # The glob *.toml names them, too.
            self._add_files(os.path.dirname(path), entries)
        else:
            hint = "'tritongen init' starts a project, 'tritongen new NAME' a spec"
            shown = shown_path(path)
            self._wrong.append(Diagnostic(shown, 0, 0, "TG803", f"there is no {shown}", hint))

    def _add_files(self, folder: str, entries: list[tuple[str, Stamp]]) -> None:
        if not entries:
            return
        settings = self.settings(folder)
        project = self._project(settings)
        inside = os.path.relpath(folder, settings.root).replace(os.sep, "/")
        prefix = "" if inside == "." else inside + "/"
        shown = shown_path(folder)
        shown = "" if shown == "." else shown.rstrip("/") + "/"
        for name, stamp in entries:
            path = os.path.join(folder, name)
            if path in self._seen:
                continue
            self._seen.add(path)
            if not (prefix + name).isprintable() or _ENCODING.search(prefix + name):
                message = f"the path {prefix + name!r} cannot be written into a header"
                self._wrong.append(Diagnostic(ascii(shown + name), 0, 0, "TG109", message))
                continue
            project.sources.append(Source(path, prefix + name, shown + name, stamp, settings))

    def _project(self, settings: Settings) -> Project:
        return self._projects.setdefault(settings, Project(settings))

    def _upward(self, folder: str) -> Settings | None:
        if folder not in self._known:
            found = self._read(folder)
            parent = os.path.dirname(folder)
            if found is None and parent != folder:
                found = self._upward(parent)
            self._known[folder] = found
        return self._known[folder]

    def _read(self, folder: str) -> Settings | None:
        path, other = os.path.join(folder, FILE), os.path.join(folder, PYPROJECT)
        if os.path.isfile(path):
            if os.path.isfile(other):
                _check_alone(other)
            return _parse(folder, path, ())
        return _parse(folder, other, ("tool", "tritongen")) if os.path.isfile(other) else None


def _check_alone(path: str) -> None:
    """Raise `Rejected` if a pyproject.toml has settings, too, next to tritongen.toml."""
    import tomllib

    from ..resources import read_text

    try:
        text = read_text(path)
        table = tomllib.loads(text).get("tool", {}).get("tritongen") if "tritongen" in text else None
    except (ValueError, AttributeError):  # Its errors are not ours to report.
        return
    if table is not None:
        from ..diagnostics.locate import locate

        message = f"[tool.tritongen] has settings, and so has {FILE} beside it"
        hint = f"keep one of them: move the settings of {FILE} here and remove it, or remove this table"
        raise Rejected(locate(shown_path(path), text, [Mistake("TG804", message, ("tool", "tritongen"), hint=hint)]))


def _parse(folder: str, path: str, table: tuple[str, ...]) -> Settings | None:
    """The settings in a file, None if it lacks `table`. Raises `Rejected` for mistakes."""
    import tomllib

    from ..resources import read_text

    shown = shown_path(path)
    try:
        text = read_text(path)
        values = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise Rejected([Diagnostic(shown, 0, 0, "TG801", f"not valid TOML: {error}")]) from None
    except tomllib.TOMLDecodeError:
        from ..spec.toml import syntax_error

        raise Rejected([syntax_error(shown, text, "TG801")]) from None
    for key in table:
        inner = values.get(key)
        if not isinstance(inner, dict):
            return None
        values = inner
    mistakes = tuple(_mistakes(values, table))
    if mistakes:
        from ..diagnostics.locate import locate

        raise Rejected(locate(shown, text, mistakes))
    return Settings(
        folder,
        tuple(values.get("specs", ("specs",))),
        values.get("out", "generated"),
        values.get("line-length", 88),
        values.get("runtime", "shared"),
        values.get("tests", True),
    )


def _mistakes(values: dict[str, object], table: tuple[str, ...]) -> Iterator[Mistake]:
    if not values:
        return
    from ..spec.nodes import examine
    from ..spec.tables import SETTINGS

    for one in examine(SETTINGS, values, table):
        yield Mistake("TG802", one.message, one.key, one.start, one.length, one.hint)


def _specs_under(folder: str) -> Iterator[tuple[str, list[tuple[str, Stamp]]]]:
    """A folder and all below it, each with its TOML files; hidden entries and settings are left out."""
    files, folders = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.name.endswith(".toml") and entry.name not in NO_SPECS and entry.is_file():
                files.append((entry.name, stamp_of(entry.stat())))
    yield folder, files
    for inner in sorted(folders):
        yield from _specs_under(inner)
