"""The generated tree: what is written, kept, refused and pruned."""

from collections.abc import Mapping

import pytest

from tests.harness.projects import FILES, SHARED, Project, edit, fake
from tritongen.diagnostics.report import Rejected
from tritongen.emit.format import format_python
from tritongen.project.build import Built, build
from tritongen.project.tree import HEADER_LINES, body_of, is_edited, read_header, with_header
from tritongen.spec.types import Spec


def test_header() -> None:
    text = with_header("specs/a to b.toml", "ab", "cd", 3, "import os\n\nX = 1\n", "in project ../of it to a/op.py")
    assert format_python(text) == text
    header = read_header(text)
    assert header
    assert (header.source, header.count, header.spec) == ("specs/a to b.toml", 3, "ab")
    assert (header.path, header.root) == ("a/op.py", "../of it")
    assert body_of(text) == "import os\n\nX = 1\n"
    assert text.split("\n")[HEADER_LINES] == "import os"
    assert not is_edited(text, header)
    assert is_edited(text + "\n", header)
    assert read_header("import os\n") is None
    docstring = with_header("a.toml", "ab", "cd", 3, '"""Text."""\n\nX = 1\n', "in project .. to _runtime/math.py")
    assert format_python(docstring) == docstring


def test_build_writes_once(project: Project) -> None:
    project.spec("one")
    project.spec("two", file="deep/second")
    built = project.build()
    assert built.specs == 2
    made = [*SHARED, *(f"{op}/{name}" for op in ("one", "two") for name in FILES)]
    assert list(built.written) == [f"generated/{name}" for name in made]
    kernel = (project.out / "two" / "kernels.py").read_text()
    assert "from specs/deep/second.toml in project ../.. to two/kernels.py: do not edit." in kernel
    assert body_of(kernel) == 'import os\n\nEXPRESSION = "x * 2"\n'
    before = project.state()
    assert project.build() == Built(2)
    assert project.state() == before
    assert project.kinds() == []


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
    assert sorted(path.name for path in project.out.iterdir()) == ["__init__.py", "_runtime", "_testing", "other"]


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
    """Of a version that wrote one more."""
    project.spec("one")

    def more(spec: Spec, runtime: str, width: int) -> Mapping[str, str]:
        return {**fake(spec, runtime, width), "old.py": "OLD = 1\n"}

    build((), generate=more)
    edit(project.root / ".tritongen" / "stamps.json", '"made_by"', '"by"')
    assert project.kinds() == [*(("stale", f"one/{name}") for name in FILES), ("extra", "one/old.py")]
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


def test_an_empty_file_is_nobodys(project: Project) -> None:
    project.spec("one")
    project.build()
    (project.out / "one" / "kernels.py").write_text("")
    assert project.build().written == ("generated/one/kernels.py",)
