"""The generated tree: what is written, kept, refused and pruned, and what survives a crash."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tritongen.diagnostics.report import Mistake, Mistakes, Rejected
from tritongen.emit.format import format_python
from tritongen.project import build as building
from tritongen.project import runtime as sharing
from tritongen.project.build import Built, build, check
from tritongen.project.runtime import RUNTIME_FOLDERS, package_files, runtime_files
from tritongen.project.tree import HEADER_LINES, TEMPORARY, body_of, is_edited, read_header, with_header
from tritongen.spec.types import Spec

ROOT = Path(__file__).parent.parent
SPEC = """\
[op]
name = "{name}"
[inputs]
x = "float[N]"
[compute]
y = "{expression}"
[outputs]
y = "x"
"""
FILES = ["__init__.py", "configs.py", "kernels.py"]
RUNTIME = sorted(f"{folder}/{name}" for folder in RUNTIME_FOLDERS for name in runtime_files(folder))
SHARED = ["__init__.py", *RUNTIME]  # what a tree has besides its operators


def fake(spec: Spec, runtime: str) -> Mapping[str, str]:
    """A generator whose text follows the spec, as the true one's does."""
    expression = spec.compute[0].expression
    if expression == "wrong":
        raise Mistakes(Mistake("TG201", "this is wrong", ("compute", "y"), 0, 5))
    return {
        "__init__.py": f'"""{spec.name}"""\n',
        "kernels.py": f"import os\nEXPRESSION = '{expression}'\n",
        "configs.py": "CONFIGS = ( 1,2 )\n",
    }


def old(spec: Spec, runtime: str) -> Mapping[str, str]:
    return {name: text + "OLD = 1\n" for name, text in fake(spec, runtime).items()}


def importing(spec: Spec, runtime: str) -> Mapping[str, str]:
    return {**fake(spec, runtime), "kernels.py": f"from {runtime}_runtime import math\n"}


class Project:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.out = root / "generated"
        root.mkdir(exist_ok=True)
        (root / "tritongen.toml").write_text("")

    def spec(self, name: str, expression: str = "x * 2", file: str = "") -> Path:
        path = self.root / "specs" / f"{file or name}.toml"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(SPEC.format(name=name, expression=expression))
        return path

    def build(self, *paths: str, force: bool = False) -> Built:
        return build(paths, force, fake)

    def kinds(self, *paths: str) -> list[tuple[str, str]]:
        drift = check(paths, fake)
        assert len(drift.changes) == len(drift.findings)
        out = self.out
        return [(one.kind, os.path.relpath(one.path, out)) for one in drift.changes]

    def state(self) -> dict[str, tuple[bytes, int]]:
        files = (path for path in self.out.rglob("*") if path.is_file())
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_header() -> None:
    text = with_header("specs/a b.toml", "ab", "cd", 3, "import os\n\nX = 1\n")
    assert format_python(text) == text
    header = read_header(text)
    assert header
    assert (header.source, header.count, header.spec) == ("specs/a b.toml", 3, "ab")
    assert body_of(text) == "import os\n\nX = 1\n"
    assert text.split("\n")[HEADER_LINES] == "import os"
    assert not is_edited(text, header)
    assert is_edited(text + "\n", header)
    assert read_header("import os\n") is None
    docstring = with_header("a.toml", "ab", "cd", 3, '"""Text."""\n\nX = 1\n')
    assert format_python(docstring) == docstring


def test_build_writes_once(project: Project) -> None:
    project.spec("one")
    project.spec("two", file="deep/second")
    built = project.build()
    assert built.specs == 2
    made = [*SHARED, *(f"{op}/{name}" for op in ("one", "two") for name in FILES)]
    assert list(built.written) == [f"generated/{name}" for name in made]
    kernel = (project.out / "two" / "kernels.py").read_text()
    assert "from specs/deep/second.toml: math in" in kernel
    assert body_of(kernel) == 'import os\n\nEXPRESSION = "x * 2"\n'
    before = project.state()
    assert project.build() == Built(2)
    assert project.state() == before
    assert project.kinds() == []


@pytest.mark.parametrize("in_checkout", [True, False])
def test_build_without_stamps(project: Project, in_checkout: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers stand in for lost stamps, unless the program itself is being worked on."""
    project.spec("one")
    project.build()
    before = project.state()
    (project.root / ".tritongen" / "stamps.json").unlink()
    monkeypatch.setattr(building, "in_checkout", lambda: in_checkout)
    rendered = []

    def counted(spec: Spec, runtime: str) -> Mapping[str, str]:
        rendered.append(spec.name)
        return fake(spec, runtime)

    assert build((), generate=counted) == Built(1)
    assert len(rendered) == in_checkout
    assert project.state() == before
    (project.root / ".tritongen" / "stamps.json").unlink()
    (project.out / "one" / "configs.py").unlink()
    assert project.build().written == ("generated/one/configs.py",)


def test_spoilt_stamps(project: Project) -> None:
    project.spec("one")
    project.build()
    for text in ("", "[]", "{", '{"made_by": 1, "specs": []}', "\x00"):
        (project.root / ".tritongen" / "stamps.json").write_text(text)
        assert project.build() == Built(1)


@pytest.mark.parametrize("entry", [5, [], [[], 5, {}], [[], "one", []], [[], ["one"], {}], [[], "a\0b", {}], {}])
def test_stamps_of_somebody_else(project: Project, entry: object) -> None:
    """As long as they are JSON, they may say anything."""
    project.spec("one")
    project.build()
    path = project.root / ".tritongen" / "stamps.json"
    stored = json.loads(path.read_text())
    for specs in ({"specs/one.toml": entry}, entry):
        path.write_text(json.dumps(stored | {"specs": specs}))
        assert project.build() == Built(1)
    path.write_text('{"specs": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert project.build() == Built(1)


def test_stale(project: Project) -> None:
    project.spec("one")
    project.spec("two")
    project.build()
    before = project.state()
    project.spec("one", "x * 3")
    assert project.kinds() == [("stale", f"one/{name}") for name in FILES]
    assert project.build().written == tuple(f"generated/one/{name}" for name in FILES)
    assert {path: state for path, state in project.state().items() if "two" in path} == {
        path: state for path, state in before.items() if "two" in path
    }


def test_an_edit_of_the_same_size_shows(project: Project) -> None:
    path = project.spec("one", "x * 2")
    project.build()
    edit(path, "x * 2", "x * 3")
    assert project.build().written
    edit(project.out / "one" / "kernels.py", "x * 3", "x * 4")
    assert project.build().refused


def test_missing(project: Project) -> None:
    project.spec("one")
    project.build()
    (project.out / "one" / "kernels.py").unlink()
    assert project.kinds() == [("missing", "one/kernels.py")]
    assert project.build().written == ("generated/one/kernels.py",)


def test_edited_by_hand(project: Project) -> None:
    project.spec("one")
    project.build()
    kernel = project.out / "one" / "kernels.py"
    edit(kernel, "x * 2", "x + x")
    project.spec("one", "x * 5")
    edited = kernel.read_text()
    assert ("edited", "one/kernels.py") in project.kinds()
    built = project.build()
    assert [one.code for one in built.refused] == ["TG704"]
    assert not built.written
    assert kernel.read_text() == edited
    assert project.build(force=True).written
    assert project.kinds() == []


def test_an_edit_that_became_true_is_kept(project: Project) -> None:
    project.spec("one")
    project.build()
    edit(project.out / "one" / "kernels.py", "x * 2", "x * 3")
    project.spec("one", "x * 3")
    assert not project.build().refused
    assert project.kinds() == []


def test_not_ours(project: Project) -> None:
    project.spec("one")
    (project.out / "one").mkdir(parents=True)
    kernel = project.out / "one" / "kernels.py"
    kernel.write_text("MINE = 1\n")
    assert project.kinds()[len(FILES) - 1] == ("foreign", "one/kernels.py")
    assert [one.code for one in project.build().refused] == ["TG705"]
    assert kernel.read_text() == "MINE = 1\n"
    assert project.build(force=True).written


def test_other_files_are_left_alone(project: Project) -> None:
    project.spec("one")
    project.build()
    for name in ("notes.md", "extra.py", "__pycache__/kernels.pyc"):
        path = project.out / "one" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (project.out / "mine").mkdir()
    (project.out / "mine" / "kernels.py").write_text("mine")
    assert project.kinds() == []
    assert project.build() == Built(1)
    (project.root / "specs" / "one.toml").unlink()
    assert len(project.build().removed) == len(FILES) + len(SHARED)
    assert sorted(path.name for path in project.out.iterdir()) == ["mine", "one"]
    assert sorted(path.name for path in (project.out / "one").iterdir()) == [
        "__pycache__",
        "extra.py",
        "notes.md",
    ]


def test_orphans(project: Project) -> None:
    gone = project.spec("one")
    project.spec("two")
    project.build()
    gone.unlink()
    assert project.kinds() == [*(("extra", f"one/{name}") for name in FILES), ("stale", "__init__.py")]
    assert project.kinds("specs/two.toml") == []
    assert project.build("specs/two.toml").removed == ()
    assert len(project.build("specs").removed) == 3
    assert not (project.out / "one").exists()
    assert project.build() == Built(1)


def test_renamed(project: Project) -> None:
    project.spec("one", file="spec")
    project.build()
    project.spec("other", file="spec")
    built = project.build("specs/spec.toml")
    assert built.written == ("generated/__init__.py", *(f"generated/other/{name}" for name in FILES))
    assert built.removed == tuple(f"generated/one/{name}" for name in FILES)
    assert sorted(path.name for path in project.out.iterdir()) == ["__init__.py", "_runtime", "other"]


def test_an_edited_orphan_is_kept(project: Project) -> None:
    gone = project.spec("one")
    project.spec("two")
    project.build()
    gone.unlink()
    edit(project.out / "one" / "kernels.py", "x * 2", "x + x")
    assert [one.code for one in project.build().refused] == ["TG704"]
    assert (project.out / "one" / "configs.py").exists()
    assert len(project.build(force=True).removed) == 3


def test_an_extra_file_of_ours(project: Project) -> None:
    project.spec("one")
    project.build()
    extra = project.out / "one" / "old.py"
    extra.write_text((project.out / "one" / "kernels.py").read_text())
    assert project.kinds() == [("extra", "one/old.py")]
    assert project.build().removed == ("generated/one/old.py",)


def test_all_mistakes_and_nothing_written(project: Project) -> None:
    project.spec("one")
    project.spec("two", "wrong")
    project.spec("three", "wrong")
    (project.root / "specs" / "four.toml").write_bytes(b"\xff")
    (project.root / "specs" / "five.toml").write_text("[op")
    with pytest.raises(Rejected) as raised:
        project.build()
    found = [(one.path, one.line, one.code) for one in raised.value.diagnostics]
    assert found == [
        ("specs/five.toml", 1, "TG101"),
        ("specs/four.toml", 0, "TG102"),
        ("specs/three.toml", 6, "TG201"),
        ("specs/two.toml", 6, "TG201"),
    ]
    assert project.state() == {}


def test_two_specs_for_one_folder(project: Project) -> None:
    project.spec("one", file="a")
    project.spec("ONE", file="b")
    with pytest.raises(Rejected, match=r"b\.toml:2:9: error TG706"):
        project.build()
    (project.root / "specs" / "b.toml").unlink()
    project.build()
    project.spec("one", file="b")
    with pytest.raises(Rejected, match="TG707"):
        project.build("specs/b.toml")
    with pytest.raises(Rejected, match="TG706"):
        project.build()


def test_a_folder_that_differs_in_case(project: Project) -> None:
    """The files of both would be in one folder where a file system does not tell them apart."""
    project.spec("one")
    project.build()
    project.spec("ONE", file="b")
    with pytest.raises(Rejected, match=r"b\.toml:2:9: error TG707: 'one' was made from specs/one\.toml"):
        project.build("specs/b.toml")
    assert not (project.out / "ONE").exists()


def test_nothing_is_written_through_a_link(project: Project) -> None:
    project.spec("one")
    elsewhere = project.root / "elsewhere"
    elsewhere.mkdir()
    project.out.mkdir()
    (project.out / "one").symlink_to(elsewhere)
    for force in (False, True):
        with pytest.raises(Rejected, match=r"one\.toml:2:9: error TG708: generated/one is a symbolic link"):
            project.build(force=force)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("folder", RUNTIME_FOLDERS)
@pytest.mark.parametrize("runtime", ["shared", "folder"])
def test_no_runtime_is_written_through_a_link(project: Project, runtime: str, folder: str) -> None:
    """Nor is what it leads to swept, or removed where the runtime moves elsewhere."""
    (project.root / "tritongen.toml").write_text(f'runtime = "{runtime}"\n')
    project.spec("one")
    elsewhere = project.root / "elsewhere"
    elsewhere.mkdir()
    kept = {"math.py": runtime_files()["math.py"], ".tritongen-1.tmp": ""}
    for name, text in kept.items():
        (elsewhere / name).write_text(text)
    home = "generated/one" if runtime == "folder" else "generated"
    link = project.root / home / folder
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    says = f"{home}/{folder}: error TG708: this is a symbolic link, so its files would be another folder's"
    for force in (False, True):
        with pytest.raises(Rejected, match=re.escape(says)):
            project.build(force=force)
    assert not (project.out / "one" / "kernels.py").exists()
    (project.root / "tritongen.toml").write_text(f'runtime = "{"shared" if runtime == "folder" else "folder"}"\n')
    if folder == "_runtime":
        project.build()
    assert {path.name: path.read_text() for path in elsewhere.iterdir()} == kept


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_the_place_of_a_file(project: Project) -> None:
    """It is somebody else's, and not waited for."""
    project.spec("one")
    project.build()
    pipe = project.out / "one" / "kernels.py"
    pipe.unlink()
    os.mkfifo(pipe)
    (project.root / ".tritongen" / "stamps.json").unlink()
    os.mkfifo(project.root / ".tritongen" / "stamps.json")
    assert project.kinds() == [("foreign", "one/kernels.py")]
    assert [one.code for one in project.build().refused] == ["TG705"]
    assert project.build(force=True).written == ("generated/one/kernels.py",)
    assert pipe.is_file()


def test_errors_name_the_file(project: Project) -> None:
    """As those of a full disk would; here it is a limit on the size of files."""
    project.spec("one")
    program = f"""
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))
        from tritongen import cli
        from tritongen.project import render
        render.generate_modules = lambda spec, runtime: {{"kernels.py": "X = 1"}}
        exit(cli.run({["build"]}) * 10 + cli.run({["new", "other"]}))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 22, done.stderr
    assert done.stderr.splitlines() == [
        f"tritongen: {project.out}/__init__.py: File too large",
        "tritongen: specs/other.toml: File too large",
    ]


def test_a_spec_that_moved(project: Project) -> None:
    project.spec("one").rename(project.root / "specs" / "moved.toml")
    project.build()
    assert "specs/moved.toml" in (project.out / "one" / "kernels.py").read_text()


@pytest.mark.parametrize("name", ["two\nlines", "coding=utf7", "no-coding: latin-1"])
def test_names_that_headers_cannot_hold(project: Project, name: str) -> None:
    """Python would run the second line, and read the file in the encoding."""
    project.spec("scale", file=name)
    with pytest.raises(Rejected) as rejected:
        project.build()
    assert [one.code for one in rejected.value.diagnostics] == ["TG109"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_spec(project: Project) -> None:
    """Nor is it opened, which would wait for someone to write."""
    project.spec("one")
    os.mkfifo(project.root / "specs" / "pipe.toml")
    assert project.build().specs == 1


def test_wrong_settings(project: Project) -> None:
    project.spec("one")
    (project.root / "tritongen.toml").write_text('uot = "x"\nline-length = "88"\n')
    with pytest.raises(Rejected, match=r"tritongen\.toml:1:1: error TG802(.|\n)*2:16: error TG802"):
        project.build()
    (project.root / "tritongen.toml").write_text("out =")
    with pytest.raises(Rejected, match=r"tritongen\.toml:1:6: error TG801.*\n +1 \| out =\n"):
        project.build()
    (project.root / "tritongen.toml").unlink()
    settings = '[tool.tritongen]\nout = "kernels"\nspecs = ["specs/one.toml"]\n'
    (project.root / "pyproject.toml").write_text(settings)
    assert project.build().written == tuple(f"kernels/{name}" for name in [*SHARED, *(f"one/{n}" for n in FILES)])
    with pytest.raises(Rejected, match="TG803"):
        project.build("specs/two.toml")


def test_settings_are_found_from_the_spec(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = project.spec("one")
    (project.root / "elsewhere").mkdir()
    monkeypatch.chdir(project.root / "elsewhere")
    project.build(str(spec))
    monkeypatch.chdir(project.root / "specs")
    assert project.build("one.toml") == Built(1)
    assert "from specs/one.toml:" in (project.out / "one" / "kernels.py").read_text()


def test_line_length(project: Project) -> None:
    project.spec("one", "x" + " * 2" * 16)
    project.build()
    (project.root / "tritongen.toml").write_text("line-length = 40\n")
    assert project.build().written


def test_windows_line_ends_are_no_edit(project: Project) -> None:
    project.spec("one")
    project.build()
    for path in [*project.out.rglob("*.py"), *project.root.rglob("specs/*.toml")]:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert project.kinds() == []
    assert project.build() == Built(1)


def test_an_empty_file_is_nobodys(project: Project) -> None:
    project.spec("one")
    project.build()
    (project.out / "one" / "kernels.py").write_text("")
    assert project.build().written == ("generated/one/kernels.py",)


def test_left_over_temporaries(project: Project) -> None:
    project.spec("one")
    project.build()
    left = project.out / "one" / f"{TEMPORARY}1-ab.tmp"
    left.write_text("half")
    project.build()
    assert not left.exists()
    assert project.build() == Built(1)


def script(project: Project, body: str, seed: str = "random") -> subprocess.Popen[str]:
    """Another process that builds, with a generator of its own."""
    text = "import os, sys, time\nfrom tritongen.project import build, tree\n" + textwrap.dedent(body)
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}
    return subprocess.Popen(
        [sys.executable, "-c", "from test_tree import fake\n" + text],
        cwd=project.root,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_killed_while_writing(project: Project) -> None:
    """Every file is the old or the new one, and a second build completes."""
    names = [f"op{number}" for number in range(6)]
    for name in names:
        project.spec(name, "x * 2")
    project.build()
    old = {path.read_text() for path in project.out.rglob("*.py")}
    for name in names:
        project.spec(name, "x * 3")
    killed = script(
        project,
        """
        writes, replace = 0, os.replace
        def replaced(*paths):
            global writes
            writes += 1
            if writes == 8:
                os.kill(os.getpid(), 9)
            replace(*paths)
        os.replace = replaced
        build.build((), generate=fake)
        """,
    )
    assert killed.wait(60) == -9
    assert list(project.out.rglob("*.tmp"))
    found = {path.read_text() for path in project.out.rglob("*.py")}
    built = project.build()
    new = {path.read_text() for path in project.out.rglob("*.py")}
    assert found <= old | new
    assert found & old
    assert found & new
    assert built.written
    assert not list(project.out.rglob("*.tmp"))
    assert project.kinds() == []


def test_killed_while_rendering(project: Project) -> None:
    """Workers do not outlive their parent: they would hold its lock."""
    for name in ("one", "two", "three"):
        project.spec(name)
    killed = script(
        project,
        """
        def slow(spec, runtime):
            print(os.getpid(), flush=True)
            time.sleep(30)
            return fake(spec, runtime)
        build.build((), generate=slow)
        """,
    )
    assert killed.stdout
    killed.stdout.readline()
    killed.kill()
    killed.wait(60)
    started = time.monotonic()
    assert project.build().specs == 3
    assert time.monotonic() - started < 20


def test_two_builds_at_once(project: Project) -> None:
    names = [f"op{number}" for number in range(8)]
    for name in names:
        project.spec(name)
    both = [script(project, "print(build.build((), generate=fake))") for _ in range(2)]
    told = [process.communicate(timeout=60)[0] for process in both]
    assert all(process.returncode == 0 for process in both)
    assert sorted("op7/kernels.py" in one for one in told) == [False, True]
    assert project.kinds() == []
    assert not list(project.out.rglob("*.tmp"))


def test_bytes_do_not_depend_on_where_and_how(project: Project) -> None:
    trees = []
    for seed, names in (("0", "abc"), ("1", "cab")):
        other = Project(project.root / seed)
        for name in names:
            other.spec(name)
        assert script(other, "build.build((), generate=fake)", seed).wait(60) == 0
        trees.append({path.relative_to(other.out): path.read_bytes() for path in other.out.rglob("*.py")})
    assert trees[0] == trees[1]
    assert len(trees[0]) == 3 * len(FILES) + len(SHARED)


def test_what_operators_share(project: Project) -> None:
    """It is as the templates have it, ours by its header, and mended as other files are."""
    project.spec("one")
    project.build()
    sources = ROOT / "templates" / "runtime"
    assert sorted(f"_runtime/{path.relative_to(sources).as_posix()}" for path in sources.rglob("*.py")) == RUNTIME
    for name in RUNTIME:
        text = (project.out / name).read_text()
        assert body_of(text) == (sources / name.removeprefix("_runtime/")).read_text()
        header = read_header(text)
        assert header is not None
        assert header.source == "its runtime"
    (project.out / "_runtime" / "launch.py").unlink()
    old = project.out / "_runtime" / "old.py"
    old.write_text(runtime_files()["math.py"])
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
    (project.out / "_runtime" / "old.py").write_text(runtime_files()["math.py"])
    old = with_header("its runtime", "0", "0", 1, "OLD = 1\n")
    (project.out / "_runtime" / "launch.py").write_text(old)
    (project.out / "_runtime" / "tma.py").write_text(old + "MINE = 1\n")
    (project.out / "_runtime" / "gemm.py").write_text("MINE = 1\n")
    (project.out / "__init__.py").write_text(with_header("its operators", "0", "0", 1, "OLD = 1\n"))
    said = {Path(one.path).name: (one.code, one.message) for one in check((), fake).findings}
    assert said == {
        "__init__.py": ("TG701", "stale: it should export the operators in another way now"),
        "gemm.py": ("TG705", "not generated, but where tritongen puts a part of its runtime"),
        "launch.py": ("TG701", "stale: this version of tritongen writes another runtime"),
        "math.py": ("TG702", "missing: operators import this part of the runtime"),
        "old.py": ("TG703", "extra: no operator imports this part of a runtime any more"),
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
    texts = {name: with_header("its runtime", "0", "0", 1, f'"""Old {name}."""\n') for name in runtime_files()}
    with monkeypatch.context() as patched:
        patched.setattr(sharing, "runtime_files", lambda _: texts)
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
        files = sorted(path.relative_to(project.out).as_posix() for path in project.out.rglob("*.py"))
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
    edit(project.out / "__init__.py", "import sys", "import sys as sys")
    project.spec("two")
    assert [(one.path, one.code) for one in project.build().refused] == [("generated/__init__.py", "TG704")]


def test_operators_are_imported_when_asked_for(project: Project) -> None:
    """The package itself imports neither torch nor triton, and gives functions whatever else was imported before."""
    for name in ("softmax", "all", "add_bias"):
        shutil.copy(ROOT / "specs" / f"{name}.toml", project.spec(name))
    build()
    program = """
        import sys
        import generated

        assert not {"torch", "triton"} & set(sys.modules)
        assert {"softmax", "all", "add_bias"} == set(generated.__all__)
        from generated.softmax import softmax as inner
        import generated.add_bias
        from generated import softmax, all, add_bias
        assert softmax is inner is generated.softmax
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
