"""Parts of functions that no spec can say as a whole: the Python that calls their operators computes the original.

TRITONGEN_UPDATE=1 writes the expected modules anew, to be read in the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.importing.test_values import printed
from tritongen.cli import run
from tritongen.importing import checking
from tritongen.importing.checking import check_regions
from tritongen.importing.run import partially

HERE = Path(__file__).parent
CASES = {
    "SparseAttention": (f"{HERE}/functions.py:SparseAttention", (), "x=f32[2,8,64] memory=f32[2,12,64]"),
    "highest_so_far": (f"{HERE}/functions.py:highest_so_far", (), "x=f32[2,8] weight=f32[8]"),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_compute_the_original(name: str) -> None:
    spelled, init, example = CASES[name]
    found = partially(spelled, init, example)
    golden = HERE / "parts" / f"{name}.py.txt"
    if "TRITONGEN_UPDATE" in os.environ:
        golden.write_text(found.source, encoding="utf-8")
    assert found.source == golden.read_text(encoding="utf-8")
    rows, is_right = check_regions(found, printed)
    assert is_right, "\n".join(rows)
    assert [row.split()[0] for row in rows[-4:]] == ["lengths", "lengths", "odd", "odd"]


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


def test_parts_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where an operator differs, nothing is written."""
    spelled, _, example = CASES["highest_so_far"]
    out = tmp_path / "highest.toml"
    command = ["import", spelled, "--example", example, "--partial", "--check", "-o", str(out)]
    monkeypatch.setattr(checking, "emitted", lambda result: lambda *tensors: printed(result)(*tensors) + 1)
    assert run(command) == 1
    assert "too large" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(checking, "emitted", printed)
    assert run(command) == 0


def test_nothing_can_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    target = f"{HERE}/refused_functions.py:nonzero"
    assert run(["import", target, "--example", "x=f32[4,8]", "--partial"]) == 1
    assert "no part of it can be said" in capsys.readouterr().err
