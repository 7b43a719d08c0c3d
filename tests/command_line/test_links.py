"""Links and pipes where files are expected: nothing is written through them or read from them."""

import os
import re

import pytest

from tests.harness.projects import Project
from tritongen.diagnostics.report import Rejected
from tritongen.project.runtime import RUNTIME_FOLDERS, runtime_files


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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_spec(project: Project) -> None:
    """Nor is it opened, which would wait for someone to write."""
    project.spec("one")
    os.mkfifo(project.root / "specs" / "pipe.toml")
    assert project.build().specs == 1


def test_stamps_are_not_written_through_a_link(project: Project) -> None:
    """A link to the project itself would get a .gitignore that ignores everything."""
    project.spec("one")
    (project.root / ".tritongen").symlink_to(".")
    project.build()
    assert not (project.root / ".gitignore").exists()
    assert not (project.root / "stamps.json").exists()
    assert project.build().written == ()
