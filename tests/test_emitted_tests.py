"""The tests that are emitted with a kernel pass.

Of tests/emitted/*.toml, whose oracles are their own math, and of the operators of tests/specs that are registered or
multiply what they compute, which is rounded to the dtype that is multiplied.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from importing import written

from tritongen.operator.compile import forward_of
from tritongen.spec.read import read_spec
from tritongen.testing.oracle import torch_lines

HERE = Path(__file__).parent
SPECS = sorted(
    (
        *(HERE / "emitted").glob("*.toml"),
        *(HERE / "specs").glob("*registered*.toml"),
        HERE / "specs" / "gradient_options.toml",
        HERE / "specs" / "gradient_shared_optional.toml",
        HERE / "specs" / "gradient_whole_norm.toml",
        HERE / "specs" / "product_float64_mixed.toml",
        HERE / "specs" / "product_prologue.toml",
    )
)


def test_emitted_tests_pass(tmp_path: Path) -> None:
    for path in SPECS:
        written(read_spec(path.name, path.read_text(encoding="utf-8")), tmp_path)
    # Configurations are tried on the gallery.
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-k", "not configs", str(tmp_path)]
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
    text = (HERE.parent / "specs" / "relu.toml").read_text(encoding="utf-8")
    spec = replace(read_spec("relu.toml", text), reference=reference)
    assert torch_lines(spec, forward_of(spec).op) == (f"return {called}",)
