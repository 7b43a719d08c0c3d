"""Emitted text defines all that it mentions, before it does.

Here the gallery's. `importing.written` asserts the same of what other tests write: test_generated_values.py writes all
of tests/specs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

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
    assert {name: missing for name, text in files.items() if (missing := undefined_names(text))} == {}


@pytest.mark.parametrize("folder", RUNTIME_FOLDERS)
def test_the_runtime(folder: str) -> None:
    missing = {name: undefined_names(text) for name, text in runtime_files(folder).items() if name.endswith(".py")}
    assert missing == {name: {} for name in missing}


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("match []:\n    case [a, *b]:\n        print(a, b, c)\n    case d:\n        print(d)", ["line 3: c"]),
        ("import os.path as at, sys\nfrom x import y as z\nprint(at, sys, z)", []),
        ("def f(a, *b, c=d, **e):\n    return a, b, c, e, f, g\ng = 1", ["line 1: d"]),
        ("def f(x):\n    y = x + t\n    t = 2 * x\n    return y + t", ["line 2: t"]),
        ("def f(x):\n    for n in range(x):\n        total += n\n    return total", ["line 3: total"]),
        ("def f(x):\n    for n in range(n):\n        x += 1\n    return x", ["line 2: n"]),
        ("def f(x):\n    if x:\n        y = 1\n    else:\n        y = 2\n    return y", []),
        ("def f(x):\n    def g(z):\n        return later + z\n    later = g\n    return later", []),
        ("f = lambda x: {k: v + w for k, v in x if k}, [a for a in x]", ["line 1: x", "line 1: w"]),
        ("try:\n    x = 1\nexcept E as e:\n    print(e)\nprint(e)", ["line 3: E", "line 5: e"]),
        ("x = y = {**z}\nwith x as (p, q):\n    p(q)", ["line 1: z"]),
    ],
)
def test_scopes(text: str, missing: list[str]) -> None:
    assert list(undefined_names(text).values()) == missing
