"""Import files and generated folders by path, each as a new module."""

from __future__ import annotations

import ast
import functools
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

from tests.harness.oracles import on_device
from tests.harness.processes import python
from tritongen.emit.imports import RUNTIME_FOLDER
from tritongen.emit.scoping import undefined_names
from tritongen.lang.trees import parsed_module
from tritongen.operator.compile import generate
from tritongen.project.runtime import RUNTIME_FOLDERS, runtime_files
from tritongen.resources import templates_dir
from tritongen.spec.types import Spec

# Options of pytest in a separate process, in place of conftest.py.
INTERPRETING = ("-p", "tritongen.residues.fast_interpreter") if os.environ.get("TRITON_INTERPRET") == "1" else ()

_count = itertools.count()


def module_at(path: Path) -> ModuleType:
    """Import a Python file, or a folder that is a package, as a new module each time."""
    package = path.is_dir()
    if package and (path.parent / RUNTIME_FOLDER).is_dir():  # It imports the runtime next to it.
        return importlib.import_module(f"{module_at(path.parent).__name__}.{path.name}")
    found = importlib.util.spec_from_file_location(
        f"{path.stem}_{next(_count)}",
        path / "__init__.py" if package else path,
        submodule_search_locations=[str(path)] if package else None,
    )
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # Modules of a package find each other there.
    found.loader.exec_module(module)
    return module


def runtime_module(name: str) -> ModuleType:
    """Import a module of the runtime, or of the harness as `testing.NAME`, in a new copy of the runtime."""
    home = ModuleType(f"templates_{next(_count)}")
    home.__path__ = [templates_dir()]
    sys.modules[home.__name__] = home
    inside = "" if name.startswith("testing.") else "runtime."
    return importlib.import_module(f"{home.__name__}.{inside}{name}")


def runtime_of(operator: ModuleType, name: str) -> ModuleType:
    """A module of an operator's runtime, which is in its package or next to it."""
    inside = (Path(*operator.__path__) / RUNTIME_FOLDER).is_dir()
    home = operator.__name__ if inside else operator.__name__.rpartition(".")[0]
    return importlib.import_module(f"{home}.{RUNTIME_FOLDER}.{name}")


def written(spec: Spec, folder: Path) -> Path:
    """Write a spec's files and the runtime to a folder in `folder`, and return it.

    It asserts that modules define their names, once, that op.py and kernels.py read their variables, that Triton 3.6
    accepts assignments, and that configs.py has the tables that op.py names.
    """
    texts = generate(spec, ".")
    assert not {name: missing for name, text in texts.items() if (missing := undefined_names(text))}
    assert {name: twice for name, text in texts.items() if (twice := defined_twice(text))} == {}
    assert {name: found for name, text in texts.items() if (found := refused_targets(text))} == {}
    assert {name: found for name in ("op.py", "kernels.py") if (found := [*unread(name, texts[name])])} == {}
    tables = {one.id for one in ast.walk(parsed_module(texts["configs.py"])) if isinstance(one, ast.Name)}
    assert {*re.findall(r"\bconfigs\.([A-Z_0-9]+)\b", texts["op.py"])} <= tables
    return with_runtime(folder / spec.name, texts)


def emitted_tests(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on the emitted tests in a folder, in a separate process."""
    command = (
        "-m",
        "pytest",
        "-q",
        "--import-mode=importlib",
        "--rootdir",
        str(home),
        *options,
        str(home),
        *INTERPRETING,
    )
    return python(*command, cwd=home, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def defined_twice(text: str) -> list[str]:
    """The names of functions, classes and constants that a module defines more than once."""
    tree = parsed_module(text)
    names = Counter(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    assigned = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    names.update(target.id for target in assigned if isinstance(target, ast.Name))
    return [name for name, count in names.items() if count > 1]


def unread(name: str, text: str) -> Iterator[str]:
    """Variables that functions assign and do not read, and unread parameters of functions (not methods) of op.py.

    Parameters of kernels are exempt, since the runtime passes INDEX, the dtype of offsets, even to those without.
    """
    tree = parsed_module(text)
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        given = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        if name == "op.py" and function in tree.body:
            given |= {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        yield from (f"{one} of {function.name}" for one in sorted(given - read) if one[0] != "_")


def refused_targets(text: str) -> list[str]:
    """The assignments in jit functions that Triton 3.6 refuses when it collects dependencies: to nested tuples and to
    two targets. Triton's interpreter runs them.
    """
    every = [node for node in ast.walk(parsed_module(text)) if isinstance(node, ast.FunctionDef)]
    jitted = [one for one in every if any("jit" in ast.unparse(each) for each in one.decorator_list)]
    nodes = [node for function in jitted for node in ast.walk(function)]
    several = [node for node in nodes if isinstance(node, ast.Assign) and len(node.targets) > 1]
    tuples = (node for node in nodes if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Store))
    nested = [node for node in tuples if any(isinstance(one, ast.Tuple) for one in node.elts)]
    return [ast.unparse(node) for node in (*several, *nested)]


def with_runtime(home: Path, texts: Mapping[str, str]) -> Path:
    """Write files to a folder with a runtime: links to folders that a process writes, and compiles to bytecode, once.

    Modules imported through them are new ones all the same. Call `with_own_runtime` before editing them.
    """
    home.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (home / name).write_text(text, encoding="utf-8")
    for inside in RUNTIME_FOLDERS:
        if not (home / inside).is_symlink():
            (home / inside).symlink_to(Path(_shared_folders().name, inside))
    return home


@functools.cache
def _shared_folders() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    for inside in RUNTIME_FOLDERS:
        Path(folder.name, inside).mkdir()
        for name, text in runtime_files(inside).items():
            Path(folder.name, inside, name).write_text(text, encoding="utf-8")
    return folder


def with_own_runtime(home: Path) -> Path:
    """Replace the linked runtime of a folder by a copy, which may be edited."""
    link = home / RUNTIME_FOLDER
    source = link.resolve()
    link.unlink()
    shutil.copytree(source, link, ignore=shutil.ignore_patterns("__pycache__"))
    return home


def module_of(text: str, home: Path) -> ModuleType:
    """Import `text`, which imports from `._runtime`, as kernels.py of a package in `home`."""
    package = module_at(with_runtime(home, {"__init__.py": "", "kernels.py": text}))
    return importlib.import_module(f"{package.__name__}.kernels")


def built(spec: Spec, folder: Path) -> ModuleType:
    """Build and import a spec's package in `folder`; its operator accepts CPU tensors, too, wherever tests run."""
    package = module_at(written(spec, folder))
    setattr(package, spec.name, on_device(getattr(package, spec.name)))
    return package
