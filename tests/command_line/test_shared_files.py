"""What the operators of a tree share: the runtime, and the package that exports them."""

import ast
import builtins
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.harness.projects import FILES, RUNTIME, SHARED, Project, edit, fake, importing, old
from tritongen.emit.format import format_python
from tritongen.project import runtime as sharing
from tritongen.project.build import Built, build, check
from tritongen.project.runtime import RUNTIME_FOLDERS, package_files, runtime_files
from tritongen.project.tree import body_of, read_header, with_shared_header
from tritongen.spec.types import Spec

ROOT = Path(__file__).parents[2]


def test_what_operators_share(project: Project) -> None:
    """It has the lines that templates have, is ours by its header, and is mended as other files are."""
    project.spec("one")
    project.build()
    for name in (one for one in RUNTIME if one.endswith(".py")):
        text = (project.out / name).read_text()
        source = (ROOT / "templates" / name[1:]).read_text().splitlines()
        lines = body_of(text).replace("from .._runtime", "from ..runtime").splitlines()
        assert not {line for line in lines if not line.startswith(("from", "__all__"))} - {*source}
        header = read_header(text)
        assert header is not None
        assert header.source == "its runtime"
    (project.out / "_runtime" / "launch.py").unlink()
    old = project.out / "_runtime" / "old.py"
    old.write_text(runtime_files()["math.py"].replace("_runtime/math.py", "_runtime/old.py"))
    (project.out / "_runtime" / "mine.py").write_text("MINE = 1\n")
    assert project.kinds() == [("missing", "_runtime/launch.py"), ("extra", "_runtime/old.py")]
    built = project.build()
    assert (built.written, built.removed) == (("generated/_runtime/launch.py",), ("generated/_runtime/old.py",))
    assert project.kinds() == []
    assert (project.out / "_runtime" / "mine.py").exists()


def test_an_edited_runtime_is_kept(project: Project) -> None:
    path = project.spec("one")
    project.build()
    launch = project.out / "_runtime" / "launch.py"
    edit(launch, "import functools", "import functools as functools")
    edited = launch.read_text()
    edit(path, "x * 2", "x * 3")
    assert ("edited", "_runtime/launch.py") in project.kinds()
    built = project.build()
    assert [(one.path, one.code) for one in built.refused] == [("generated/_runtime/launch.py", "TG704")]
    assert launch.read_text() == edited
    assert "x * 2" in (project.out / "one" / "kernels.py").read_text()
    assert "generated/_runtime/launch.py" in project.build(force=True).written
    assert project.kinds() == []


def test_what_is_said_of_shared_files(project: Project) -> None:
    """No spec makes them, so that the words are others than of a spec's files."""
    project.spec("one")
    project.build()
    (project.out / "_runtime" / "math.py").unlink()
    (project.out / "_runtime" / "old.py").write_text(
        runtime_files()["math.py"].replace("_runtime/math.py", "_runtime/old.py")
    )
    old = with_shared_header("its runtime", "0", "OLD = 1\n", "_runtime/launch.py")
    (project.out / "_runtime" / "launch.py").write_text(old)
    (project.out / "_runtime" / "tma.py").write_text(old + "MINE = 1\n")
    (project.out / "_runtime" / "gemm.py").write_text("MINE = 1\n")
    (project.out / "__init__.py").write_text(with_shared_header("its operators", "0", "OLD = 1\n", "__init__.py"))
    said = {Path(one.path).name: (one.code, one.message) for one in check((), fake).findings}
    assert said == {
        "__init__.py": ("TG701", "out of date: it should export other operators"),
        "gemm.py": ("TG705", "not generated, but where tritongen puts a module of its runtime"),
        "launch.py": ("TG701", "out of date: the operators use other definitions of it"),
        "math.py": ("TG702", "missing: operators import this module of the runtime"),
        "old.py": ("TG703", "extra: no operator imports this module of the runtime any more"),
        "tma.py": ("TG704", "edited by hand since tritongen wrote it"),
    }


def test_somebody_elses_runtime(project: Project) -> None:
    project.spec("one")
    (project.out / "_runtime").mkdir(parents=True)
    (project.out / "_runtime" / "math.py").write_text("MINE = 1\n")
    assert [(one.path, one.code) for one in project.build().refused] == [("generated/_runtime/math.py", "TG705")]
    assert not (project.out / "one").exists()


def of_another_version(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds the tree as a version would whose runtime and operators say something else."""

    def texts(folder: str) -> Mapping[str, str]:
        old = {name: (f'"""Old {name}."""\n', f"{folder}/{name}") for name in runtime_files()}
        return {name: with_shared_header("its runtime", "0", text, place) for name, (text, place) in old.items()}

    every = {folder: texts(folder) for folder in RUNTIME_FOLDERS}
    with monkeypatch.context() as patched:
        patched.setattr(sharing, "shared_files", lambda _: every)
        build((), generate=old)
    stamps = project.root / ".tritongen" / "stamps.json"
    stamps.write_text(json.dumps(json.loads(stamps.read_text()) | {"made_by": "another version"}))


@pytest.mark.parametrize("runtime", ["shared", "folder"])
def test_one_tree_is_of_one_version(project: Project, runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime is not replaced under operators that were made for the one before it."""
    (project.root / "tritongen.toml").write_text(f'runtime = "{runtime}"\n')
    for name in ("one", "two", "three"):
        project.spec(name)
    of_another_version(project, monkeypatch)
    assert "OLD" in (project.out / "two" / "kernels.py").read_text()
    built = project.build("specs/one.toml")
    assert built.specs == 3
    assert {f"generated/{op}/kernels.py" for op in ("one", "two", "three")} <= set(built.written)
    assert project.kinds() == []
    assert project.build("specs/one.toml") == Built(1)


def test_a_version_that_makes_the_same_runtime_leaves_others_alone(project: Project) -> None:
    project.spec("one")
    two = project.spec("two")
    project.build()
    edit(two, "x * 2", "x * 3")
    project.spec("one", "x * 4")
    built = project.build("specs/one.toml")
    assert (built.specs, built.written) == (1, tuple(f"generated/one/{name}" for name in FILES))


def test_a_runtime_in_each_folder(project: Project) -> None:
    """Settings say which, and what was made by the others is not left behind, even if only one spec is named."""

    def found() -> tuple[list[str], set[str]]:
        files = sorted(path.relative_to(project.out).as_posix() for path in project.out.rglob("*") if path.is_file())
        lines = {path.read_text().splitlines()[-1] for path in project.out.rglob("*/kernels.py")}
        return files, lines

    project.spec("one")
    project.spec("two")
    apart = sorted(["__init__.py", *(f"{op}/{name}" for op in ("one", "two") for name in [*FILES, *RUNTIME])])
    beside = sorted([*SHARED, *(f"{op}/{name}" for op in ("one", "two") for name in FILES)])
    for runtime, files, line in [
        ("folder", apart, "from ._runtime import math"),
        ("shared", beside, "from .._runtime import math"),
        ("folder", apart, "from ._runtime import math"),
    ]:
        (project.root / "tritongen.toml").write_text(f'runtime = "{runtime}"\n')
        paths = ("specs/one.toml",) if project.out.exists() else ()
        build(paths, generate=importing)
        assert found() == (files, {line})
        assert not check((), importing).findings
        assert build((), generate=importing) == Built(2)
    assert not (project.out / "_runtime").exists()


def test_the_package_exports_the_operators_that_there_are(project: Project) -> None:
    def exported() -> list[str]:
        scope: dict[str, object] = {}
        text = (project.out / "__init__.py").read_text()
        exec(text[text.index("__all__") : text.index("]") + 1], scope)
        names = scope["__all__"]
        assert isinstance(names, list)
        assert [f"    from .{name} import {name} as {name}" in text for name in names] == [True] * len(names)
        return names

    one, two = project.spec("one"), project.spec("two")
    project.build("specs/two.toml")
    assert exported() == ["two"]
    project.build("specs/one.toml")
    assert exported() == ["one", "two"]
    two.unlink()
    project.build("specs/one.toml")  # Nobody asked after the other one.
    assert exported() == ["one", "two"]
    project.build()
    assert exported() == ["one"]
    one.unlink()
    project.build()
    assert not list(project.out.iterdir())


def test_a_package_is_formatted() -> None:
    """Names of any length; black is not asked, for it would be in the way of a build with nothing to do."""
    names = [*("x" * length for length in (1, 21, 22, 23, 60, 100)), "all", "one"]
    (text,) = package_files(names).values()
    assert format_python(text) == text


@pytest.mark.parametrize("of_files", [False, True])
def test_a_package_reads_no_operator_for_a_builtin(of_files: bool) -> None:
    """An operator `globals` or `getattr` was called by the package that exports it, at the import or afterwards."""
    usual = ast.parse(*package_files(["one"], of_files).values())
    called = {ast.unparse(node.func) for node in ast.walk(usual) if isinstance(node, ast.Call)}
    names = [name for name in called if hasattr(builtins, name)]
    assert "getattr" in names
    for name in names:
        (text,) = package_files([name], of_files).values()
        read = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id == name]
        assert read == []
        assert f"_builtins.{name}(" in text
        assert format_python(text) == text


def test_a_package_is_sorted() -> None:
    """As isort and ruff do it: x2 before x10, imports whatever the case, in `__all__` constants and classes first."""
    imported = "A a A1 DEVICE float8 float8_a float64 float_8 Relu relu x02 x2 x10 z".split()
    (text,) = package_files(sorted(imported)).values()
    tree = ast.parse(text)
    relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    assert [node.module for node in relative] == imported
    exported = "A1 DEVICE A Relu a float8 float8_a float64 float_8 relu x02 x2 x10 z".split()
    assert [node.value for node in ast.walk(tree) if isinstance(node, ast.List) for node in node.elts] == exported


def test_a_package_of_the_users_own(project: Project) -> None:
    project.spec("one")
    project.out.mkdir()
    own = project.out / "__init__.py"
    own.write_text('"""Mine."""\n')
    built = project.build()
    assert not built.refused
    assert "generated/__init__.py" not in built.written
    assert project.kinds() == []
    (project.root / "specs" / "one.toml").unlink()
    project.build()
    assert own.read_text() == '"""Mine."""\n'
    assert [path.name for path in project.out.iterdir()] == ["__init__.py"]


def test_an_edited_package_is_kept(project: Project) -> None:
    project.spec("one")
    project.build()
    edit(project.out / "__init__.py", "import importlib as _importlib", "import importlib")
    project.spec("two")
    assert [(one.path, one.code) for one in project.build().refused] == [("generated/__init__.py", "TG704")]


@pytest.mark.sampled(4)
def test_operators_are_imported_when_asked_for(project: Project) -> None:
    """The package itself imports neither torch nor triton, whose interpreter tests choose before that.

    It gives functions whatever else was imported before.
    """
    for name in ("softmax", "all", "add_bias"):
        shutil.copy(ROOT / "specs" / f"{name}.toml", project.spec(name))
    relu = (ROOT / "specs" / "relu.toml").read_text()
    project.spec("sys").write_text(relu.replace('name = "relu"', 'name = "sys"'))  # As the package imports.
    build()
    program = """
        import sys
        import generated

        assert not {"torch", "triton"} & set(sys.modules)
        assert {"softmax", "all", "add_bias", "sys"} == set(generated.__all__)
        from generated.softmax import softmax as inner
        import generated.add_bias
        from generated import softmax, all, add_bias
        assert softmax is inner is generated.softmax
        assert generated.sys.__module__ == "generated.sys.op"
        assert [one.__name__ for one in (softmax, all, add_bias)] == ["softmax", "all", "add_bias"]
        assert all.__module__ == "generated.all.op"
        from generated.softmax import kernels
        assert kernels.softmax_kernel
        try:
            generated.nothing
        except AttributeError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(project.root)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert (done.stderr, done.stdout) == ("", "module 'generated' has no attribute 'nothing'\n")


MORE = {"two": "math.fmod_int", "three": "math.power_int, launch.first_of"}


def using(spec: Spec, runtime: str, width: int) -> Mapping[str, str]:
    """A generator of operators that read different parts of the runtime."""
    uses = f"\nfrom {runtime}_runtime import launch, math\n\nUSED = ({MORE.get(spec.name, 'launch.run')},)\n"
    return {"__init__.py": f'"""{spec.name}"""\n', "kernels.py": uses, "configs.py": "X = 1\n"}


def shared_state(project: Project) -> dict[str, str]:
    folders = [project.out / name for name in ("_runtime", "_testing")]
    return {str(path.relative_to(project.out)): path.read_text() for home in folders for path in home.glob("*")}


@pytest.mark.parametrize("stamps", [True, False])
def test_a_runtime_is_of_the_set_of_operators(project: Project, stamps: bool) -> None:
    """Whatever the order and the subsets they were built in, and whether the last build is known."""

    def built(*names: str) -> Built:
        if not stamps:
            shutil.rmtree(project.root / ".tritongen", ignore_errors=True)
        return build(tuple(f"specs/{name}.toml" for name in names), generate=using)

    for name in ("one", "two", "three"):
        project.spec(name)
    build((), generate=using)
    at_once = shared_state(project)
    shutil.rmtree(project.out)
    assert not built("three").shared
    alone = shared_state(project)
    assert "def fmod_int" not in alone["_runtime/math.py"]
    assert built("two").shared == ("generated/_runtime: + math.fmod_int",)
    news = built("one").shared
    assert shared_state(project) == at_once
    assert "+ launch.run" in news[0]
    assert not check((), using).findings
    assert not check(("specs/two.toml",), using).findings
    for name in ("one", "two"):
        (project.root / "specs" / f"{name}.toml").unlink()
    assert "- math.fmod_int" in built().shared[0]
    assert shared_state(project) == alone


def test_check_does_not_trust_what_a_build_noted(project: Project) -> None:
    project.spec("one")
    project.spec("two")
    build((), generate=using)
    stamps = project.root / ".tritongen" / "stamps.json"
    noted = json.loads(stamps.read_text())
    noted["specs"]["specs/two.toml"][3] = []
    stamps.write_text(json.dumps(noted))
    assert not check(("specs/one.toml",), using).findings


def test_a_page_says_what_is_in_a_runtime(project: Project) -> None:
    """It is ours as modules are, and mentions those that are there."""
    project.spec("one")
    project.build()
    page = project.out / "_runtime" / "README.md"
    there = {path.name for path in page.parent.glob("*.py")} | {"op.py", "configs.py", "__init__.py"}
    assert "launch.py" in page.read_text()
    assert set(re.findall(r"\w+\.py", page.read_text())) <= there
    edit(page, "1. ", "1) ")
    assert project.kinds() == [("edited", "_runtime/README.md")]
    page.unlink()
    assert project.build().written == ("generated/_runtime/README.md",)


def test_without_tests(project: Project) -> None:
    """No tests, no benchmarks, and nothing that only they use; and all of it again without the setting."""
    shutil.copy(ROOT / "specs" / "relu.toml", project.spec("relu"))
    build()
    before = {path.relative_to(project.out).as_posix() for path in project.out.rglob("*") if path.is_file()}
    (project.root / "tritongen.toml").write_text("tests = false\n")
    build()
    after = {path.relative_to(project.out).as_posix() for path in project.out.rglob("*") if path.is_file()}
    tests = {"relu/test_relu.py", "relu/bench_relu.py"}
    assert tests < before - after
    assert {name.partition("/")[0] for name in before - after - tests} <= {"_testing", "_runtime"}
    assert not (project.out / "_testing").exists()
    assert not check().findings
    (project.root / "tritongen.toml").write_text("")
    build()
    assert {path.relative_to(project.out).as_posix() for path in project.out.rglob("*") if path.is_file()} == before
