"""Parts of functions that no spec can say as a whole: the Python that calls their operators computes the original.

TRITONGEN_UPDATE=1 writes the expected modules anew, to be read in the diff.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from tests.importing.test_values import printed
from tritongen.cli import run
from tritongen.importing.run import partially
from tritongen.importing.targets import load, parse_example
from tritongen.importing.tracing import call, trace

HERE = Path(__file__).parent
CASES = {
    "SparseAttention": (f"{HERE}/functions.py:SparseAttention", (), "x=f32[2,8,64] memory=f32[2,12,64]"),
    "highest_so_far": (f"{HERE}/functions.py:highest_so_far", (), "x=f32[2,8] weight=f32[8]"),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_compute_the_original(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spelled, init, example = CASES[name]
    found = partially(spelled, init, example)
    golden = HERE / "parts" / f"{name}.py.txt"
    if "TRITONGEN_UPDATE" in os.environ:
        golden.write_text(found.source, encoding="utf-8")
    assert found.source == golden.read_text(encoding="utf-8")
    generated = ModuleType("generated")
    for region in found.regions:
        setattr(generated, region.imported.name, printed(SimpleNamespace(imported=region.imported)))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "generated", generated)
    scope: dict[str, object] = {}
    exec(found.source, scope)
    target = load(spelled, init, example)
    traced = trace(target, parse_example(example))
    random = torch.Generator().manual_seed(0)
    tensors = []
    for one in traced.arguments:
        shape = [length.number for length in one.shape]
        floats = one.tensor.dtype.is_floating_point
        tensors.append(torch.rand(shape, generator=random) if floats else torch.randint(0, 3, shape, generator=random))
    result = scope[target.name](*tensors)  # type: ignore[operator]
    torch.testing.assert_close(result, call(target, traced, tuple(tensors), traced.scalars), rtol=1e-4, atol=1e-4)


def test_specs_and_python_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spelled, _, example = CASES["SparseAttention"]
    out = tmp_path / "specs" / "attention.toml"
    assert run(["import", spelled, "--example", example, "--partial", "-o", str(out)]) == 0
    assert sorted(path.name for path in out.parent.iterdir()) == [
        "attention.py",
        "attention_1.toml",
        "attention_2.toml",
    ]
    assert "left out: the language has no `median`" in capsys.readouterr().err
    assert run(["import", spelled, "--example", example, "--partial", "-o", str(out)]) == 2


def test_nothing_can_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    target = f"{HERE}/refused_functions.py:nonzero"
    assert run(["import", target, "--example", "x=f32[4,8]", "--partial"]) == 1
    assert "no part of it can be said" in capsys.readouterr().err
