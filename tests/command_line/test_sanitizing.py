"""`pytest --sanitize`, with a tool in the place of NVIDIA's."""

import itertools
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritongen import sanitizing

TOOL = '#!/bin/sh\necho "$@" >> "$(dirname "$0")/calls"\nwhile [ "$1" != "$PYTHON" ]; do shift; done\nexec "$@"\n'
TESTS = """
import os

def test_environment():
    assert os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"

def test_graph_capture():
    raise AssertionError("cannot run without a caching allocator")

def test_fails_where_asked():
    assert "FAIL" not in os.environ
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the plugin with the arguments of a call of pytest on a file of three tests."""
    tool, tests = tmp_path / "compute-sanitizer", tmp_path / "test_own.py"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    tests.write_text(TESTS)
    monkeypatch.setenv("PYTHON", sanitizing.sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(sanitizing, "has_gpu", lambda: True)
    monkeypatch.delenv(sanitizing.WITHIN, raising=False)

    def call(*arguments: str, chosen: tuple[str, ...] = ("memcheck",)) -> int | None:
        words = dict(itertools.pairwise(arguments)).get("-k", "")
        options: dict[str, Any] = {"numprocesses": 1 if "-n" in arguments else None}
        options |= {sanitizing.OPTION: "--sanitize" in arguments, sanitizing.CHOICE: list(chosen), "keyword": words}
        parameters = SimpleNamespace(args=(*arguments, "-q", "-p", "no:cacheprovider", str(tests)))
        config = SimpleNamespace(getoption=options.get, invocation_params=parameters)
        return sanitizing.pytest_cmdline_main(cast(pytest.Config, config))

    return call


def test_the_exit_code_is_that_of_the_tests(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("--sanitizer", "memcheck") == 0
    monkeypatch.setenv("FAIL", "1")
    assert run("--sanitize", "-k", "environment or graph_capture") == 0
    assert run("--sanitize") == 1
    first, *second = (tmp_path / "calls").read_text().splitlines()
    assert "--tool memcheck" in first
    assert "--sanitize" not in first + "".join(second)


def test_workers_are_checked_too(run: Any, tmp_path: Path) -> None:
    assert run("--sanitize", "-n", "1") == 0
    assert run("--sanitize") == 0
    calls = (tmp_path / "calls").read_text().splitlines()
    assert ["--target-processes all" in call for call in calls] == [True, False]


def test_without_the_option_nothing_is_run(run: Any) -> None:
    assert run(chosen=()) is None


def test_the_process_of_a_sanitizer_runs_tests(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTEST_ADDOPTS has the option there, too."""
    monkeypatch.setenv(sanitizing.WITHIN, "memcheck")
    assert run("--sanitize") is None


def test_what_is_missing_is_said(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sanitizing, "TOOLS", Path("/nowhere"))
    with pytest.raises(pytest.UsageError, match="memcheck is not installed"):
        run("--sanitize")
    monkeypatch.setattr(sanitizing, "has_gpu", lambda: False)
    with pytest.raises(pytest.UsageError, match="needs torch, triton and a GPU"):
        run("--sanitize")
