"""The tests that are emitted with a kernel pass.

Of tests/emitted/*.toml, whose oracles are their own math, and of the operators of tests/specs that are registered or
multiply what they compute, which is rounded to the dtype that is multiplied.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tritongen.compile import generate
from tritongen.read import read_spec

HERE = Path(__file__).parent
SPECS = sorted(
    (
        *(HERE / "emitted").glob("*.toml"),
        *(HERE / "specs").glob("*registered*.toml"),
        HERE / "specs" / "gradient_shared_optional.toml",
        HERE / "specs" / "product_float64_mixed.toml",
        HERE / "specs" / "product_prologue.toml",
    )
)


def test_emitted_tests_pass(tmp_path: Path) -> None:
    for path in SPECS:
        spec = read_spec(path.name, path.read_text(encoding="utf-8"))
        home = tmp_path / spec.name
        home.mkdir()
        for name, text in generate(spec).items():
            (home / name).write_text(text, encoding="utf-8")
    # Configurations are tried on the gallery.
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-k", "not configs", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout[-5000:]
