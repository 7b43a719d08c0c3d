"""Settings: where they are found, what is refused in them, and that changing them builds anew."""

import pytest

from tests.harness.projects import FILES, SHARED, Project
from tritongen.diagnostics.report import Rejected
from tritongen.project.build import Built


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


def test_settings_in_two_files(project: Project) -> None:
    """None of them is ignored in silence, as those of pyproject.toml would be beside what `init` writes."""
    project.spec("one")
    pyproject = project.root / "pyproject.toml"
    for other in ('[project]\nname = "tritongen"\n', "tritongen = \n", "tool = 'tritongen'\n"):
        pyproject.write_text(other)
        project.build()
    pyproject.write_text('[project]\nname = "x"\n[tool.tritongen]\nout = "kernels"\n')
    with pytest.raises(
        Rejected, match=r"pyproject\.toml:3:\d+: error TG804: \[tool\.tritongen\] has settings(.|\n)*help: "
    ):
        project.build()
    (project.root / "tritongen.toml").unlink()
    assert "kernels/one/kernels.py" in project.build().written


def test_settings_are_found_from_the_spec(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = project.spec("one")
    (project.root / "elsewhere").mkdir()
    monkeypatch.chdir(project.root / "elsewhere")
    project.build(str(spec))
    monkeypatch.chdir(project.root / "specs")
    assert project.build("one.toml") == Built(1)
    assert "from specs/one.toml in" in (project.out / "one" / "kernels.py").read_text()


def test_settings_are_no_spec(project: Project) -> None:
    """Not where a shell makes their names of *.toml, either."""
    spec = project.spec("one")
    settings = project.root / "tritongen.toml"
    settings.write_text('out = "kernels"\n')
    written = project.build(str(spec), str(settings)).written
    assert {name.split("/")[1] for name in written if not name.startswith("kernels/_")} == {"one"}


def test_line_length(project: Project) -> None:
    project.spec("one", "x" + " * 2" * 16)
    project.build()
    (project.root / "tritongen.toml").write_text("line-length = 40\n")
    assert project.build().written
