"""Wrong specs and what is said of them: tests/diagnostics/wrong/NAME.toml and NAME.txt.

TRITONGEN_UPDATE=1 writes the expected texts anew, to be read in the diff.
"""

import ast
import operator
import os
import re
import string
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import torch

from tritongen.diagnostics.codes import CODES
from tritongen.diagnostics.report import Diagnostic, as_text
from tritongen.lang.torch_names import CALLED, METHODS
from tritongen.project.render import generate_modules, render
from tritongen.project.settings import Settings, Source

FOLDER = Path(__file__).parent / "wrong"
SPECS = sorted(FOLDER.glob("*.toml"))
PACKAGE = Path(__file__).parents[2] / "tritongen"
GALLERY = sorted(PACKAGE.parent.glob("specs/*.toml"))
WORDS = (
    "x y N M eps exp sum where take index size inf 1e400 -1 ( ) , ** & << == not if lambda ... := 'a' .T [0] é".split()
)


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


def test_every_code_is_shown_and_explained() -> None:
    shown = {one.code for path in SPECS for one in diagnostics_of(path)}
    # A file that cannot be opened or decoded, or has a strange name, is no text of a spec; two are warnings; and
    # one is of `grad`.
    elsewhere = {"TG100", "TG102", "TG109", "TG504", "TG505", "TG610"}
    assert {code for code in CODES if code[2] in "123456"} - elsewhere <= shown
    sources = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    said = {code for source in sources for code in re.findall(r"TG\d{3}", source)}
    assert shown | said <= CODES.keys()


def test_references_call_what_torch_has() -> None:
    for home, names in CALLED.items():
        module = operator.attrgetter(home)(SimpleNamespace(torch=torch))
        assert not [name for name in names if not callable(getattr(module, name, None))]
    assert not [name for name in METHODS if not callable(getattr(torch.Tensor, name, None))]


def test_a_misspelt_spec_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with a spec, it is told with its place; what is let through is Python."""
    monkeypatch.setattr("tritongen.project.render.format_python", lambda module, _: ast.unparse(ast.parse(module)))
    monkeypatch.chdir(tmp_path)
    random = Random(0)
    path = Path("spec.toml")
    rejected = 0
    for _ in range(300):
        path.write_text(misspelt(random.choice(GALLERY).read_text(encoding="utf-8"), random), encoding="utf-8")
        told = diagnostics_of(path)
        rejected += bool(told)
        assert all(one.line and one.code in CODES and as_text(one) for one in told)
    assert rejected > 200


def misspelt(text: str, random: Random) -> str:
    """A spec with some letters or words of its expressions lost or replaced."""
    expressions = [
        found.span(1)
        for table in re.finditer(r"\[(compute|inputs|outputs|reference)\]\n(.+\n)+", text)
        for found in re.compile(r'= "(.*)"').finditer(text, *table.span())
    ]
    start, end = random.choice(expressions)
    if random.random() < 0.5:
        at = random.randrange(start, end)
        return text[:at] + random.choice(["", *string.punctuation, "x", "N", "0"]) + text[at + random.randrange(3) :]
    words = [found.span() for found in re.compile(r"\w+|[^\w\s]").finditer(text, start, end)]
    (first, last), (begin, stop) = random.choice(words), random.choice(words)
    return text[:first] + random.choice([text[begin:stop], *WORDS]) + text[last:]
