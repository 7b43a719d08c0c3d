"""Modules cut down to what is reached: what stays, and that it is source as somebody would write it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tritongen.emit.format import format_python
from tritongen.emit.members import Declared, cut, declared_in
from tritongen.emit.scoping import undefined_names
from tritongen.emit.shaking import EVERYTHING, Library, names_read
from tritongen.project.runtime import RUNTIME_FOLDERS, needs_of, runtime_files, shared_files

ROOT = Path(__file__).parents[2]
BASE = '''\
# mypy: allow-untyped-defs
"""What everything stands on."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional

LIMIT = 8  # a comment of its own
ROUNDS: int = 2
# Two at a time.
PAIRS, HALVES = 2, 4

# Rows


class Row(NamedTuple):
    """A row."""

    length: int


# It is slow, and therefore remembered.
@functools.cache
def once(rows: Sequence[Row]) -> int:
    """The rows, once."""
    total = 0
    for LIMIT in rows:  # not the constant
        total += LIMIT.length
    return total


# Columns


def column(name: str) -> object:
    return Column(name)


class Column:
    rounds = ROUNDS


def relu(x: Any) -> Any:
    return torch.nn.functional.relu(x)


def unread(callbacks: Mapping[str, Callable[[], Any]]) -> float:
    return math.prod(PAIRS for _ in callbacks)
'''
ABOVE = '''\
"""What stands on base."""

from . import base, others
from .base import LIMIT, Row, once

__all__ = ["first", "second"]


def first() -> int:
    from . import late

    return late.run(once([Row(LIMIT)]))


def second() -> object:
    return base.column("a"), others


def base_of(base: int) -> int:
    return base
'''
OTHERS = '''\
"""Others."""

STATE = 1


def change() -> int:
    return STATE
'''
TEXTS = {
    "runtime": '"""A package."""\n',
    "runtime.base": BASE,
    "runtime.above": ABOVE,
    "runtime.others": OTHERS,
    "runtime.late": '"""Late."""\n\n\ndef run(x: int) -> int:\n    return x\n\n\ndef never() -> None:\n    pass\n',
}


def shaken(*names: tuple[str, str]) -> dict[str, str]:
    library = Library(TEXTS, ("runtime",))
    return dict(library.texts(library.reached(names)))


def test_a_definition_and_what_it_needs() -> None:
    found = shaken(("runtime.above", "first"))
    assert sorted(found) == ["runtime", "runtime.above", "runtime.base", "runtime.late"]
    assert found["runtime.above"] == (
        '"""What stands on base."""\n\nfrom .base import LIMIT, Row, once\n\n__all__ = ["first"]\n\n\n'
        "def first() -> int:\n    from . import late\n\n    return late.run(once([Row(LIMIT)]))\n"
    )
    assert found["runtime.late"] == '"""Late."""\n\n\ndef run(x: int) -> int:\n    return x\n'
    assert found["runtime.base"] == (
        '# mypy: allow-untyped-defs\n"""What everything stands on."""\n\n'
        "import functools\nfrom collections.abc import Sequence\nfrom typing import NamedTuple\n\n"
        "LIMIT = 8  # a comment of its own\n\n# Rows\n\n\n"
        'class Row(NamedTuple):\n    """A row."""\n\n    length: int\n\n\n'
        "# It is slow, and therefore remembered.\n@functools.cache\ndef once(rows: Sequence[Row]) -> int:\n"
        '    """The rows, once."""\n    total = 0\n    for LIMIT in rows:  # not the constant\n'
        "        total += LIMIT.length\n    return total\n"
    )


def test_device_functions_have_the_language_beside_them() -> None:
    """Without it, Triton's interpreter refuses to run them."""
    head = "import triton\nimport triton.language as tl\n"
    reading = "@triton.jit\ndef zeros(x):\n    return tl.zeros_like(x)\n"
    plain = "@triton.jit\ndef sign(x):\n    return (x > 0) - (x < 0)\n"
    library = Library({"math": f"{head}\n\n{reading}\n\n{plain}\n\ndef host(x):\n    return x\n"}, ())
    texts = {name: library.texts(library.reached([("math", name)]))["math"] for name in ("zeros", "sign", "host")}
    noted = head.rstrip("\n") + "  # noqa: F401 (Triton's interpreter looks for it)\n"
    assert texts == {
        "zeros": f"{head}\n\n{reading}",
        "sign": f"{noted}\n\n{plain}",
        "host": "def host(x):\n    return x\n",
    }


def test_a_definition_below_and_a_module_as_a_value() -> None:
    """What is read of a module that is passed on nobody knows, so that all of it is there."""
    found = shaken(("runtime.above", "second"))
    assert "class Column" in found["runtime.base"]
    assert "ROUNDS: int = 2" in found["runtime.base"]
    assert "LIMIT" not in found["runtime.base"]
    assert found["runtime.others"] == OTHERS


def test_a_parameter_that_is_called_as_a_module() -> None:
    assert sorted(shaken(("runtime.above", "base_of"))) == ["runtime", "runtime.above"]


def test_a_dotted_import_and_a_tuple_of_constants() -> None:
    found = shaken(("runtime.base", "relu"), ("runtime.base", "unread"))["runtime.base"]
    assert "import math\nfrom collections.abc import Callable, Mapping\nfrom typing import Any\n" in found
    torches = "import torch\nimport torch.nn.functional\n"
    assert f"\n{torches}\n# Two at a time.\nPAIRS, HALVES = 2, 4\n\n\n# Columns\n" in found
    assert "import torch\n" not in shaken(("runtime.base", "unread"))["runtime.base"]


def test_all_of_it_is_as_it_was() -> None:
    assert shaken(*((name, EVERYTHING) for name in TEXTS)) == TEXTS


def test_unknown_names_reach_nothing() -> None:
    assert shaken(("runtime.base", "nobody"), ("nowhere", "x")) == {}


def test_what_emitted_text_reads() -> None:
    text = """
from .. import _testing as testing
from .._runtime import launch, tensors as own
from .._runtime.reduce import nan_max
from . import kernels

def f(x):
    launch.run(kernels.k, own)
    return testing.Input(nan_max(x)).launch
"""
    assert names_read(text, {"_runtime": "runtime", "_testing": "testing"}) == {
        ("runtime.launch", "run"),
        ("runtime.tensors", "*"),
        ("runtime.reduce", "nan_max"),
        ("testing", "Input"),
    }
    assert names_read("from a.b._runtime import launch\nlaunch.run()", {"_runtime": "runtime"}) == {
        ("runtime.launch", "run")
    }


def test_the_runtime_as_a_whole_is_templates() -> None:
    for folder, source in zip(RUNTIME_FOLDERS, ("runtime", "testing"), strict=True):
        for path in (ROOT / "templates" / source).glob("*.py"):
            text = runtime_files(folder)[path.name].split("\n\n", 1)[1]
            assert text.replace("from .._runtime import", "from ..runtime import") == path.read_text(), path


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["vector_add", "cross_entropy", "matmul", "attention"])
def test_an_operators_runtime_is_source(name: str, tmp_path: Path) -> None:
    """It defines what it mentions, is as black has it, and has no import too many."""
    folder = ROOT / "generated" / name
    files = shared_files(needs_of(path.read_text() for path in folder.glob("*.py")))
    assert "launch.py" in files["_runtime"]
    for home, texts in files.items():
        for name, text in texts.items():
            if name.endswith(".py"):
                assert not undefined_names(text), name
                assert format_python(text) == text, name
            (tmp_path / home).mkdir(exist_ok=True)
            (tmp_path / home / name).write_text(text)
    command = [sys.executable, "-m", "ruff", "check", "-q", "--config", str(ROOT / "pyproject.toml")]
    command += ["--ignore=RET505,C901,PLR0915", str(tmp_path)]
    linted = subprocess.run(command, capture_output=True, text=True, check=False)
    assert linted.stdout == ""


HARNESS = '''\
"""A harness."""


class Harness:
    """Its base."""

    op: object
    shapes: tuple = ()
    # Of a backward.
    grads: tuple = ()

    # Cases

    @classmethod
    def few(cls) -> tuple:
        return cls.shapes[:1]

    # Others

    @classmethod
    def unread(cls) -> tuple:
        return cls.grads


class Tests(Harness):
    """What operators inherit."""

    @each("shape", lambda cls: cls.shapes)
    def test_shapes(self, shape):
        self.few()

    @each("grad", lambda cls: cls.grads[:1])
    def test_grads(self, grad):
        self.unread()

    @only(lambda cls: cls.op and cls.tables_of(heuristics.Loop, False))
    def test_loops(self):
        pass

    @each("row", lambda cls: cls.few() or rows_of(cls, heuristics.Row))
    def test_rows(self, row):
        pass


class Other:
    def unread(self):
        pass
'''


def cut_for(declared: set[str], kinds: set[str]) -> str:
    needs = [("runtime.heuristics", kind) for kind in kinds]
    found = {"testing.harness": HARNESS}
    for _ in range(2):  # As often as something goes, of which others are left unread.
        found = dict(cut(found, Declared.of(needs, declared)))
    return found["testing.harness"]


def test_tests_without_cases_and_what_they_alone_need_are_cut() -> None:
    found = cut_for({"shapes"}, {"Row"})
    body = found[found.index("class Harness") : found.index("class Other")]
    assert body == (
        'class Harness:\n    """Its base."""\n\n    shapes: tuple = ()\n\n    # Cases\n\n'
        "    @classmethod\n    def few(cls) -> tuple:\n        return cls.shapes[:1]\n\n\n"
        'class Tests(Harness):\n    """What operators inherit."""\n\n'
        '    @each("shape", lambda cls: cls.shapes)\n    def test_shapes(self, shape):\n        self.few()\n\n'
        '    @each("row", lambda cls: cls.few() or rows_of(cls, heuristics.Row))\n    def test_rows(self, row):\n'
        "        pass\n\n\n"
    )
    assert "def unread" in found  # of a class that is no harness


def test_nothing_is_cut_that_may_have_cases() -> None:
    """All is declared; and without kinds of tables, as an operator in one file has them, any may be there."""
    assert cut_for({"shapes", "grads"}, {"Row", "Loop"}) == HARNESS
    assert "test_loops" in cut_for({"shapes"}, set())


def test_what_an_emitted_test_declares() -> None:
    text = "class TestX(testing.Tests):\n    op = staticmethod(x)\n    sizes: ClassVar = {1: 2}\n"
    assert declared_in(text) == {"op", "sizes"}
