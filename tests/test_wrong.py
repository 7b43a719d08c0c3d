"""Wrong specs and what is said of them: tests/wrong/NAME.toml and NAME.txt.

TRITONGEN_UPDATE=1 writes the expected texts anew, to be read in the diff.
"""

import os
from pathlib import Path

import pytest

from tritongen.codes import CODES
from tritongen.diagnostics import Diagnostic, as_text
from tritongen.render import generate_modules, render
from tritongen.settings import Settings, Source

FOLDER = Path(__file__).parent / "wrong"
SPECS = sorted(FOLDER.glob("*.toml"))


def diagnostics_of(path: Path) -> tuple[Diagnostic, ...]:
    source = Source(str(path), path.name, path.name, [], Settings(str(FOLDER)))
    return render(source, "", generate_modules).diagnostics


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_message(path: Path) -> None:
    told = "".join(as_text(one) + "\n" for one in diagnostics_of(path))
    assert told, "this spec is right"
    golden = path.with_suffix(".txt")
    if "TRITONGEN_UPDATE" in os.environ:
        golden.write_text(told, encoding="utf-8")
    assert told == golden.read_text(encoding="utf-8")


def test_no_message_is_left_without_its_spec() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {path.stem for path in SPECS}


def test_every_code_of_the_structure_is_shown() -> None:
    shown = {one.code for path in SPECS for one in diagnostics_of(path)}
    of_specs = {code for code in CODES if code[2] in "15"} - {"TG100", "TG102", "TG109"}
    assert of_specs <= shown
    assert shown <= CODES.keys()
