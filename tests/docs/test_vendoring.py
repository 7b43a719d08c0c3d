"""The guide's ways to take operators into a repository, word for word, each in a project that was empty."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
SECTION = GUIDE[GUIDE.index("## Take it into your repository") : GUIDE.index("## Keep it up to date")]
WAYS = re.findall(r"^\d\. .*?(?=^\d\. |\Z|^\S)", SECTION, re.DOTALL | re.MULTILINE)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "_".join(re.findall(r"\w+", way)[1:4]))
def test_vendoring(way: str, tmp_path: Path) -> None:
    blocks = dict(re.findall(r"^   ```(\w+)\n(.*?)^   ```", way, re.DOTALL | re.MULTILINE))
    (line,) = re.findall(r"Callers write `([^`]+)`", way)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "tritongen"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tritongen "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    project = tmp_path / "project"
    project.mkdir()

    def run(script: str) -> None:
        command = ["bash", "-euc", textwrap.dedent(script)]
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    run("tritongen init; tritongen build")
    if "toml" in blocks:
        (project / "pyproject.toml").write_text(textwrap.dedent(blocks["toml"]))
    run(blocks["sh"])
    if "generated/rms_norm" in blocks["sh"]:
        run("mv generated elsewhere")
    call = f"{line}; import torch; y = rms_norm(torch.ones(3, 5), torch.ones(5)); assert y.shape == (3, 5)"
    run(f"TRITON_INTERPRET=1 {sys.executable} -c '{call}'")


def test_all_ways_are_tried() -> None:
    assert len(WAYS) == len(re.findall(r"^\d\. \*\*", SECTION, re.MULTILINE)) >= 3
