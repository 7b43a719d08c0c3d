"""The imports of a generated module: the lines for names that its text reads and does not define.

A name is declared here once, with the line that provides it; nothing else decides what a module imports.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Iterable, Mapping

from ..lang.names import shown
from ..lang.trees import parsed_module
from ..resources import read_text, templates_dir
from .scoping import undefined_names

RUNTIME_FOLDER = "_runtime"
TESTING_FOLDER = "_testing"  # next to it: code that emitted tests and benchmarks share

STANDARD = {name: f"import {name}" for name in ("contextlib", "functools", "itertools", "math", "os")}
STANDARD |= {name: f"from collections.abc import {name}" for name in ("Callable", "Iterable", "Sequence")}
STANDARD |= {name: f"from typing import {name}" for name in ("Any", "ClassVar")}
PACKAGES = {
    "pytest": "import pytest",
    "torch": "import torch",
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "TensorDescriptor": "from triton.tools.tensor_descriptor import TensorDescriptor",
}
GLUON = {
    "gluon": "from triton.experimental import gluon",
    "gl": "import triton.experimental.gluon.language as gl",
}
# The modules of the runtime that kernels call, and those that host code calls.
DEVICE_MODULES = tuple(
    "addressing blocks float8 math matmul online reduce scans sorting special split_k strips tiles".split()
)
SIBLINGS = ("configs", "kernels")


def device_imports(runtime: str) -> Mapping[str, str]:
    """The import lines by name for a module of kernels; `runtime` is the package that the runtime is in.

    Device functions are imported by name: Inductor copies the functions that a kernel names, and knows no modules.
    """
    own = {name: f"from {runtime}.{module} import {name}" for module in DEVICE_MODULES for name in device_names(module)}
    return PACKAGES | own | {"configs": "from . import configs", "heuristics": f"from {runtime} import heuristics"}


def gluon_imports(runtime: str) -> Mapping[str, str]:
    """The import lines by name for Gluon kernels, which call device functions of plain Triton, too."""
    hopper = ("fence_async_shared", "tma", "warpgroup_mma", "warpgroup_mma_wait")
    language = "from triton.experimental.gluon.language.nvidia.hopper"
    rings = {name: f"from {runtime}.rings import {name}" for name in device_names("rings")}
    return GLUON | {name: f"{language} import {name}" for name in hopper} | dict(device_imports(runtime)) | rings


@functools.cache
def device_names(module: str) -> tuple[str, ...]:
    """The device functions of a module of the runtime, and its constants."""
    tree = parsed_module(read_text(os.path.join(templates_dir(), "runtime", f"{module}.py")))
    functions = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    constants = (ast.unparse(node.target) for node in tree.body if isinstance(node, ast.AnnAssign))
    return *constants, *functions


def host_imports(runtime: str) -> Mapping[str, str]:
    """The import lines by name for host code."""
    device = {*DEVICE_MODULES, "rings"} - {"reduce"}  # which has a kernel that host code names
    own = {name: f"from {runtime} import {name}" for name in runtime_modules() if name not in device}
    return STANDARD | PACKAGES | own | {name: f"from . import {name}" for name in SIBLINGS}


def runtime_modules() -> tuple[str, ...]:
    files = sorted(os.listdir(os.path.join(templates_dir(), "runtime")))
    return tuple(name.removesuffix(".py") for name in files if name.endswith(".py") and name != "__init__.py")


def imports_of(text: str, provided: Mapping[str, str]) -> tuple[str, ...]:
    """The import lines of a module, in the order of isort."""
    return merged(provided[name] for name in undefined_names(text) if name in provided)


def merged(lines: Iterable[str]) -> tuple[str, ...]:
    """Import lines grouped and joined: the standard library, packages, then relative ones from the furthest."""
    groups: dict[int, dict[str, list[str]]] = {}
    for line in dict.fromkeys(lines):
        joins = line.startswith("from") and " as " not in line
        source, _, names = line.removeprefix("from ").partition(" import ") if joins else (line, "", "")
        found = groups.setdefault(_group(line), {}).setdefault(source, [])
        found += names.split(", ") if names else []
    blocks = []
    for group in sorted(groups):
        entries = groups[group].items()
        plain = sorted(source for source, names in entries if not names)
        others = sorted((source, sorted(names, key=_case)) for source, names in entries if names)
        joined = [f"from {source} import {', '.join(names)}" for source, names in others]
        block = [*plain, *joined]
        if group == _PROJECT:
            block.sort(key=lambda line: (-_dots(line.removeprefix("from ")), shown(line)))
        blocks.append(block)
    return tuple(line for n, block in enumerate(blocks) for line in ([""] if n else []) + block)


_PROJECT = 2


def _group(line: str) -> int:
    if line.startswith("from ."):
        return _PROJECT
    return 0 if line.split()[1].partition(".")[0] in sys.stdlib_module_names else 1


def _dots(source: str) -> int:
    return len(source) - len(source.lstrip("."))


def _case(name: str) -> tuple[bool, str]:
    """isort's order: constants, classes, then the rest."""
    return (not shown(name).isupper(), shown(name))
