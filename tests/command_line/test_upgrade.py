"""What another Triton changes: the Python that has it is a script here, which prints what commands would."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.command_line.test_cli import run
from tritongen.compiling.lock import FACTS, Kernel
from tritongen.project import gate

FIRST = {"registers": 40, "local": 0, "shared": 1024, "load": 16, "store": 16, "tensor": 4, "code": 4096}
SCRIPT = """\
#!/usr/bin/env python3
import sys
args = sys.argv[1:]
if "doctor" in args:
    print("numpy is too new")
    sys.exit({doctor})
print({compile!r} if "compile" in args else {formula!r} if "formula" in args else "3.10.0")
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels by the Triton that is installed."""
    kernels = tuple(Kernel("norm", name, "sm_90", "bf16", FIRST) for name in ("same", "wider", "spilled"))
    report = SimpleNamespace(kernels=kernels, lock=SimpleNamespace(triton="3.9.0"))
    monkeypatch.setattr(gate, "compile_specs", lambda *_: [report])


def other(
    tmp_path: Path, wrong: tuple[str, ...] = (), doctor: int = 0, lost: str = "", **changed: dict[str, int]
) -> str:
    """A Python whose Triton compiles three kernels otherwise in what is changed, and whose formula check finds that."""
    kernels = [
        Kernel("norm", name, "sm_90", "bf16", FIRST | changed.get(name, {})).data()
        for name in ("same", "wider", "spilled")
        if name != lost
    ]
    found = [{"code": "TG715", "path": "norm.toml", "message": message} for message in wrong]
    compiled: dict[str, Any] = {"diagnostics": [], "kernels": kernels}
    texts = {"compile": json.dumps(compiled), "formula": json.dumps({"diagnostics": found})}
    path = tmp_path / "python"
    path.write_text(SCRIPT.format(doctor=doctor, **texts))
    path.chmod(0o755)
    return str(path)


@pytest.mark.usefixtures("here")
def test_what_moves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The size of code alone is no change. More registers are no loss, and spills are."""
    python = other(tmp_path, same={"code": 5000}, wider={"registers": 48}, spilled={"local": 16, "registers": 255})
    assert run("doctor", "--upgrade", python) == 1
    assert capsys.readouterr().out.splitlines() == [
        "3 kernels by Triton 3.9.0 and 3.10.0",
        "worse  norm/spilled sm_90 bf16: registers 40 to 255, local 0 to 16",
        "moved  norm/wider sm_90 bf16: registers 40 to 48",
        "1 take the same, 1 moved, 1 are worse; all compile, and compute their math",
    ]


@pytest.mark.usefixtures("here")
def test_nothing_worse(tmp_path: Path) -> None:
    assert run("doctor", "--upgrade", other(tmp_path, wider={"load": 32})) == 0


@pytest.mark.usefixtures("here")
def test_a_kernel_less(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that the other Triton does not compile, be it said or not, is no success."""
    assert run("doctor", "--upgrade", other(tmp_path, lost="wider")) == 1
    assert capsys.readouterr().out.endswith("0 are worse; 1 kernel did not compile\n")


@pytest.mark.usefixtures("here")
def test_another_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "--upgrade", other(tmp_path, wrong=("y differs", "dx differs", "z differs"))) == 1
    assert "TG715  norm.toml: y differs (and 2 others)\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.usefixtures("here")
def test_what_a_kernel_takes_is_compared(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("doctor", "--upgrade", other(tmp_path, same={name: FIRST[name] + 1}))
    assert ("norm/same" in capsys.readouterr().out) == (name != "code")


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "--upgrade", str(tmp_path / "none")) == 4
    assert "none does not run: No such file" in capsys.readouterr().err
    assert run("doctor", "--upgrade", other(tmp_path, doctor=4)) == 4
    assert "lacks what generated code needs:\nnumpy is too new\n" in capsys.readouterr().err
    assert run("doctor", "specs") == 2
    spec = tmp_path / "wrong.toml"
    spec.write_text('[op]\nname = "wrong"\n[inputs]\nx = "float[N]"\n[compute]\ny = "q"\n[outputs]\ny = "x"\n')
    assert run("doctor", "--upgrade", other(tmp_path), str(spec)) == 2
    assert "error TG203: " in capsys.readouterr().err
    assert run("doctor", "--upgrade", other(tmp_path), "--target", "sm_9x") == 2
