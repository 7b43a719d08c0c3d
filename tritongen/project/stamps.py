"""Stamps of the files of the last build (size, times and inode): a build of unchanged specs reads nothing else.

They are stored next to the settings in `.tritongen/`, which git ignores. Losing them only costs time. If `.tritongen`
is a symbolic link, none are read or written.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from typing import Any

from ..resources import digest, program_digest, templates_digest
from .settings import Project, Settings, Source, Stamp
from .tree import listing, single_files, write

FOLDER = ".tritongen"
Listings = dict[str, dict[str, Stamp]]


class Stamps:
    """For each spec: its own stamp, its op, the stamps of the op's files, and the op's needs.

    For each runtime: a digest of the needs that it serves, and the stamps of its folders.
    """

    def __init__(self, settings: Settings) -> None:
        self._folder = os.path.join(settings.root, FOLDER)
        self._path = os.path.join(self._folder, "stamps.json")
        self._out, self._settings = settings.out_dir, settings
        self.templates = templates_digest(settings.shape)
        self._made_by = digest(program_digest(), self.templates, settings.out, settings.runtime)
        self._entries, self._shared = self._load()
        self._changed = False

    def op_if_fresh(self, source: Source) -> str:
        """The op of a spec if neither the spec nor the op's files have changed since the last build, else ""."""
        stamp, op, files, _ = self._entries.get(source.name, (None, "", None, ()))
        fresh = stamp == source.stamp and files == self.files_of(op)
        return op if fresh else ""

    def files_of(self, op: str) -> dict[str, Stamp]:
        """The stamps of an operator's files."""
        return listing(self._settings.folder_of(op), single_files(op) if self._settings.is_single else None)

    def record(self, source: Source, op: str, files: dict[str, Stamp], needs: Iterable[str]) -> None:
        """Record an op. `source` and `files` must have been stamped before their content was found correct."""
        self._entries[source.name] = [source.stamp, op, files, sorted(needs)]
        self._changed = True

    def needs_if_fresh(self, op: str) -> frozenset[str] | None:
        """The recorded needs of an operator, None if its files have changed."""
        files = self.files_of(op)
        return next((frozenset(one[3]) for one in self._entries.values() if (one[1], one[2]) == (op, files)), None)

    def is_shared_fresh(self, home: str, holds: str, files: Listings) -> bool:
        """Whether the runtime in `home` is as recorded; `holds` is a digest of the needs that it should serve."""
        return self._shared.get(os.path.relpath(home, self._out)) == [holds, files]

    def record_shared(self, home: str, holds: str, files: Listings) -> None:
        self._shared[os.path.relpath(home, self._out)] = [holds, files]
        self._changed = True

    def save(self, project: Project) -> None:
        built = {source.name for source in project.sources}
        gone = [name for name in self._entries if name not in built and project.covers(name)]
        for name in gone:
            del self._entries[name]
        if not (self._changed or gone) or os.path.islink(self._folder):
            return
        with contextlib.suppress(OSError):  # a read-only checkout builds all the same
            write(self._path, json.dumps({"made_by": self._made_by, "specs": self._entries, "shared": self._shared}))
            ignore = os.path.join(self._folder, ".gitignore")
            if not os.path.exists(ignore):
                write(ignore, "*\n")

    def _load(self) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            if os.path.islink(self._folder) or not os.path.isfile(self._path):
                return {}, {}
            with open(self._path, encoding="utf-8") as file:
                stored = json.load(file)
            if stored["made_by"] != self._made_by:
                return {}, {}
            entries = {name: entry for name, entry in stored["specs"].items() if _is_entry(entry)}
            return entries, dict(stored["shared"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}, {}


def _is_entry(entry: object) -> bool:
    """Whether an entry that was read has the form that `record` writes, since anybody can edit the file."""
    match entry:
        case [list(), str(op), dict(), list(needs)]:
            return op.isidentifier() and all(isinstance(need, str) for need in needs)
        case _:
            return False
