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


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with packages of all specs of the tests, as `build` writes them."""
    home = tmp_path_factory.mktemp("lint")
    for folder in ("specs", "emitted/specs"):
        shutil.copytree(ROOT / "tests" / folder, home / "specs", dirs_exist_ok=True)
    run(home, "tritongen", "build", "specs")
    return home


def run(home: Path, module: str, *arguments: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=home, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="needs ruff")
def test_ruff(emitted: Path) -> None:
    run(emitted, "ruff", "check", "--config", str(ROOT / "pyproject.toml"), "--ignore", BY_THE_SPEC, "generated")


@pytest.mark.sampled(4)
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs mypy")
def test_mypy(emitted: Path) -> None:
    (emitted / "mypy.ini").write_text("[mypy]\nstrict = True\n[mypy-triton.*]\nignore_missing_imports = True\n")
    run(emitted, "mypy", "-p", "generated")
