"""Operators in one file each: what somebody pastes into a repository, imported from a folder that has nothing else."""

from __future__ import annotations

import ast
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.harness.importing import defined_twice, module_at
from tests.harness.oracles import DEVICE, on_device
from tests.harness.processes import python
from tritongen.diagnostics.report import Rejected
from tritongen.emit.format import format_python
from tritongen.emit.scoping import undefined_names
from tritongen.emit.shaking import Library
from tritongen.emit.single import single_file
from tritongen.operator.compile import generate
from tritongen.project.build import Built, build, check
from tritongen.project.runtime import in_one_file
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
LABELS = torch.tensor([1, 4, 2], device=DEVICE)
IDS = torch.tensor([3, 0, 3, 7], device=DEVICE)
Op = Callable[..., torch.Tensor]
# Of each operator a call, torch's, and the shapes of the inputs that have gradients.
CASES: dict[str, tuple[Callable[[Op], Op], Op, Sequence[tuple[int, ...]]]] = {
    "vector_add": (lambda op: op, torch.add, [(130,), (130,)]),
    "softmax": (lambda op: op, lambda x: x.softmax(-1), [(3, 50)]),
    "rms_norm": (lambda op: op, lambda x, w: F.rms_norm(x, (50,), w, 1e-6), [(3, 50), (50,)]),
    "matmul": (lambda op: op, torch.matmul, [(40, 50), (50, 60)]),
    "cross_entropy": (
        lambda op: lambda x: op(x, LABELS),
        lambda x: F.cross_entropy(x, LABELS, reduction="none"),
        [(3, 50)],
    ),
    "attention": (
        lambda op: lambda q, k, v: op(q, k, v, scale=0.2),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2),
        [(1, 2, 40, 32)] * 3,
    ),
    "embedding": (lambda op: lambda x: op(x, IDS), lambda x: F.embedding(IDS, x), [(9, 16)]),
}


@functools.cache
def text_of(name: str) -> str:
    path = next(path for home in ("specs", "examples/specs") if (path := ROOT / home / f"{name}.toml").exists())
    spec = read_spec(path.name, path.read_text(encoding="utf-8"))
    return format_python(in_one_file(name, spec.summary, generate(spec))[f"{name}.py"])


@pytest.fixture
def file(name: str, tmp_path: Path) -> Path:
    path = tmp_path / f"{name}.py"
    path.write_text(text_of(name), encoding="utf-8")
    return path


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str, file: Path) -> None:
    """Alone, and on a GPU compiled by torch.compile, with torch in float64 for an oracle."""
    call, reference, shapes = CASES[name]
    operator = call(on_device(getattr(module_at(file), name)))
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device=DEVICE) for shape in shapes]

    def found(function: Op, dtype: torch.dtype) -> list[torch.Tensor]:
        given = [one.to(dtype).requires_grad_() for one in inputs]
        result = function(*given)
        weights = torch.linspace(-1, 1, result.numel(), dtype=dtype, device=DEVICE).view_as(result)
        return [result, *torch.autograd.grad(result, given, weights)]

    expected = found(reference, torch.float64)
    # The interpreter cannot be traced.
    compiled = [torch.compile(operator, fullgraph=True)] if DEVICE == "cuda" else []
    for function in (operator, *compiled):
        for got, want in zip(found(function, torch.float32), expected, strict=True):
            torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_it_is_source(name: str, file: Path) -> None:
    """It imports torch, triton and the standard library, defines what it reads once, and is as linters want it."""
    text = file.read_text()
    nodes = list(ast.walk(ast.parse(text)))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    assert not [node for node in froms if node.level]
    packages = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    packages |= {node.module or "" for node in froms}
    assert {one.partition(".")[0] for one in packages} <= {"torch", "triton", *sys.stdlib_module_names}
    assert not undefined_names(text)
    assert defined_twice(text) == []
    assert format_python(text) == text
    ignored = "--ignore=RET505,E741,PLR0915,I001"
    command = [sys.executable, "-m", "ruff", "check", "-q", "--config", str(ROOT / "pyproject.toml"), ignored]
    linted = subprocess.run([*command, file], capture_output=True, text=True, check=False)
    assert linted.stdout == ""


RUNTIME = {
    "runtime": "",
    "runtime.a": '''"""Does a."""

import math
from fractions import Fraction as Number

LIMIT = 1


def run(x):
    return math.sqrt(x) + LIMIT


def count(x):
    return int(Number(x))
''',
    "runtime.b": '''"""Does b."""

from decimal import Decimal as Number

from . import a
from .a import run as first

LIMIT = 2


def run(run):
    return first(run) + a.run(Number(run)) + LIMIT
''',
    "op": "",
    "op.op": """
from ..runtime import a, b


def count(n):
    return b.run(n) + a.count(n) + a.LIMIT


def LIMIT(math):
    return math
""",
}


def test_clashes_of_names() -> None:
    """The operator's names stay; those of the runtime get their module's where a name is taken, or bound somewhere."""
    text = single_file(Library(RUNTIME, ("runtime", "op")), ["op.op"], '"""One."""')
    scope: dict[str, object] = {}
    exec(compile(text, "one", "exec"), scope)
    names = {name for name in scope if not name.startswith("__")}
    assert names == {"math", "A_LIMIT", "B_LIMIT", "a_run", "b_run", "a_count", "count", "LIMIT", "Number", "b_Number"}
    count = scope["count"]
    assert callable(count)
    assert count(4) == (3 + 3 + 2) + 4 + 1
    assert "# a: Does a.\n" in text


HIDDEN = {
    "runtime": "",
    "runtime.a": """
import math
from functools import partial

LIMIT: int = 3


def run(x: int) -> int:
    return sum(map(partial(max, 0), range(min(x, LIMIT)))) + math.prod([2, x])
""",
    "op": "",
}


@pytest.mark.parametrize("name", ["sum", "map", "max", "range", "min", "int", "math", "partial"])
def test_an_operator_hides_no_builtin_and_no_import(name: str) -> None:
    """What the runtime reads is not the operator of that name."""
    own = f"from ..runtime import a\n\n\ndef {name}({name}):\n    return a.run({name})\n"
    text = single_file(Library(HIDDEN | {"op.op": own}, ("runtime", "op")), ["op.op"], '"""One."""')
    assert not undefined_names(text)
    scope: dict[str, Any] = {}
    exec(compile(text, "one", "exec"), scope)
    assert scope[name](5) == 0 + 1 + 2 + 2 * 5


FILES = ("{0}.py", "tests/test_{0}.py", "tests/bench_{0}.py")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "specs").mkdir()
    for name in ("relu", "sum"):
        (tmp_path / "specs" / f"{name}.toml").write_text((ROOT / "specs" / f"{name}.toml").read_text())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tritongen.toml").write_text('runtime = "file"\n')
    return tmp_path


def operators(project: Path) -> set[str]:
    """The files of the tree, without those of the harness."""
    out = project / "generated"
    paths = {path.relative_to(out) for path in out.rglob("*.py")}
    return {path.as_posix() for path in paths if not {"_runtime", "_testing"} & {*path.parts}}


def files_of(*ops: str) -> set[str]:
    return {"__init__.py", "tests/__init__.py", *(one.format(op) for op in ops for one in FILES)}


@pytest.mark.sampled(4)
def test_a_project_of_files(project: Path) -> None:
    """A file for each operator, the package that exports them, and a folder of their tests."""
    build()
    assert operators(project) == files_of("relu", "sum")
    assert {path.name for path in (project / "generated").iterdir()} == {"__init__.py", "relu.py", "sum.py", "tests"}
    assert not check().findings
    assert build() == Built(2)
    assert build(("specs/relu.toml",)) == Built(1)
    shutil.rmtree(project / ".tritongen")
    assert build() == Built(2)
    assert not check().findings


def test_files_of_specs_that_are_gone_go(project: Path) -> None:
    build()
    (project / "specs" / "relu.toml").unlink()
    assert len(build().removed) >= len(FILES)
    assert operators(project) == files_of("sum")
    exported = (project / "generated" / "__init__.py").read_text()
    assert '"sum"' in exported
    assert "relu" not in exported
    (project / "tritongen.toml").write_text('runtime = "file"\ntests = false\n')
    build()
    left = {path.relative_to(project / "generated").as_posix() for path in (project / "generated").rglob("*.py")}
    assert left == {"__init__.py", "sum.py"}
    (project / "specs" / "sum.toml").unlink()
    build()
    assert not operators(project)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("runtime", ["shared", "folder"])
def test_another_mode_leaves_nothing_behind(runtime: str, project: Path) -> None:
    settings = project / "tritongen.toml"
    settings.write_text(f'runtime = "{runtime}"\n')
    build()
    folders = {path for path in (project / "generated").rglob("*") if path.is_file()}
    settings.write_text('runtime = "file"\n')
    build()
    assert operators(project) == files_of("relu", "sum")
    assert not check().findings
    settings.write_text(f'runtime = "{runtime}"\n')
    build()
    assert {path for path in (project / "generated").rglob("*") if path.is_file()} == folders
    assert not check().findings


@pytest.mark.sampled(4)
def test_files_of_others_stay(project: Path) -> None:
    build()
    out = project / "generated"
    (out / "mine.py").write_text("X = 1\n")
    (out / "tests" / "test_mine.py").write_text("X = 1\n")
    (out / "copied.py").write_text((out / "relu.py").read_text())
    (out / "sum.py").write_text((out / "sum.py").read_text() + "# edited\n")
    assert [(one.code, Path(one.path).name) for one in check().findings] == [
        ("TG710", "copied.py"),
        ("TG704", "sum.py"),
    ]
    built = build()
    assert [one.code for one in built.refused] == ["TG704"]
    assert build((), True).written == ("generated/sum.py",)
    assert (out / "mine.py").exists()
    assert (out / "tests" / "test_mine.py").exists()
    assert (out / "copied.py").exists()


def test_names_that_no_operator_in_one_file_can_have(project: Path) -> None:
    for own, name in (("relu", "tests"), ("sum", "super")):
        spec = project / "specs" / f"{own}.toml"
        spec.write_text(spec.read_text().replace(f'name = "{own}"', f'name = "{name}"'))
    with pytest.raises(Rejected) as raised:
        build()
    assert [one.message for one in raised.value.diagnostics] == [
        "'tests' is the folder of the tests of operators in one file each",
        "'super' is a name by which Python finds the class of a method, which the operator's file has",
    ]


@pytest.mark.sampled(2)
def test_its_tests_run_against_the_file(project: Path) -> None:
    """In a process of its own, in a project that has nothing else; a bug in the file is found, by what configures it,
    too.
    """
    build()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "TRITON"))}
    environment["PYTHONPATH"] = ""
    chosen = "test_splits or test_loop_configs or test_flat_configs or (test_shapes and float32)"

    def run() -> str:
        command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "generated", "-k", chosen)
        done = python(*command, cwd=project, env=environment)
        return done.stdout.splitlines()[-1]

    right = run()
    assert " passed" in right
    assert "failed" not in right
    file = project / "generated" / "sum.py"
    text = file.read_text()
    assert "choose_splits(n_rows" in text
    file.write_text(text.replace("def choose_splits(", "def choose_splits(*_):\n    return 1 // 0\n\n\ndef unused("))
    assert "passed" in run()  # Tests choose splits in its place, in the file.
    file.write_text(text.replace("tl.sum(", "0 * tl.sum("))
    assert "failed" in run()


@pytest.mark.sampled(4)
def test_importing_the_package_imports_no_operator(project: Path) -> None:
    """Whichever way an operator is imported, its name in the package is the operator's."""
    (project / "tritongen.toml").write_text('runtime = "file"\ntests = false\n')
    build()
    script = """
import sys
import generated
assert "torch" not in sys.modules
from generated.sum import sum as one
import generated.relu
from generated import sum as other
assert one is other is generated.sum, other
assert callable(generated.relu)
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": ""}
    subprocess.run([sys.executable, "-c", script], cwd=project, env=environment, check=True)
