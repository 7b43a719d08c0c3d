from pathlib import Path

import pytest

from tests.harness.projects import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project without specs, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)
