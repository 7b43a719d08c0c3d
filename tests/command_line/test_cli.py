"""The command line: exit codes, formats, and what it costs to start."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from tritongen import __version__, cli
from tritongen.diagnostics.codes import CODES
from tritongen.lang.functions import FUNCTIONS
from tritongen.lang.reductions import REDUCTIONS
from tritongen.lang.special import SPECIAL
from tritongen.operator.compile import check
from tritongen.project import render
from tritongen.project.starters import STARTERS
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

ROOT = Path(__file__).parents[2]


def fake(spec: Spec, runtime: str, width: int) -> Mapping[str, str]:
    if spec.name == "bug":
        raise ZeroDivisionError("ours")
    return {"__init__.py": "", "kernels.py": f"NAME = {spec.name!r}\n"}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(render, "generate_modules", fake)
    return tmp_path


def run(*arguments: str) -> int:
    return cli.run(list(arguments))


def process(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tritongen", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_init_build_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("init") == 0
    assert run("new", "double", "--family", "reduction") == 0
    capsys.readouterr()
    assert run("build") == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote generated/ (__init__.py)",
        "wrote generated/double/ (__init__.py, kernels.py)",
        "wrote generated/rms_norm/ (__init__.py, kernels.py)",
        "2 specs: 5 files written",
    ]
    assert run("build") == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 specs: nothing to do, for all files are up to date",
    ]
    assert run("check") == 0
    assert capsys.readouterr().out == "2 specs: up to date\n"
    assert run("init") == 0
    assert run("new", "double") == 2


def test_findings(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("init")
    run("build")
    kernel = project / "generated" / "rms_norm" / "kernels.py"
    kernel.write_text(kernel.read_text().replace("NAME", "OTHER"))
    capsys.readouterr()
    assert run("check", "--diff") == 1
    told = capsys.readouterr()
    assert "generated/rms_norm/kernels.py: error TG704: edited by hand" in told.err
    assert '-OTHER = "rms_norm"\n+NAME = "rms_norm"\n' in told.out
    assert told.out.endswith("1 file not up to date; run `tritongen build --force`\n")
    assert run("check", "--format", "github") == 1
    assert "::error file=generated/rms_norm/kernels.py,line=1,col=1" in capsys.readouterr().out
    assert run("build", "--format", "json") == 1
    told_as_data = json.loads(capsys.readouterr().out)
    assert told_as_data["written"] == []
    assert told_as_data["diagnostics"][0]["code"] == "TG704"
    kernel.with_name("__init__.py").unlink()
    assert run("check") == 1
    assert capsys.readouterr().out.endswith("2 files not up to date; run `tritongen build`\n")
    assert run("build", "--force") == 0


def test_wrong_specs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "a.toml").write_text("[oops]\n")
    (project / "b,c.toml").write_text("x = 100%\n")
    assert run("build", ".") == 2
    told = capsys.readouterr()
    assert "a.toml:1:1: error TG103" in told.err
    assert "b,c.toml:1:8: error TG101" in told.err
    assert "6 mistakes in 2 files; nothing was written." in told.err
    assert not (project / "generated").exists() or not list((project / "generated").iterdir())
    assert run("build", ".", "--format", "json") == 2
    assert len(json.loads(capsys.readouterr().out)["diagnostics"]) == 6
    assert run("check", "b,c.toml", "--format", "github") == 2
    assert "::error file=b%2Cc.toml,line=1,col=8,title=tritongen TG101::" in capsys.readouterr().out


def test_nothing_steers_a_terminal(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither escapes of TOML, nor paths and arguments: messages have them as escapes."""
    raw, escaped = "\a\x9b\u202e\x1b]", r"\x07\x9b\u202e\x1b]"
    (project / "specs").mkdir()
    text = f'[op]\nname = "b{escaped}"\n[inputs]\n"x{escaped}" = "float[N{escaped}]"\n[compute]\ny = "x{escaped}"\n'
    (project / "specs" / "a.toml").write_text(text.replace(r"\x", r"\u00"))
    for arguments in (
        ["build"],
        ["check", "--format", "github"],
        ["build", f"a{raw}"],
        ["new", f"a{raw}"],
        ["explain", raw],
        ["plan", "specs", "--sizes", f"M{raw}=3"],
        ["plan", "specs", "--device", raw],
        ["show", f"a{raw}"],
    ):
        assert run(*arguments) == cli.WRONG
        told = "".join(capsys.readouterr())
        assert not {one for one in told if not one.isprintable() and one != "\n"}, arguments
        assert r"\x07" in told or "\\u0007" in told, arguments
    run("build", "--format", "json")
    assert not {one for one in capsys.readouterr().out if not one.isprintable() and one != "\n"}


def test_bad_usage() -> None:
    assert run() == 2
    assert run("buidl") == 2
    assert run("build", "--frce") == 2
    assert run("build", "nowhere.toml") == 2
    assert run("build") == 2  # there is no specs/ here
    assert run("show", "nowhere.toml") == 2
    assert run("explain", "TG999") == 2
    assert run("new", "not-a-name") == 2
    assert run("new", 'a"name') == 2
    assert run("--help") == 0


@pytest.mark.parametrize("family", STARTERS)
def test_a_new_spec_speaks_of_its_operator(project: Path, family: str) -> None:
    """It is no ReLU, say, only because it begins as one."""
    (project / "tritongen.toml").touch()
    assert run("new", "my_loss", "--family", family) == 0
    text = (project / "specs" / "my_loss.toml").read_text()
    assert text.startswith("[op]")  # There is no schema to point to.
    spec = read_spec("my_loss.toml", text)
    assert spec.name == "my_loss"
    assert spec.summary.startswith("What my_loss computes: for a start, a ")
    check(spec)


def test_new_knows_each_starter() -> None:
    (option,) = (one for one in cli.cli.commands["new"].params if one.name == "family")
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == list(STARTERS)


def test_starters_name_their_schema(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For editors: the line leads from the spec to what `tritongen schema` prints."""
    run("init")
    run("new", "my_linear", "--family", "matmul")
    for name in ("rms_norm", "my_linear"):
        path = project / "specs" / f"{name}.toml"
        directive, place = path.read_text().splitlines()[0].split(" ")
        assert directive == "#:schema"
        capsys.readouterr()
        run("schema")
        assert (path.parent / place).read_text() == capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(shell: str) -> None:
    """As the guide says."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "_TRITONGEN_COMPLETE": f"{shell}_source"}
    program = "from tritongen.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert "_TRITONGEN_COMPLETE" in done.stdout
    assert done.returncode == 0 or "Bash version" in done.stderr


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    run("init")
    capsys.readouterr()
    assert run("show", "specs/rms_norm.toml") == 0
    shown = capsys.readouterr().out
    run("build")
    assert shown == Path("generated/rms_norm/kernels.py").read_text()
    assert run("show", "specs/rms_norm.toml", "kernles.py") == 2
    assert "did you mean 'kernels.py'?" in capsys.readouterr().err


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain") == 0
    assert re.findall(r"^TG\d{3}", capsys.readouterr().out, re.MULTILINE) == sorted(CODES)
    for code, row in CODES.items():
        assert run("explain", code.lower()) == 0
        assert row.explanation in capsys.readouterr().out


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema") == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["required"] == ["op", "inputs", "compute", "outputs"]


def test_a_bug_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    run("new", "bug")
    run("new", "other")
    capsys.readouterr()
    for paths in (["specs/bug.toml"], ["specs"]):
        assert run("build", *paths) == 3
        told = capsys.readouterr().err
        assert "this is a bug of tritongen" in told
        assert "while working on specs/bug.toml" in told
        assert "ZeroDivisionError: ours" in told


def test_another_black(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import black

    run("init")
    monkeypatch.setitem(black.__dict__, "__version__", "25.1.0")
    assert run("build") == 4
    assert "black 25.1.0 may format otherwise" in capsys.readouterr().err
    assert run("doctor") == 4


def test_no_permission(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("init")
    (project / "generated").write_text("a file")
    assert run("build") == 2
    assert "generated" in capsys.readouterr().err


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor") == 0
    assert "black      26." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("versions", "code", "said"),
    [
        ({"torch": "2.10.1"}, 4, "torch      2.10.1; generated code needs 2.11 or later"),
        ({"torch": "2.14.0+cu130"}, 0, "torch      2.14.0+cu130, newer than 2.13"),
        ({"triton": "3.5.1"}, 4, "triton     3.5.1; generated code needs 3.6 or later"),
        ({"triton": "3.10.0"}, 0, "triton     3.10.0, newer than 3.9"),
        ({"triton": "3.6.0", "numpy": "2.4.6"}, 4, "the interpreter of Triton 3.6.0 needs numpy before 2.4"),
        ({"triton": "3.6.0", "numpy": "2.3.5"}, 0, "numpy      2.3.5\n"),
        ({"torch": "", "triton": "", "numpy": ""}, 0, "triton     not installed"),
    ],
)
def test_doctor_of_versions(
    versions: dict[str, str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tritongen.project import doctor

    found = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: versions.get(name, found(name)))
    assert run("doctor") == code
    assert said in capsys.readouterr().out


def test_interrupted(project: Path) -> None:
    run("init")
    run("new", "other")
    body = "import signal, time, tritongen.project.render as r, tritongen.cli as c\n"
    # A shell that runs the tests in the background has its children ignore interrupts.
    body += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    body += "def slow(spec, runtime, width):\n    print('started', flush=True)\n    time.sleep(1)\n    return {}\n"
    body += "r.generate_modules = slow\nc.main(['build'])\n"
    child = subprocess.Popen(
        [sys.executable, "-c", body],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in told
    assert not (project / "generated").exists()


def test_a_closed_pipe() -> None:
    run("init")
    command = f"{sys.executable} -m tritongen explain | head -c 10"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


def test_starts_lightly() -> None:
    run("init")
    assert run("build") == 0
    code = "import sys, tritongen.cli as c; c.run({}); print(sorted(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    heavy = {"jinja2", "black", "torch", "triton", "numpy", "multiprocessing", "concurrent"}
    for arguments, more in (["--help"], {"json", "tomllib", "hashlib"}), (["build"], set[str]()):
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        loaded = {name.strip("'[]\n") for name in done.stdout.rpartition("\n[")[2].split(", ")}
        assert "click" in loaded
        assert not loaded & (heavy | more), arguments
        assert "nothing to do" in done.stdout or arguments == ["--help"]


def test_module_runs() -> None:
    done = process("--version")
    assert (done.returncode, done.stdout) == (0, f"tritongen, version {__version__}\n")


def test_functions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("functions") == 0
    listed = capsys.readouterr().out
    names = [*FUNCTIONS, *REDUCTIONS, *SPECIAL]
    for name in names:
        assert re.search(rf"\b{name}\(", listed), name
        assert run("functions", name) == 0
        said = capsys.readouterr().out
        assert f"{name}(" in said
        assert "gradient" in said
    assert run("functions", "//") == 0
    assert "floor_divide(x, other)" in capsys.readouterr().out
    assert run("functions", "matmul") == 2
    assert "write sum(x * y, K)" in capsys.readouterr().err
    assert run("functions", "softmx") == 2
    assert "did you mean 'softmax'?" in capsys.readouterr().err


def test_explain_a_topic(capsys: pytest.CaptureFixture[str]) -> None:
    digits = {one.topic: code[2] for code, one in CODES.items()}
    assert [*digits.values()] == sorted(digits.values())
    for topic, digit in digits.items():
        assert run("explain", topic) == 0
        told = re.findall(r"^TG\d{3}", capsys.readouterr().out, re.MULTILINE)
        assert told == [code for code in CODES if code[2] == digit]


def test_every_code_is_explained() -> None:
    """And none is explained that nothing says."""
    import re

    said = {
        code for path in (ROOT / "tritongen").rglob("*.py") for code in re.findall(r'"(TG\d{3})"', path.read_text())
    }
    assert CODES.keys() <= said
    assert not {code for code in said - CODES.keys() if code[2] in "1578"}


def test_wheels_have_every_package() -> None:
    """Setuptools looks for them, and finds folders that have an __init__.py."""
    folders = {path.parent for path in (ROOT / "tritongen").rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]
    assert (ROOT / "tritongen" / "py.typed").exists()
