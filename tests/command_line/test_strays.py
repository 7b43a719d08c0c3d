"""What `build` removes: files that this project wrote, where it wrote them. Anything else is reported."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.harness.projects import FILES, SHARED, Project, edit, fake
from tritongen import cli
from tritongen.diagnostics.report import Rejected
from tritongen.project import render
from tritongen.project.build import Built, build, check
from tritongen.spec.types import Spec


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Project, Project]:
    """Two projects that generate into one folder, which is beside them, as the working directory is."""
    monkeypatch.chdir(tmp_path)
    both = Project(tmp_path / "A"), Project(tmp_path / "B")
    for project in both:
        (project.root / "tritongen.toml").write_text('out = "../out"\n')
    return both


def built(*paths: str) -> Built:
    return build(paths, generate=fake)


def tree() -> set[str]:
    return {path.relative_to("out").as_posix() for path in Path("out").rglob("*.*") if path.suffix in (".py", ".md")}


def test_projects_that_share_a_folder(two: tuple[Project, Project]) -> None:
    """Neither takes the other's operators for its own, whose specs are gone."""
    two[0].spec("one")
    two[1].spec("other")
    whole = {*SHARED, *(f"{op}/{name}" for op in ("one", "other") for name in FILES)}
    first = built("A/specs", "B/specs")
    assert {path.removeprefix("out/") for path in first.written} == whole == tree()
    package = Path("out/__init__.py").read_text()
    assert "from .one import one" in package
    assert "from .other import other" in package
    for paths in (("A/specs", "B/specs"), ("A/specs",), ("B/specs",)):
        assert built(*paths) == Built(len(paths))
        assert not check(paths, fake).changes
    (two[0].root / "specs" / "one.toml").unlink()
    assert built("B/specs").removed == ()
    assert built("B/specs").strays[0].path == "out/one"
    assert set(built("A/specs").removed) == {f"out/one/{name}" for name in FILES}
    assert tree() == {*SHARED, *(f"other/{name}" for name in FILES)}


def test_projects_whose_specs_have_one_name(two: tuple[Project, Project]) -> None:
    """They would write one folder in turns."""
    for project in two:
        project.spec("one")
    with pytest.raises(Rejected, match=r"B/specs/one\.toml:2:9: error TG706: A/specs/one\.toml makes 'one' too"):
        built("A/specs", "B/specs")
    built("A/specs")
    with pytest.raises(Rejected, match=r"B/specs/one\.toml:2:9: error TG707: 'one' was made from A/specs/one\.toml"):
        built("B/specs")


@pytest.mark.parametrize("kind", ["folder", "shared"])
def test_a_runtime_of_another_project(two: tuple[Project, Project], kind: str) -> None:
    """Neither the one beside its operators is removed, nor those in them."""
    two[0].spec("one")
    two[1].spec("other")
    other = {"folder": "shared", "shared": "folder"}[kind]
    for project, setting in zip(two, (kind, other), strict=True):
        (project.root / "tritongen.toml").write_text(f'out = "../out"\nruntime = "{setting}"\n')
    built("A/specs", "B/specs")
    private = "one" if kind == "folder" else "other"
    assert {"_runtime/launch.py", f"{private}/_runtime/launch.py"} <= tree()
    for path in ("A/specs", "B/specs"):
        assert built(path) == Built(1)


def test_a_runtime_that_changes_takes_the_other_project_with_it(two: tuple[Project, Project]) -> None:
    two[0].spec("one")
    two[1].spec("other")
    built("A/specs", "B/specs")
    edit(Path("out/_runtime/launch.py"), "# templates ", "# templates 0")
    assert built("A/specs").specs == 2


@pytest.mark.parametrize("name", ["one_backup", "One", "archive"])
def test_a_copy_of_a_folder(project: Project, name: str) -> None:
    """It stays as it is, and is neither exported nor taken for an operator."""
    project.spec("one")
    project.build()
    shutil.copytree(project.out / "one", project.out / name)
    before = project.state()
    for _ in range(2):
        told = project.build()
        assert (told.written, told.removed) == ((), ())
        assert [(one.path, one.code) for one in told.strays] == [(f"generated/{name}", "TG710")]
    assert project.state() == before
    assert project.kinds() == [("stray", name)]
    project.spec("two")
    project.build()
    assert f".{name} " not in (project.out / "__init__.py").read_text()
    (project.root / "specs" / "one.toml").unlink()
    assert set(project.build().removed) == {f"generated/one/{file}" for file in FILES}
    assert (project.out / name / "kernels.py").exists()


def test_a_copy_of_a_file(project: Project) -> None:
    """Beside it, in the package, and in the runtime."""
    project.spec("one")
    project.build()
    kernels, launch = project.out / "one" / "kernels.py", project.out / "_runtime" / "launch.py"
    copies = [project.out / name for name in ("_runtime/launch_old.py", "kernels.py", "one/kernels_old.py")]
    for path, source in zip(copies, (launch, kernels, kernels), strict=True):
        path.write_text(source.read_text())
    found = [f"generated/{path.relative_to(project.out).as_posix()}" for path in copies]
    assert [one.path for one in project.build().strays] == found
    assert all(path.exists() for path in copies)


def test_an_out_that_moved(project: Project) -> None:
    """With its folders: they are written again where they are now."""
    project.spec("one")
    project.build()
    (project.root / "tritongen.toml").write_text('out = "src/kernels"\n')
    (project.root / "src").mkdir()
    project.out.rename(project.root / "src" / "kernels")
    told = project.build()
    assert (told.refused, told.strays, told.removed) == ((), (), ())
    assert len(told.written) == len(FILES)
    assert project.build() == Built(1)


def test_build_and_check_say_so(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def plain(spec: Spec, runtime: str, width: int) -> Mapping[str, str]:
        return fake(spec, runtime, width)

    monkeypatch.setattr(render, "generate_modules", plain)
    project.spec("one")
    cli.run(["build"])
    shutil.copytree(project.out / "one", project.out / "copy")
    capsys.readouterr()
    assert cli.run(["build"]) == cli.CLEAN
    assert "note TG710: generated/copy: generated from specs/one.toml, but not here" in capsys.readouterr().err
    assert cli.run(["check"]) == cli.FINDINGS
    told = capsys.readouterr()
    assert "generated/copy: error TG710" in told.err
    assert "1 file not up to date; see the above" in told.out
