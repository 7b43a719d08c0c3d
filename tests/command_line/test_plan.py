"""`tritongen plan`: its text and JSON, and what it says of mistakes."""

import json
from pathlib import Path

import pytest

from tests.harness.projects import Project
from tritongen import cli

SPEC = """\
[op]
name = "scaled"
[inputs]
x = "float[M, C=8]"
s = "float[M]"
[compute]
y = "x * s"
[outputs]
y = "x"
[grad]
wrt = ["x"]
"""


@pytest.fixture
def spec(project: Project) -> Path:
    path = project.root / "scaled.toml"
    path.write_text(SPEC)
    return path


def run(*arguments: str) -> int:
    return cli.run(["plan", *arguments])


def test_text(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("scaled.toml", "--sizes", "M=1_000") == 2
    capsys.readouterr()
    assert run("scaled.toml", "--sizes", "M=1000") == 0
    told = capsys.readouterr().out
    assert told.startswith(
        "scaled\nM = 1,000, C = 8; times at the roofline of an H100 SXM, at least 2 us a step\n\nforward\n"
    )
    assert "-> [1 elementwise] -> y\nbackward\n  dy, s ->" in told
    assert "\nforward         1 step, 34 kB, " in told
    assert told.splitlines()[-1].startswith("kept alive      s: 2 kB")
    assert run("scaled.toml", "--sizes", "M=1000") == 0
    assert capsys.readouterr().out == told
    assert run("scaled.toml", "--sizes", "M=1000", "--device", "a100") == 0
    assert "A100" in capsys.readouterr().out
    assert run("scaled.toml", "--sizes", "M=100000000", "--device", "1TB/s,100TFLOP/s") == 0
    told = capsys.readouterr().out
    assert "; times at the roofline of 1TB/s,100TFLOP/s, at least 2 us a step\n" in told
    assert "\nforward         1 step, 3.4 GB, 3.4 ms\n" in told


def test_lengths_are_as_the_help_says(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("scaled.toml") == 0
    length = capsys.readouterr().out.partition("M = ")[2].partition(", C")[0]
    assert run("--help") == 0
    assert f"or {length}." in " ".join(capsys.readouterr().out.split())


def test_json(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = spec.with_name("other.toml")
    other.write_text(SPEC.replace("scaled", "other"))
    assert run(".", "--sizes", "M=500,C=8", "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["diagnostics"] == []
    assert [one["name"] for one in told["plans"]] == ["other", "scaled"]
    (forward,) = told["plans"][1]["forward"]
    assert forward["function"] == "_scaled_forward"
    assert [(one["name"], one["axes"], one["bytes"]) for one in forward["reads"]] == [
        ("x", ["M", "C"], 8000),
        ("s", ["M"], 1000),
    ]
    assert forward["bytes"] == 17_000
    assert forward["seconds"] == 2e-6
    assert {one["name"] for one in forward["kernels"]} == {"scaled_strided_kernel"}


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("N=4", "there is no axis 'N'; there are M, C"),
        ("C=4", "C is 8 by its spec"),
        ("M", "'M' is no AXIS=LENGTH"),
        ("M=4,,", "'' is no AXIS=LENGTH"),
        ("M=0", "M cannot be '0'; a length is a number from 1 to 1,099,511,627,776"),
        ("M=-3", "M cannot be '-3'"),
        ("M=many", "M cannot be 'many'"),
        ("M=3,M=4", "M is given twice"),
    ],
)
def test_wrong_sizes(spec: Path, sizes: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("scaled.toml", "--sizes", sizes) == 2
    told = capsys.readouterr()
    assert f"Invalid value for --sizes: {said}" in told.err
    assert not told.out


def test_wrong_specs(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    assert run("scaled.toml", "--device", "h10") == 2
    assert "there is no device 'h10'; did you mean 'h100'?" in capsys.readouterr().err
    assert run("scaled.toml", "--device", "1TB/s") == 2
    assert "Invalid value for --device: '1TB/s' lacks the rate of its matmuls" in capsys.readouterr().err
    assert run("nowhere.toml") == 2
    assert "nowhere.toml: error TG803: there is no nowhere.toml" in capsys.readouterr().err
    spec.write_text(SPEC.replace("x * s", "x * t"))
    spec.with_name("broken.toml").write_text("x = 100%\n")
    assert run(".") == 2
    told = capsys.readouterr().err
    assert "scaled.toml:7:10: error TG203: t is not defined" in told
    assert "broken.toml:1:8: error TG101" in told
    assert "2 mistakes in 2 files; nothing was planned." in told
    assert run(".", "--format", "json") == 2
    assert len(json.loads(capsys.readouterr().out)["diagnostics"]) == 2


COSTLY = """\
[op]
name = "costly"
[inputs]
x = "float32[M, K]"
w = "float32[N, K]"
[compute]
y = "sum(x * w, K)"
[outputs]
y = "x"
"""


@pytest.mark.parametrize("command", ["plan", "build"])
def test_hidden_costs_are_warnings(command: str, project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    (project.root / "costly.toml").write_text(COSTLY)
    assert cli.run([command, "costly.toml"]) == 0
    told = capsys.readouterr().err
    assert "costly.toml:7:1: warning TG903: this multiplies in float32, without tensor cores, since x and w" in told
    assert "error" not in told
    (project.root / "costly.toml").write_text(COSTLY + "# again\n")
    assert cli.run([command, "costly.toml", "--format", "json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert (warning["code"], warning["level"], warning["line"]) == ("TG903", "warning", 7)


def test_github_shows_warnings(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    (project.root / "costly.toml").write_text(COSTLY)
    assert cli.run(["build", "costly.toml", "--format", "github"]) == 0
    assert capsys.readouterr().out.startswith("::warning file=costly.toml,line=7,col=1,title=tritongen TG903::")


def test_nothing_is_written(spec: Path) -> None:
    before = sorted(spec.parent.rglob("*"))
    assert run("scaled.toml") == 0
    assert sorted(spec.parent.rglob("*")) == before
