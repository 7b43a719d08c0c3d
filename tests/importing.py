"""Imports files and generated folders from where they are, each as a module of its own."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

from tritongen.compile import generate
from tritongen.runtime import RUNTIME_FOLDERS, runtime_files
from tritongen.spec import Spec

_count = itertools.count()


def module_at(path: Path) -> ModuleType:
    """A Python file, or a folder that is a package, as a new module however often it is imported."""
    package = path.is_dir()
    found = importlib.util.spec_from_file_location(
        f"{path.stem}_{next(_count)}",
        path / "__init__.py" if package else path,
        submodule_search_locations=[str(path)] if package else None,
    )
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module  # Where modules of a package look for one another.
    found.loader.exec_module(module)
    return module


def written(spec: Spec, folder: Path) -> Path:
    """The folder of a spec's files in `folder`, with the runtime in it."""
    home = folder / spec.name
    texts = generate(spec, ".")
    for inside in RUNTIME_FOLDERS:
        texts |= {f"{inside}/{name}": text for name, text in runtime_files(inside).items()}
    for name, text in texts.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return home


def built(spec: Spec, folder: Path) -> ModuleType:
    """The package of a spec, written into a folder of its own in `folder`."""
    return module_at(written(spec, folder))
