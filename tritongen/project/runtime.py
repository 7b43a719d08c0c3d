"""What the operators of a folder share: the runtime, the same in every project, and the package that exports them."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from string import Template

from ..emit.imports import RUNTIME_FOLDER, TESTING_FOLDER
from ..resources import digest, read_text, templates_dir
from .tree import Change, compare, with_header

SOURCE = "its runtime"  # what headers name in the place of a spec
PACKAGE = "its operators"  # and that of the package that exports them
_SPEC = "0" * 16
_MEND = "`tritongen build` writes it beside the operators"
_LENGTH = 88  # of lines, whatever the settings say: what is shared is the same everywhere
_SOURCES = {RUNTIME_FOLDER: "runtime", TESTING_FOLDER: "testing"}  # the folders of templates/ that they are made of

RUNTIME_FOLDERS = (RUNTIME_FOLDER, TESTING_FOLDER)
_FORMER = os.path.join(RUNTIME_FOLDER, "testing")  # where the harness of tests was


@functools.cache
def runtime_files(folder: str = RUNTIME_FOLDER) -> Mapping[str, str]:
    """The files of the runtime, or of the harness of its tests, as they are written, by name."""
    home = os.path.join(templates_dir(), _SOURCES[folder])
    names = sorted(name for name in os.listdir(home) if name.endswith(".py"))
    texts = {name: _placed(read_text(os.path.join(home, name))) for name in names}
    templates = digest(*texts, *texts.values())
    inside = folder.replace(os.sep, "/")
    return {
        name: with_header(SOURCE, _SPEC, templates, len(texts), text, f"{inside}/{name}", _MEND)
        for name, text in texts.items()
    }


def _placed(text: str) -> str:
    """A module of templates/ as it imports from the folders that are emitted."""
    return text.replace("from ..runtime import", f"from ..{RUNTIME_FOLDER} import")


def compare_runtime(home: str, is_needed: bool = True) -> Iterator[Change]:
    """How the runtime in a folder differs from what it should be; where none is needed, from nothing."""
    for folder in RUNTIME_FOLDERS:
        expected = runtime_files(folder) if is_needed else {}
        yield from compare(os.path.join(home, folder), expected, SOURCE, "", home)
    yield from compare(os.path.join(home, _FORMER), {}, SOURCE, "", home)


def linked_folders(home: str) -> list[str]:
    """The folders of a runtime that are symbolic links, through which nothing is written."""
    return [path for folder in RUNTIME_FOLDERS if os.path.islink(path := os.path.join(home, folder))]


def package_files(ops: Iterable[str]) -> Mapping[str, str]:
    """The `__init__.py` beside the folders of some operators, made without Jinja, which a build of nothing avoids."""
    template = read_text(os.path.join(templates_dir(), "package.py.template"))
    names = tuple(ops)
    imports = map(_import, sorted(names, key=lambda name: (_natural(name.lower()), _natural(name))))
    exports = (f'    "{name}",' for name in sorted(names, key=lambda name: (_kind(name), _natural(name))))
    text = Template(template).substitute(imports="\n".join(imports), names="\n".join(exports))
    return {"__init__.py": with_header(PACKAGE, _SPEC, digest(template), 1, text, "__init__.py", _MEND)}


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """A key that sorts x2 before x10, as isort does. Numbers that begin with a zero come first, as after a point."""
    parts = re.findall(r"[0-9]+|[^0-9]", name)
    return [(part.isalpha() or part == "_", 0 if part.startswith("0") else len(part), part) for part in parts]


def _kind(name: str) -> int:
    """The order of isort in `__all__`: constants, classes, then the rest."""
    return 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2


def _import(op: str) -> str:
    """An import as black has it."""
    line = f"    from .{op} import {op} as {op}"
    return line if len(line) <= _LENGTH else f"    from .{op} import (\n        {op} as {op},\n    )"
