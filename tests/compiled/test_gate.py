"""`tritongen compile`: kernels for GPUs that are not at hand, and what a lock says of the next ones.

The command runs in a process of its own, since Triton must not interpret there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.harness.processes import python
from tritongen.compiling.lock import FACTS, BadLock, Kernel, Lock, read_lock, regressions

ROOT = Path(__file__).parents[2]
SQUARED = """\
[op]
name = "squared"
summary = "Squares, and what they are of."

[inputs]
x = "float[N]"

[compute]
y = "x * x + x"

[outputs]
y = "x"
"""
SCALED = """\
[op]
name = "scaled"
summary = "Rows, scaled."

[inputs]
x = "float[..., N]"
w = "float[N] = 1"

[compute]
y = "x * w"

[outputs]
y = "x"
"""
MATMUL = (ROOT / "specs" / "matmul.toml").read_text(encoding="utf-8")


def tritongen(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"} | variables  # It interprets nothing.
    return python("-m", "tritongen", *arguments, cwd=home, env=environment)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a lock for two GPUs."""
    home = tmp_path_factory.mktemp("project")
    (home / "specs").mkdir()
    (home / "specs" / "squared.toml").write_text(SQUARED, encoding="utf-8")
    (home / "tritongen.toml").write_text("tests = false\n", encoding="utf-8")  # Benchmarks are not needed there.
    done = tritongen(home, "compile", "--target", "sm_90", "--target", "gfx942", "--update")
    assert done.returncode == 0, done.stderr
    assert "wrote kernels.lock (2 kernels)" in done.stderr
    return home


@pytest.fixture
def lock(project: Path) -> Lock:
    return read_lock((project / "kernels.lock").read_text(encoding="utf-8"))


def test_what_a_kernel_takes(lock: Lock) -> None:
    """Two bytes times eight are moved at once, and nothing is spilled, multiplied, or shared."""
    assert [(one.name, one.target) for one in lock.kernels] == [
        ("squared_kernel", name) for name in ("gfx942", "sm_90")
    ]
    for one in lock.kernels:
        expected = {"local": 0, "shared": 0, "load": 16, "store": 16, "tensor": 0}
        assert {name: one.facts[name] for name in expected} == expected
        assert 8 <= one.facts["registers"] <= 64
        assert 256 <= one.facts["code"] <= 8192
        assert one.variant.startswith("bf16,bf16 COMPUTE=fp32 BLOCK=")


def test_a_lock_is_read_as_it_is_written(lock: Lock, project: Path) -> None:
    text = (project / "kernels.lock").read_text(encoding="utf-8")
    assert lock.text() == text
    assert lock.sizes == "largest"
    for line, wrong in ((1, "kernels"), (5, "squared/squared_kernel : registers=4"), (4, "no kernel")):
        lines = text.splitlines()
        lines[line - 1] = wrong
        with pytest.raises(BadLock) as error:
            read_lock("\n".join(lines))
        assert error.value.line == line


def test_nothing_changed(project: Path, lock: Lock) -> None:
    """The targets and sizes are the lock's. Products are fused with sums whether or not that is Triton's default, of
    which it warns where it is not said.
    """
    done = tritongen(project, "compile", "--check", "--format", "json", TRITON_DEFAULT_FP_FUSION="0")
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    found = json.loads(done.stdout)
    assert found["diagnostics"] == []
    assert [(one["target"], one["code"]) for one in found["kernels"]] == [
        (one.target, one.facts["code"]) for one in lock.kernels
    ]
    assert not (project / "generated").exists()


def test_worse_than_locked(project: Path, tmp_path: Path) -> None:
    """A kernel with narrower accesses, and one that the lock has not, each by its place in the lock."""
    text = (project / "kernels.lock").read_text(encoding="utf-8")
    before, last = text.rstrip("\n").rsplit("\n", 1)
    changed = f"{before}\n{last.replace('load=16', 'load=32')}\n".replace("gfx942 bf16,bf16", "gfx942 bf16,fp32")
    home = tmp_path / "other"
    (home / "specs").mkdir(parents=True)
    (home / "specs" / "squared.toml").write_text(SQUARED, encoding="utf-8")
    (home / "kernels.lock").write_text(changed, encoding="utf-8")
    done = tritongen(home, "compile", "--check", "--format", "github")
    assert done.returncode == 1
    # Its kernels are in lines 4 and 5.
    found = re.findall(r"^::error file=kernels.lock,line=(\d),col=1,title=tritongen (TG\d+)", done.stdout, re.MULTILINE)
    assert found == [("1", "TG713"), ("4", "TG713"), ("5", "TG712")]
    assert "loads of at most 16 bytes, locked are 32" in done.stdout
    assert (home / "kernels.lock").read_text(encoding="utf-8") == changed
    (home / "kernels.lock").unlink()
    done = tritongen(home, "compile", "--check")
    assert (done.returncode, "TG714" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_regressions() -> None:
    good = dict.fromkeys(FACTS, 16)

    def kernel(op: str = "a", target: str = "sm_90", **facts: int) -> Kernel:
        return Kernel(op, "k", target, "bf16", good | facts)

    def found(old: list[Kernel], new: list[Kernel]) -> list[tuple[str, str]]:
        return [(code, text) for _, code, text in regressions(Lock((*old,), "3.9.0"), new, {"a"})]

    assert found([kernel()], [kernel(registers=99, code=99, shared=99, load=32, local=0, tensor=1)]) == []
    assert [code for code, _ in found([kernel()], [kernel(load=8, store=8, local=20, tensor=0)])] == ["TG712"] * 4
    assert found([kernel()], [kernel(), kernel(target="gfx942")]) == [("TG713", "is not locked")]
    # Other operators and other targets are not compiled this time.
    assert found([kernel(), kernel("b"), kernel(target="gfx942")], [kernel()]) == []


@pytest.mark.sampled(4)
def test_a_kernel_of_the_runtime_is_each_operators() -> None:
    """Whichever operators a process compiles, and in which order: both of these merge sums."""
    lines = (
        "from tritongen.compiling.launches import Compiler",
        "from tritongen.compiling.targets import TARGETS",
        "compiler = Compiler(TARGETS['sm_90'])",
        "for op in ('huber_loss', 'mse_loss'):",
        "    print(*sorted(one.name for one in compiler.compile_all('generated', op, 'largest').kernels))",
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = python("-c", "\n".join(lines), cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert "reduce_partials_kernel" in first
    assert "reduce_partials_kernel" in second


@pytest.mark.sampled(3)
def test_what_else_a_call_launches(tmp_path: Path) -> None:
    """Without an optional input, of tensors at any address, as if they were beyond int32, and of another dtype."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "scaled.toml").write_text(SCALED, encoding="utf-8")
    done = tritongen(tmp_path, "compile", "--target", "sm_90", "--sizes", "every", "--format", "json")
    assert done.returncode == 0, done.stderr
    variants = [one["variant"] for one in json.loads(done.stdout)["kernels"]]
    assert {one.partition(" ")[0] for one in variants} == {"bf16,bf16", "bf16,bf16,bf16", "fp32,fp32,fp32"}
    assert [one for one in variants if "INDEX=int64" in one]
    assert [one for one in variants if "args=--" in one]


@pytest.mark.sampled(3)
def test_what_is_tuned(tmp_path: Path) -> None:
    """All candidates, of which a tile that does not fit is no mistake."""
    (tmp_path / "specs").mkdir()
    schedule = "[schedule]\nblock_m = [16, 256]\nblock_n = 64\nblock_k = 128\nautotune = true\n"
    text = re.sub(r"\[grad\]\n[^\n]*\n", "", MATMUL) + schedule
    (tmp_path / "specs" / "matmul.toml").write_text(text, encoding="utf-8")
    done = tritongen(tmp_path, "compile", "--target", "sm_120", "--format", "json")
    assert done.returncode == 0, done.stdout
    assert "Warning" not in done.stderr
    kernels = [one for one in json.loads(done.stdout)["kernels"] if one["kernel"] == "matmul_tma_kernel"]
    fits = {int(re.findall(r"BLOCK_M=(\d+)", one["variant"])[0]): one["shared"] < 101_376 for one in kernels}
    assert fits == {16: True, 256: False}


@pytest.mark.sampled(3)
def test_tiles_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """For a GPU with less shared memory than the tiles of a schedule take; the lock stays as it is."""
    (tmp_path / "specs").mkdir()
    schedule = "\n[schedule]\nblock_m = 256\nblock_n = 256\nblock_k = 128\n"
    (tmp_path / "specs" / "matmul.toml").write_text(MATMUL + schedule, encoding="utf-8")
    done = tritongen(tmp_path, "compile", "--target", "sm_120", "--update")
    assert done.returncode == 1, done.stderr
    assert "specs/matmul.toml: error TG711" in done.stderr
    assert "bytes of shared memory, and sm_120 has 101,376" in done.stderr
    assert not (tmp_path / "kernels.lock").exists()


def test_mistakes_of_a_call(project: Path) -> None:
    for arguments, said in (
        (("--target", "sm_91"), "did you mean"),
        (("--check", "--update"), "give one of them"),
        (("nowhere",), "TG803"),
    ):
        done = tritongen(project, "compile", *arguments)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr
