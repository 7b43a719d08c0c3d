"""Emitted text defines all that it mentions.

Here the gallery's. `importing.written` asserts the same of what other tests write: test_generated_values.py writes all
of tests/specs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.importing import refused_targets
from tritongen.emit.scoping import undefined_names
from tritongen.operator.compile import generate
from tritongen.project.runtime import RUNTIME_FOLDERS, runtime_files
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.toml"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_emitted_files(path: Path) -> None:
    files = generate(read_spec(path.name, path.read_text(encoding="utf-8")))
    assert not {name: missing for name, text in files.items() if (missing := undefined_names(text))}


@pytest.mark.parametrize("folder", RUNTIME_FOLDERS)
def test_the_runtime(folder: str) -> None:
    texts = {name: text for name, text in runtime_files(folder).items() if name.endswith(".py")}
    assert {name: found for name, text in texts.items() if (found := undefined_names(text))} == {}
    assert {name: found for name, text in texts.items() if (found := refused_targets(text))} == {}


def test_targets_that_triton_refuses() -> None:
    text = "def f(x):\n    (a, b), c = x\n    for d, (e, g) in x:\n        a, b = (a, (b, c))\n    h = i = a\n"
    assert refused_targets(f"@gluon.jit\n{text}") == ["h = i = a", "((a, b), c)", "(d, (e, g))"]
    assert refused_targets(text) == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("match []:\n    case [a, *b]:\n        print(a, b, c)\n    case d:\n        print(d)", ["c"]),
        ("import os.path as at, sys\nfrom x import y as z\nprint(at, os, sys, z)", ["os"]),
        ("def f(a, *b, c=d, **e):\n    return a, b, c, e, f, g\ng = 1", ["d"]),
        ("def f(x):\n    y = x + t\n    return y\ndef g(t):\n    return t", ["t"]),
        ("def f(x):\n    if x:\n        y = 1\n    else:\n        y = 2\n    return y", []),
        ("def f(x):\n    def g(z):\n        return later + z\n    later = g\n    return later", []),
        ("f = lambda x: {k: v + w for k, v in x if k}, [a for a in x]", ["w", "x"]),
        ("class C:\n    n = 1\n    def f(self):\n        return n", ["n"]),
        ("try:\n    x = 1\nexcept E as e:\n    print(e)", ["E"]),
        ("x = y = {**z}\nwith x as (p, q):\n    p(q)", ["z"]),
    ],
)
def test_scopes(text: str, missing: list[str]) -> None:
    assert undefined_names(text) == missing
