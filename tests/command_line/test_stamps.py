"""Stamps of what was built: a build trusts them only as far as the files agree."""

import json
import os
from collections.abc import Mapping

import pytest

from tests.harness.projects import Project, edit, fake
from tritongen.project import build as building
from tritongen.project.build import Built, build
from tritongen.spec.types import Spec


@pytest.mark.parametrize("in_checkout", [True, False])
def test_build_without_stamps(project: Project, in_checkout: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers stand in for lost stamps, unless the program itself is being worked on."""
    project.spec("one")
    project.build()
    before = project.state()
    (project.root / ".tritongen" / "stamps.json").unlink()
    monkeypatch.setattr(building, "in_checkout", lambda: in_checkout)
    rendered = []

    def counted(spec: Spec, runtime: str, width: int) -> Mapping[str, str]:
        rendered.append(spec.name)
        return fake(spec, runtime, width)

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


def test_an_edit_of_the_same_size_shows(project: Project) -> None:
    path = project.spec("one", "x * 2")
    project.build()
    edit(path, "x * 2", "x * 3")
    assert project.build().written
    edit(project.out / "one" / "kernels.py", "x * 3", "x * 4")
    assert project.build().refused


def test_an_edit_that_keeps_size_and_time_shows(project: Project) -> None:
    """As editors and tools do that put back the time."""
    path = project.spec("one", "x * 2")
    project.build()
    for file, old, new in ((path, "x * 2", "x * 3"), (project.out / "one" / "kernels.py", "x * 3", "x * 4")):
        before = file.stat()
        edit(file, old, new)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        after = file.stat()
        assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
        built = project.build()
        assert bool(built.written) == (file == path)
        assert bool(built.refused) == (file != path)


def test_windows_line_ends_are_no_edit(project: Project) -> None:
    project.spec("one")
    project.build()
    for path in [*project.out.rglob("*.py"), *project.root.rglob("specs/*.toml")]:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert project.kinds() == []
    assert project.build() == Built(1)
