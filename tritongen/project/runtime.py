"""The files that operators of a folder share: a runtime, the harness of tests, and the package that exports them.

The runtime has exactly the definitions that these operators reach, so that its text depends on the set of operators
alone. They are found in the operators' own modules, rendered or on disk.
"""

from __future__ import annotations

import builtins
import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import Template
from typing import TYPE_CHECKING

from ..emit.imports import RUNTIME_FOLDER, TESTING_FOLDER
from ..resources import digest, read_text, templates_dir
from .readme import page, template
from .settings import shown_path
from .tree import PACKAGE, SHARED, TESTS, Change, body_of, compare, our_files, single_files, with_shared_header

if TYPE_CHECKING:
    from ..emit.shaking import Library

RUNTIME_FOLDERS = (RUNTIME_FOLDER, TESTING_FOLDER)
# "runtime.launch:run": a name that operators read in a module of templates/; "declares:wrt": one that tests declare.
Needs = frozenset[str]
_DECLARES = "declares:"
_SOURCES = {RUNTIME_FOLDER: "runtime", TESTING_FOLDER: "testing"}  # their folders in templates/
README = "README.md"
_LENGTH = 88  # of lines, regardless of the settings: shared files are the same everywhere


def needs_of(texts: Iterable[str]) -> Needs:
    """The names that modules of an operator read in the runtime and the harness, and those that its tests declare."""
    from ..emit.members import declared_in
    from ..emit.shaking import names_read

    found = set[str]()
    for text in texts:
        names = {":".join(name) for name in names_read(text, _SOURCES)}
        is_test = any(name.startswith("testing:") for name in names)
        found |= names | ({f"{_DECLARES}{name}" for name in declared_in(text)} if is_test else set())
    return frozenset(found)


def needs_in(folder: str, names: Iterable[str] | None = None) -> Needs:
    """The needs of the generated files in a folder, or of those in `names`; all if one of them does not parse."""
    try:
        return needs_of(text for path, text, _ in our_files(folder, names) if path.endswith(".py"))
    except SyntaxError:  # A file is being edited.
        return everything()


def everything() -> Needs:
    return frozenset(f"{module}:*" for module in _texts())


@functools.cache
def shared_files(needs: Needs) -> Mapping[str, Mapping[str, str]]:
    """The files of the runtime and of the harness with the definitions that are needed: texts by folder and name."""
    texts = _shaken(needs)
    found: dict[str, dict[str, str]] = {folder: {} for folder in RUNTIME_FOLDERS}
    for folder, source in _SOURCES.items():
        for module, text in texts.items():
            package, _, name = module.partition(".")
            if package == source:
                file = f"{name or '__init__'}.py"
                found[folder][file] = _with_header(module, text, f"{folder}/{file}")
    own = {name.removesuffix(".py"): body_of(text) for name, text in found[RUNTIME_FOLDER].items()}
    if own:
        place = f"{RUNTIME_FOLDER}/{README}"
        found[RUNTIME_FOLDER][README] = with_shared_header(SHARED, digest(template()), page(own), place)
    return found


def _shaken(needs: Needs) -> Mapping[str, str]:
    """The text of each shared module with only the needed definitions; the harness loses tests without cases, too."""
    names = [_name(need) for need in needs]
    library = _library()
    texts = library.texts(library.reached(names))
    if needs >= everything():
        return texts
    from ..emit.members import Declared, cut
    from ..emit.shaking import Library

    declared = Declared.of(names, [need.removeprefix(_DECLARES) for need in needs if need.startswith(_DECLARES)])
    before: Mapping[str, str] = {}
    while texts != before:
        before = texts
        tests = {name: text for name, text in texts.items() if name.partition(".")[0] == "testing"}
        library = Library({**texts, **cut(tests, declared)}, _SOURCES.values())
        texts = library.texts(library.reached(names))
    return texts


def runtime_files(folder: str = RUNTIME_FOLDER) -> Mapping[str, str]:
    """The files of the runtime, or of the harness, with all their definitions."""
    return shared_files(everything())[folder]


def compare_runtime(home: str, needs: Needs | None) -> Iterator[Change]:
    """The changes to a runtime in `home` with the definitions that are needed; None if there should be no runtime."""
    for folder in RUNTIME_FOLDERS:
        expected = {} if needs is None else shared_files(needs)[folder]
        yield from compare(os.path.join(home, folder), expected, SHARED, "", home)


def in_one_file(op: str, summary: str, modules: Mapping[str, str], tests: bool = True) -> dict[str, str]:
    """An operator in one file, with the definitions of the runtime that it reaches, and its test and benchmark: texts
    by path relative to the folder of all operators.
    """
    from ..emit.shaking import Library
    from ..emit.single import OPERATOR, single_file

    sections = ("kernels.py", "gluon_kernels.py", "configs.py", "op.py")
    own = {
        f"{OPERATOR}.{name.removesuffix('.py')}": modules[name].replace(f"from ..{RUNTIME_FOLDER}", "from ..runtime")
        for name in sections
        if name in modules
    }
    shared = {name: text for name, text in _texts().items() if name.partition(".")[0] == "runtime"}
    library = Library({**shared, **own, OPERATOR: ""}, ("runtime", OPERATOR))
    head = Template(read_text(os.path.join(templates_dir(), "file.py.template")))
    top = head.substitute(op=op, summary=summary)
    tables = [name for name in _defined(modules["configs.py"], "Assign") if name.isupper()]
    test, bench = single_files(op)[1:]
    found = {f"{op}.py": single_file(library, own, top)}
    if tests:
        found[test] = _for_one_file(modules[os.path.basename(test)], op, tables)
        found[bench] = _for_one_file(modules[os.path.basename(bench)], op, ())
    return found


def tests_package() -> Mapping[str, str]:
    """The `__init__.py` of the folder of tests, for operators in one file each."""
    text = '"""Tests and benchmarks of the operators beside this folder, and what these share."""\n'
    return {"__init__.py": with_shared_header(PACKAGE, digest(text), text, f"{TESTS}/__init__.py")}


def _for_one_file(text: str, op: str, tables: Iterable[str]) -> str:
    """Rewrite a test or benchmark in an operator's folder for the operator in one file.

    The harness takes the runtime's definitions from that file, which has its own copy.
    """
    siblings = [*re.finditer(r"^from \. import (.+)\n", text, re.M)]
    imported = [name for line in siblings for name in line[1].split(", ")]
    (public,) = (name for name in imported if name not in ("configs", "kernels"))
    name = public.rpartition(" ")[2]
    for line in siblings:
        text = text.replace(line[0], "")
    shared = f"(?={RUNTIME_FOLDER}|{TESTING_FOLDER}|import {TESTING_FOLDER})"
    text = re.sub(rf"^from \.\.( ?){shared}", r"from .\1", text, flags=re.M)
    first = re.search(r"^from \.", text, re.M)
    assert first
    text = f"{text[: first.start()]}from ..{op} import {public}\n{text[first.start() :]}"
    lines = [f"testing = testing.of({name})"] if "as testing" in text else []
    if "configs" in imported:
        lines.append(f"configs = testing.tables_in({name}, {', '.join(map(repr, tables))})")
    if "kernels" in imported:
        lines.append(f"kernels = testing.file_of({name})")
    last = list(re.finditer(r"^from \.\S* import .+$", text, re.M))[-1].end()
    return "".join([text[:last], *("\n\n" if lines else ""), "\n".join(lines), text[last:]])


def is_of_this_version(home: str) -> bool:
    """Whether a folder has a runtime, and all its modules were made from the current ones in templates/."""
    made = {name: digest(text) for name, text in _texts().items()}
    found = []
    for folder in RUNTIME_FOLDERS:
        for path, _, header in our_files(os.path.join(home, folder)):
            name, extension = os.path.splitext(os.path.basename(path))
            module = f"{_SOURCES[folder]}.{name}".removesuffix(".__init__")
            is_copy = header.path != f"{folder}/{name}.py"  # copied by hand
            if extension == ".py" and not is_copy:
                found.append(made.get(module) == header.templates)
    return bool(found) and all(found)


def linked_folders(home: str) -> list[str]:
    """The folders of a runtime that are symbolic links, through which nothing is written."""
    return [path for folder in RUNTIME_FOLDERS if os.path.islink(path := os.path.join(home, folder))]


def changed_definitions(changes: Sequence[Change]) -> tuple[str, ...]:
    """Definitions added (+) to existing runtimes or removed (-), by folder: "generated/_runtime: + reduce.nan_max"."""
    found: dict[str, list[str]] = {}
    kinds = "FunctionDef", "ClassDef"
    folders = {os.path.dirname(change.path) for change in changes if change.source == SHARED and change.kind == "stale"}
    for sign, one, other in (("+", "new", "old"), ("-", "old", "new")):
        for change in changes:
            folder = os.path.dirname(change.path)
            if folder in folders and change.path.endswith(".py"):
                gone = _defined(getattr(change, other) or "", *kinds)
                names = [name for name in _defined(getattr(change, one) or "", *kinds) if name not in gone]
                module = os.path.basename(change.path).removesuffix(".py")
                found.setdefault(folder, []).extend(f"{sign} {module}.{name}" for name in names)
    return tuple(f"{shown_path(folder)}: {', '.join(names)}" for folder, names in sorted(found.items()) if names)


def _defined(text: str, *kinds: str) -> list[str]:
    """The names that statements of some kinds (classes of `ast`) define in a module."""
    from ..emit.shaking import chunks_of

    return [name for chunk in chunks_of(text) if type(chunk.node).__name__ in kinds for name in chunk.names]


def package_files(ops: Iterable[str], of_files: bool = False) -> Mapping[str, str]:
    """The `__init__.py` that exports operators, which are folders, or one file each if `of_files`. It is made without
    Jinja, because a build without changes avoids importing it.
    """
    template = "package_of_files" if of_files else "package"
    package = read_text(os.path.join(templates_dir(), f"{template}.py.template"))
    names = tuple(ops)
    hidden = "|".join(sorted(name for name in names if hasattr(builtins, name)))  # builtins that operators shadow
    if hidden and re.search(called := rf"(?<![\w.])({hidden})\(", package):
        package = re.sub(called, r"_builtins.\1(", package)
        package = package.replace("import ", "import builtins as _builtins\nimport ", 1)
    imports = map(_import, sorted(names, key=lambda name: (_natural(name.lower()), _natural(name))))
    exports = [f'"{name}"' for name in sorted(names, key=lambda name: (_kind(name), _natural(name)))]
    listed = f"[{', '.join(exports)}]"
    if len(f"__all__ = {listed}") > _LENGTH:
        listed = "\n".join(["[", *(f"    {name}," for name in exports), "]"])
    text = Template(package).substitute(imports="\n".join(imports), names=listed)
    return {"__init__.py": with_shared_header(PACKAGE, digest(package), text, "__init__.py")}


@functools.cache
def _texts() -> Mapping[str, str]:
    """The modules of templates/ that operators share, by their dotted names."""
    found = {}
    for source in _SOURCES.values():
        home = os.path.join(templates_dir(), source)
        for file in sorted(name for name in os.listdir(home) if name.endswith(".py")):
            name = source if file == "__init__.py" else f"{source}.{file.removesuffix('.py')}"
            found[name] = read_text(os.path.join(home, file))
    return found


@functools.cache
def _library() -> Library:
    from ..emit.shaking import Library

    return Library(_texts(), _SOURCES.values())


def _name(need: str) -> tuple[str, str]:
    module, _, name = need.partition(":")
    return module, name


def _with_header(module: str, text: str, place: str) -> str:
    """The emitted text of a module of templates/: its header, and imports from the emitted folders."""
    text = text.replace("from ..runtime import", f"from ..{RUNTIME_FOLDER} import")
    return with_shared_header(SHARED, digest(_texts()[module]), text, place)


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """A key that sorts x2 before x10, as isort does. Digits that begin with a zero come first, as after a point."""
    runs = re.findall(r"[0-9]+|[^0-9]", name)
    return [(run.isalpha() or run == "_", 0 if run.startswith("0") else len(run), run) for run in runs]


def _kind(name: str) -> int:
    """The order of isort in `__all__`: constants, classes, then the rest."""
    return 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2


def _import(op: str) -> str:
    """An import, formatted as black does."""
    line = f"    from .{op} import {op} as {op}"
    return line if len(line) <= _LENGTH else f"    from .{op} import (\n        {op} as {op},\n    )"
