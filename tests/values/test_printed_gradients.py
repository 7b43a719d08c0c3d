"""`tritongen grad`: a printed gradient is a spec, of the values of autograd through the text that it is derived of."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import torch

from tests.random.evaluated import LEADING, Evaluated, Tensor
from tritongen import cli
from tritongen.diagnostics.report import Mistake, Mistakes
from tritongen.lang.typecheck import typecheck
from tritongen.operator import printed
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

ROOT = Path(__file__).parents[2]
PATHS = [path for home in ("specs", "examples/specs") for path in sorted((ROOT / home).glob("*.toml"))]
TABLES = {path: tomllib.loads(path.read_text(encoding="utf-8")) for path in PATHS}
# The text is evaluated without computed axes.
SPECS = [path for path, tables in TABLES.items() if "grad" in tables and "axes" not in tables]
LENGTH = 3


def compare(text: str) -> None:
    """Values of the printed gradient, and those of autograd, in float64."""
    spec = read_spec("spec.toml", text)
    op = typecheck(spec)
    forward, backward = Evaluated(text), Evaluated(printed.printed_gradient(spec))
    forward.outputs = [
        Tensor(one.output.name, "", tuple(term.names for term in op.grouping(one))) for one in op.results
    ]
    generator = torch.Generator().manual_seed(0)
    lengths = dict.fromkeys([*LEADING, *forward.axes, *backward.axes], LENGTH)

    def drawn(dtype: str, shape: list[int]) -> torch.Tensor:
        if "float" in forward.tables.get("types", {}).get(dtype, dtype) or dtype in ("any", "number"):
            return torch.rand(shape, dtype=torch.float64, generator=generator) + 0.2
        return torch.randint(0, 2 if dtype == "bool" else LENGTH, shape, generator=generator).to(
            torch.bool if dtype == "bool" else torch.int64
        )

    given = {one.name: drawn(one.dtype, forward.shape(one, lengths)) for one in forward.inputs}
    for name in forward.by:
        given[name].requires_grad_()
    params = {name: torch.tensor(0.5, dtype=torch.float64) for name, value in forward.params().items() if value is None}
    results = forward(lengths, list(given.values()), params)
    active = [(one.name, result) for one, result in zip(forward.outputs, results, strict=True) if result.requires_grad]
    seeds = {f"d{name}": torch.randn(result.shape, dtype=torch.float64, generator=generator) for name, result in active}
    wanted = torch.autograd.grad([result for _, result in active], list(map(given.get, forward.by)), [*seeds.values()])
    values = {name: value.detach() for name, value in (given | seeds).items()}
    found = backward(lengths, [values[one.name] for one in backward.inputs], params)
    assert [one.name for one in backward.outputs] == [f"d{name}" for name in forward.by]
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_of_the_gallery(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values follow from the text: what is printed is not planned here, which may take half a minute."""
    monkeypatch.setattr(printed, "check", typecheck)
    compare(path.read_text(encoding="utf-8"))


@pytest.mark.sampled(30)
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_what_is_printed_can_be_planned(path: Path) -> None:
    assert printed.printed_gradient(read_spec(path.name, path.read_text(encoding="utf-8")))


def spec(inputs: str, line: str, wrt: str = "x") -> str:
    inputs = inputs.replace("; ", "\n")
    return f'''
[op]
name = "it"
[inputs]
{inputs}
[compute]
y = "{line}"
[outputs]
y = "auto"
[grad]
wrt = ["{wrt}"]
'''


@pytest.mark.parametrize(
    ("inputs", "line"),
    [
        ('x = "float[M, N]"', "cumsum(x * x, N)"),
        ('x = "float[M, N]"', "sum(x, M) * 2"),
        ('x = "float[M, N]"', "cumprod(x, N)"),
        ('x = "float[M, N]"', "cumprod(x, N, reverse=True)"),
        ('x = "float[M, N]"; d = "float[M, N]"', "recurrence(d, x * x, N)"),
        ('x = "float[M, N]"; d = "float[M]"', "recurrence(x, d, N, reverse=True)"),
        ('x = "float[T, E]"; i = "int64[T]"', "take(x, i, T)"),
        ('x = "float[P, D]"; i = "int64[P]"; v = "float[V]"', "scatter_sum(x * x, i, V) * v"),
        ('x = "float[B, P]"; i = "int64[B, P]"; v = "float[V]"', "scatter_sum(x, i, V, over=P) * v"),
        ('x = "float[V, D]"; i = "int64[B, T]"', "take(x * x, i, V)"),
        ('x = "float[B, V]"; i = "int64[B, T]"', "take(x, i, V)"),
        ('x = "float[]"; w = "float[M, N]"', "x * w"),
        ('x = "float[M]"; w = "float[N]"; v = "float[N] = 2"', "x * w * v"),
    ],
)
def test_of_single_lines(inputs: str, line: str) -> None:
    """Reductions and scans back, gathers, and inputs that the gradient reads for their axes alone."""
    compare(spec(inputs, line))


def refuse(_: Spec) -> None:
    raise Mistakes(Mistake("TG601", "dx is math that no kernel computes", ("compute", "dx")))


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("it.toml").write_text(spec('x = "float[N]"', "x * x"))
    with monkeypatch.context() as patch:
        patch.setattr(printed, "check", refuse)
        assert cli.run(["grad", "it.toml"]) == 2
    told = capsys.readouterr()
    assert "it.toml:11:1: error TG610: the language cannot say this gradient: its line dx is none" in told.err
    assert not told.out
    Path("it.toml").write_text(spec('x = "float[N]"', "x * x").replace("[grad]", "# ").replace("wrt", "# wrt"))
    assert cli.run(["grad", "it.toml"]) == 2
    assert "it.toml has no [grad]" in capsys.readouterr().err
    Path("it.toml").write_text(spec('x = "float[N]"', "x * x"))
    assert cli.run(["grad", "it.toml"]) == 0
    text = capsys.readouterr().out
    assert text.startswith('[op]\nname = "it_backward"\nsummary = "The gradient of it."\n\n[inputs]\n')
    Path("specs").mkdir()
    Path("specs/back.toml").write_text(text)
    assert cli.run(["build", "specs"]) == 0
    assert cli.run(["check", "specs"]) == 0
