"""The command `tritongen import`: what it writes, and when it does not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tritongen.cli import run

SOURCE = '''
import torch


def scaled_norm(x, weight, eps: float = 1e-6):
    """RMS normalisation over the last axis."""
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return x * rstd * weight
'''
SPEC = """# tritongen import model.py:scaled_norm --example "x=bf16[2,4,16] weight=bf16[16]"
[op]
name = "scaled_norm"
summary = "RMS normalisation over the last axis."

[inputs]
x = "float[..., N]"
weight = "float[N]"

[params]
eps = 1e-6

[compute]
rstd = "rsqrt(mean(x * x, N) + eps)"
y = "x * rstd * weight"

[outputs]
y = "x"

[grad]
wrt = ["x", "weight"]

[reference]
from = "model"
torch = "scaled_norm(x, weight, eps=eps)"
"""
EXAMPLE = ("--example", "x=bf16[2,4,16] weight=bf16[16]")


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(SOURCE)


def test_a_spec_is_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    out = Path("specs/scaled_norm.toml")
    assert run(["import", "model.py:scaled_norm", *EXAMPLE, "-o", str(out)]) == 0
    assert out.read_text() == SPEC
    assert capsys.readouterr().out == f"wrote {out}\n"
    assert run(["import", "model.py:scaled_norm", *EXAMPLE, "-o", str(out)]) == 2
    assert "--force overwrites it" in capsys.readouterr().err
    assert run(["import", "model.py:scaled_norm", *EXAMPLE, "-o", str(out), "--force"]) == 0
    assert run(["build"]) == 0


def test_it_is_printed_and_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "model.py:scaled_norm", *EXAMPLE, "--check"]) == 0
    found = capsys.readouterr()
    assert found.out == SPEC
    rows = [line.split()[:-4] for line in found.err.splitlines()[1:]]
    assert ["odd", "lengths", "bfloat16"] in rows
    assert "too large" not in found.err


def test_long_examples_are_checked_at_shorter_lengths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where kernels are interpreted; both are as long as each other."""
    from tritongen.importing import checking

    def operator(x: Any, weight: Any, eps: float = 1e-6) -> Any:
        longest.append(max(*x.shape, *weight.shape))
        return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight

    longest: list[int] = []
    monkeypatch.setattr(checking, "_device", lambda: "cpu")
    monkeypatch.setattr(checking, "emitted", lambda result: operator)
    example = ("--example", "x=bf16[4,1024,4096] weight=bf16[4096]")
    assert run(["import", "model.py:scaled_norm", *example, "--check"]) == 0
    assert max(longest) <= 64
    said, _, *rows = capsys.readouterr().err.splitlines()
    assert "in place of 4096" in said
    assert rows[0].startswith(f"lengths up to {max(longest)} float64")


LIMITS = """import torch


def shares(x):
    return x / (x.float().sum(-1, keepdim=True) + torch.finfo(x.dtype).eps)
"""


def test_limits_of_a_dtype_are_constants_that_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no reference, which would have other ones in float64."""
    Path("limits.py").write_text(LIMITS)
    assert run(["import", "limits.py:shares", "--example", "x=bf16[4,8]"]) == 0
    found = capsys.readouterr()
    assert "0.0078125" in found.out
    assert "[reference]" not in found.out
    assert found.err == "note: a constant is a limit of bfloat16, as in the example (limits.py:5)\n"


def test_axes_have_the_names_that_the_example_gives(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "model.py:scaled_norm", "--example", "x=f32[2,4,C=16] weight=f32[16]", "--name", "norm"]) == 0
    out = capsys.readouterr().out
    assert 'name = "norm"' in out
    assert 'x = "float[..., C=16]"' in out


def test_an_operator_that_differs_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tritongen.importing import checking

    monkeypatch.setattr(checking, "emitted", lambda result: lambda x, weight, eps=1e-6: x * weight)
    assert run(["import", "model.py:scaled_norm", *EXAMPLE, "--check", "-o", "out.toml"]) == 1
    assert "too large" in capsys.readouterr().err
    assert not Path("out.toml").exists()


STRAIGHT = """import torch


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.tanh()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def rounded(x):
    return Straight.apply(x) * 2
"""


def test_a_backward_of_its_own_is_noted_and_checked(capsys: pytest.CaptureFixture[str]) -> None:
    Path("straight.py").write_text(STRAIGHT)
    assert run(["import", "straight.py:rounded", "--example", "x=f32[4,8]", "-o", "out.toml"]) == 0
    assert "note: `Straight` has a backward of its own (straight.py:15)" in capsys.readouterr().err
    assert run(["import", "straight.py:rounded", "--example", "x=f32[4,8]", "--check", "-o", "checked.toml"]) == 1
    assert not Path("checked.toml").exists()


def test_packages_beside_python_s_own_modules_are_the_user_s() -> None:
    """As where there is no virtual environment."""
    from tritongen.importing.targets import is_library

    standard = Path(os.__file__).parent
    assert is_library(str(standard / "json" / "decoder.py"))
    assert not is_library(str(standard / "site-packages" / "transformers" / "masking_utils.py"))


def test_limits_that_are_noted_are_those_of_torch_to_others() -> None:
    """To a module, for one, that is imported meanwhile."""
    import torch

    from tritongen.importing.limits import limits

    asked = []
    with limits(lambda own, _: asked.append(own.dtype) or own):
        kind = torch.finfo
        assert kind(torch.float16).eps == 2**-10
    assert asked == ["float16"]
    assert isinstance(torch.finfo(torch.float32), kind)
    assert type(torch.finfo(torch.float32)) in {int, kind}


LOOPED = """import torch


class Layer(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(n)

    def forward(self, x, weights):
        for weight in weights:
            x = torch.tanh(x * weight)
        return self.norm(x)
"""


def test_a_model_is_an_expression_and_a_loop_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a length that the program counts to, the spec has that one alone. Words that shells know are quoted."""
    Path("layer.py").write_text(LOOPED)
    assert run(["import", "layer.py:Layer(8).eval()", "--example", "x=f32[4,8] weights=f32[3,8]"]) == 0
    found = capsys.readouterr()
    assert found.out.startswith('# tritongen import "layer.py:Layer(8).eval()" --example')
    assert 'weights = "float[P=3, C]"' in found.out
    assert found.err == "note: P is always 3, which is a number to the original, as in a loop (layer.py:10)\n"


def test_dtypes_of_torch_are_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cast.py").write_text("def widened(x, dtype):\n    return x.to(dtype) * 2\n")
    assert run(["import", "cast.py:widened", "--example", "x=bf16[4,8] dtype=torch.float32"]) == 0
    out = capsys.readouterr().out
    assert "widened(x, dtype=torch.float32)" in out
