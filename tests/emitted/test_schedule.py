"""What a spec's [schedule] asks for: the emitted tests of gallery specs pass under other configurations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from importing import INTERPRETING, written

from tritongen.spec.read import read_spec

SPECS = Path(__file__).parents[2] / "specs"
SEARCH = "autotune = true"
LISTS = "block_n = [512, 1024]\nnum_warps = [4, 8]"
ELSEWHERE = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
ELSEWHERE["PYTHONPATH"] = os.pathsep.join(sys.path)
# What configurations may change: all else is tested of the gallery.
CONCERNED = "configs or shapes or dtypes or splits or loop"


TILES = "block_m = [32]\nblock_n = [32, 64]\nnum_stages = [2]"
# A map, a broadcast, rows in registers, a reduction, two sums; a matrix product, and one whose tiles hold rows of 64.
CASES = [
    (name, schedule) for name in ("vector_add", "add_bias", "softmax", "sum", "var") for schedule in (SEARCH, LISTS)
]
CASES += [("matmul", TILES), ("router", TILES)]


def test_emitted_tests_pass(tmp_path: Path) -> None:
    """In a process of its own, as a user runs them, each operator by a name of its own."""
    for place, (name, schedule) in enumerate(CASES):
        text = (SPECS / f"{name}.toml").read_text(encoding="utf-8")
        own = f"{name}_{place}"
        text = text.replace(f'name = "{name}"', f'name = "{own}"', 1)
        folder = written(read_spec(f"{own}.toml", f"{text}\n[schedule]\n{schedule}\n"), tmp_path)
        kernels = (folder / "kernels.py").read_text(encoding="utf-8")
        assert ("@triton.autotune" in kernels) == (schedule == SEARCH)
    command = [sys.executable, "-m", "pytest", "-v", "-W", "ignore", "-p", "no:cacheprovider", str(tmp_path)]
    command += ["--import-mode=importlib", f"--rootdir={tmp_path}", "-k", CONCERNED, *INTERPRETING]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ELSEWHERE)
    assert done.returncode == 0, done.stdout
    assert all(f"{name}_{place}/" in done.stdout for place, (name, _) in enumerate(CASES))
