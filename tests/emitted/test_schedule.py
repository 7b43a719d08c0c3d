"""What a spec's [schedule] asks for: the emitted tests of gallery specs pass under other configurations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from importing import INTERPRETING, written

from tritongen.spec.read import read_spec

SPECS = Path(__file__).parents[2] / "specs"
STRESS = Path(__file__).parents[1] / "specs"
EXAMPLES = Path(__file__).parents[2] / "examples" / "specs"
SEARCH = "autotune = true"
LISTS = "block_n = [512, 1024]\nnum_warps = [4, 8]"
ELSEWHERE = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
ELSEWHERE["PYTHONPATH"] = os.pathsep.join(sys.path)
# What configurations may change: all else is tested of the gallery.
CONCERNED = "configs or shapes or dtypes or splits or loop"


TILES = "block_m = [32]\nblock_n = [32, 64]\nnum_stages = [2]"
# A map, a broadcast, rows in registers, a reduction, two sums; several steps, without and with matmuls; a product, and
# one whose tiles hold rows of 64.
CASES = [
    (SPECS / name, schedule)
    for name in ("vector_add", "add_bias", "softmax", "sum", "var")
    for schedule in (SEARCH, LISTS)
]
CASES += [(STRESS / "gradient_whole_norm", SEARCH), (EXAMPLES / "linear_layer_norm", SEARCH)]
CASES += [(SPECS / "matmul", TILES), (SPECS / "router", TILES), (SPECS / "matmul", f"{SEARCH}\nblock_k = [32, 64]")]


def test_emitted_tests_pass(tmp_path: Path) -> None:
    """In a process of its own, as a user runs them, each operator by a name of its own."""
    for place, (path, schedule) in enumerate(CASES):
        own = f"{path.name}_{place}"
        text = path.with_suffix(".toml").read_text(encoding="utf-8").replace(f'"{path.name}"', f'"{own}"', 1)
        folder = written(read_spec(f"{own}.toml", f"{text}\n[schedule]\n{schedule}\n"), tmp_path)
        texts = [(folder / name).read_text(encoding="utf-8") for name in ("kernels.py", "op.py")]
        assert any("@triton.autotune" in text or "search=True" in text for text in texts) == (SEARCH in schedule)
    command = [sys.executable, "-m", "pytest", "-v", "-W", "ignore", "-p", "no:cacheprovider", str(tmp_path)]
    command += ["--import-mode=importlib", f"--rootdir={tmp_path}", "-k", CONCERNED, *INTERPRETING]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ELSEWHERE)
    assert done.returncode == 0, done.stdout
    assert all(f"{path.name}_{place}/" in done.stdout for place, (path, _) in enumerate(CASES))
