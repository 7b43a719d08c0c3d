"""What cannot be imported is said with the line of the user's source, all at once, and nothing is written.

TRITONGEN_UPDATE=1 writes the expected texts anew, to be read in the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tritongen.cli import run

HERE = Path(__file__).parent
MATRIX = "x=f32[4,8]"
CASES = {
    "branches_on_values": MATRIX,
    "shape_from_values": MATRIX,
    "nonzero": MATRIX,
    "writes_to_its_input": MATRIX,
    "writes_to_a_part": MATRIX,
    "item": MATRIX,
    "along_a_scalar": MATRIX,
    "complex_numbers": MATRIX,
    "several": "x=f32[2,4,8] weight=f32[4,4,1]",
    "an_argument_that_is_missing": "weight=f32[4,4,1]",
    "HookedBackward": MATRIX,
    "lengths_that_do_not_fit": f"{MATRIX} y=f32[4,5]",
    "Hooked": MATRIX,
    "NeedsArguments": MATRIX,
    "custom_operator": MATRIX,
    "length_of_values": MATRIX,
    "length_of_what_is_not_read": f"{MATRIX} y=f32[4,8]",
    "a_number_among_results": MATRIX,
    "no_such_name": MATRIX,
    "item_without_example": "",
    "bad_dtype": "x=f33[4,8]",
    "bad_length": "x=f32[4,N]",
    "complex_argument": "x=complex64[4,8]",
    "not_a_tensor": "x=f32(4,8)",
    "two_lengths": "x=f32[N=4,N=8]",
    "given_twice": f"{MATRIX} {MATRIX}",
    "no_such_part": MATRIX,
    "writes_to_out": f"{MATRIX} out=f32[4,8]",
    "writes_to_several": f"{MATRIX} y=f32[4,8]",
    "custom_operator_without_shapes": MATRIX,
    "numpy_in_it": MATRIX,
    "of_nothing": MATRIX,
    "Normalised": "x=f32[4,8,5]",
    "HookedInside": MATRIX,
    "bits_of_floats": MATRIX,
}
TARGETS = {
    "an_argument_that_is_missing": "several",
    "no_such_name": "nonzeros",
    "item_without_example": "item",
    "bad_dtype": "item",
    "bad_length": "item",
    "complex_argument": "item",
    "not_a_tensor": "item",
    "two_lengths": "item",
    "given_twice": "item",
    "no_such_part": "Hooked.inner",
}


@pytest.mark.parametrize("name", CASES)
def test_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(HERE)
    out = tmp_path / "spec.toml"
    target = f"refused_functions.py:{TARGETS.get(name, name)}"
    assert run(["import", target, "--example", CASES[name], "-o", str(out)]) == 1
    said = capsys.readouterr().err
    golden = HERE / "refused" / f"{name}.txt"
    if "TRITONGEN_UPDATE" in os.environ:
        golden.write_text(said, encoding="utf-8")
    assert said == golden.read_text(encoding="utf-8")
    assert not out.exists()


def test_no_text_is_left_without_its_case() -> None:
    assert {path.stem for path in (HERE / "refused").glob("*.txt")} == set(CASES)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nothing_such\n", "model.py:1:1"),
        ("def f(x:\n", "not Python"),
        ("1 / 0\n", "division by zero"),
        ("import sys\nsys.exit(3)\n", "model.py:2:1: error TG002: importing it raises SystemExit: 3"),
    ],
)
def test_a_file_that_raises(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(source)
    assert run(["import", "model.py:f", "--example", MATRIX]) == 1
    assert said in capsys.readouterr().err
    assert run(["import", "other.py:f", "--example", MATRIX]) == 1
    assert "there is no file other.py" in capsys.readouterr().err
