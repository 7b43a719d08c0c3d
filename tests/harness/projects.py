"""A project to build in for tests, with a fake generator that takes no time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tritongen.diagnostics.report import Mistake, Mistakes
from tritongen.project.build import Built, build, check
from tritongen.project.runtime import RUNTIME_FOLDERS, needs_of, shared_files
from tritongen.spec.types import Spec

SPEC = """\
[op]
name = "{name}"
[inputs]
x = "float[N]"
[compute]
y = "{expression}"
[outputs]
y = "x"
"""
FILES = ["__init__.py", "configs.py", "kernels.py"]


def fake(spec: Spec, runtime: str, width: int) -> Mapping[str, str]:
    """A generator whose text depends on the spec, as the real one's does."""
    expression = spec.compute[0].expression
    if expression == "wrong":
        raise Mistakes(Mistake("TG201", "this is wrong", ("compute", "y"), 0, 5))
    return {
        "__init__.py": f'"""{spec.name}"""\n' + USES.format(runtime=runtime),
        "kernels.py": f"import os\nEXPRESSION = '{expression}'\n",
        "configs.py": "CONFIGS = ( 1,2 )\n",
    }


USES = """
from {runtime} import _testing
from {runtime}_runtime import gemm, launch, math, tma

USED = (gemm.gemm, launch.run, math.remainder_int, tma.is_aligned, _testing.Input)
"""
SHARED_FILES = shared_files(needs_of([USES.format(runtime="..")]))
RUNTIME = sorted(f"{folder}/{name}" for folder in RUNTIME_FOLDERS for name in SHARED_FILES[folder])
SHARED = ["__init__.py", *RUNTIME]  # files of a tree outside of its operators


def old(spec: Spec, runtime: str, width: int) -> Mapping[str, str]:
    """A generator of an earlier version, which wrote other files."""
    return {name: text + "OLD = 1\n" for name, text in fake(spec, runtime, width).items()}


def importing(spec: Spec, runtime: str, width: int) -> Mapping[str, str]:
    """A generator whose files import the runtime from the package that settings determine."""
    return {**fake(spec, runtime, width), "kernels.py": f"from {runtime}_runtime import math\n"}


class Project:
    """A folder with settings and specs, built with the generator `fake`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.out = root / "generated"
        root.mkdir(exist_ok=True)
        (root / "tritongen.toml").write_text("")

    def spec(self, name: str, expression: str = "x * 2", file: str = "") -> Path:
        path = self.root / "specs" / f"{file or name}.toml"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(SPEC.format(name=name, expression=expression))
        return path

    def build(self, *paths: str, force: bool = False) -> Built:
        return build(paths, force, fake)

    def kinds(self, *paths: str) -> list[tuple[str, str]]:
        drift = check(paths, fake)
        assert len(drift.changes) == len(drift.findings)
        out = self.out
        return [(one.kind, os.path.relpath(one.path, out)) for one in drift.changes]

    def state(self) -> dict[str, tuple[bytes, int]]:
        files = (path for path in self.out.rglob("*") if path.is_file())
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
