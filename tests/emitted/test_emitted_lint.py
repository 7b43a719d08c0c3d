"""What is emitted passes the project's own linters, on the specs that stress the language."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A comparison is written as the spec has it, test_dtypes is the name of an operator here, and kernels have any length.
BY_THE_SPEC = "RET505,SIM300,PT028,C901,PLR0915"
PARTS = 4


def build(home: Path, part: int = 0, of: int = 1) -> None:
    """Packages of a part of all specs of the tests, as `build` writes them."""
    (home / "specs").mkdir()
    paths = sorted(path for folder in ("specs", "emitted/specs") for path in (ROOT / "tests" / folder).glob("*.toml"))
    for path in paths[part::of]:
        shutil.copy(path, home / "specs")
    run(home, "tritongen", "build", "specs")


def run(home: Path, module: str, *arguments: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=home, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.mark.sampled(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="needs ruff")
def test_ruff(tmp_path: Path, part: int) -> None:
    build(tmp_path, part, PARTS)
    run(tmp_path, "ruff", "check", "--config", str(ROOT / "pyproject.toml"), "--ignore", BY_THE_SPEC, "generated")


@pytest.mark.sampled(4)
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs mypy")
def test_mypy(tmp_path: Path) -> None:
    build(tmp_path)
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\n[mypy-triton.*]\nignore_missing_imports = True\n")
    run(tmp_path, "mypy", "-p", "generated")
