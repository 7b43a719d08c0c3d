"""Every kernel of the gallery compiles for GPUs of two makers, with none at hand.

The interpreter accepts what the compiler refuses, so the emitted tests alone do not show this.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
ROOT = Path(__file__).parent.parent
SPECS = sorted((ROOT / "specs").glob("*.toml"))


@pytest.mark.parametrize("first", range(0, len(SPECS), 6))
def test_the_gallery_compiles_for_all_targets(first: int) -> None:
    pairs = [(spec, ROOT / "generated" / spec.stem) for spec in SPECS[first : first + 6]]
    command = [sys.executable, str(ROOT / "tests" / "compiling.py"), *(str(p) for pair in pairs for p in pair)]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    last = done.stdout.splitlines()[-1]
    compiled, total = last.removeprefix("compiled ").split(" of ")
    assert int(total) >= 4 * len(pairs)
    assert compiled == total, done.stdout[-3000:]
