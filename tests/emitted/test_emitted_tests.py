"""The tests that are emitted with a kernel pass.

Those of the specs in tests/emitted/specs, whose oracles are their own math, and of operators of tests/specs that are
registered with torch, contract computed values, which are rounded to the dtype of the matmul, or have few rows past
which an axis streams.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from importing import INTERPRETING, written

from tritongen.operator.compile import forward_of
from tritongen.spec.read import read_spec
from tritongen.testing.oracle import torch_lines

ROOT = Path(__file__).parents[2]
STRESS = ROOT / "tests" / "specs"
SPECS = sorted(
    (
        *(Path(__file__).parent / "specs").glob("*.toml"),
        *STRESS.glob("*registered*.toml"),
        STRESS / "attention_decode.toml",
        STRESS / "gradient_shared_optional.toml",
        STRESS / "gradient_whole_norm.toml",
        STRESS / "product_float64_mixed.toml",
        STRESS / "product_prologue.toml",
    )
)


def test_emitted_tests_pass(tmp_path: Path) -> None:
    for path in SPECS:
        written(read_spec(path.name, path.read_text(encoding="utf-8")), tmp_path)
    # Configurations are tried on the gallery.
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-k", "not configs", str(tmp_path)]
    command += INTERPRETING
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize(
    ("reference", "called"),
    [
        ("x + torch.arange(x.shape[0])", "x + torch.arange(x.shape[0], device=x.device)"),
        ("x * torch.ones(x.shape).tril(-1)", "x * torch.ones(x.shape, device=x.device).tril(-1)"),
        ("x + torch.arange(3, device=x.device)", "x + torch.arange(3, device=x.device)"),
        ("x.new_zeros(3) + torch.sum(x)", "x.new_zeros(3) + torch.sum(x)"),
    ],
)
def test_a_reference_makes_tensors_where_its_inputs_are(reference: str, called: str) -> None:
    text = (ROOT / "specs" / "relu.toml").read_text(encoding="utf-8")
    spec = replace(read_spec("relu.toml", text), reference=reference)
    assert torch_lines(spec, forward_of(spec).op) == (f"return {called}",)
