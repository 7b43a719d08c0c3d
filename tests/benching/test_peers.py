"""Functions of other packages beside an operator: checked before they are timed, and named where they fail."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from tritongen.benching import measure as measuring
from tritongen.benching import peers
from tritongen.benching.docs import page
from tritongen.benching.peers import PACKAGES, Package, Row
from tritongen.benching.run import Case, Figure, Run
from tritongen.page.measured import measured_in
from tritongen.project import benchmarks

ROOT = Path(__file__).parents[2]
GALLERY = {path.stem for path in (ROOT / "specs").glob("*.toml")}
MODULE = """
import torch

def double(x):
    return 2 * x

def halve(x):
    return x / 2

def doubled_in_float32(x):
    return 2 * x.float()

def broken(x):
    raise RuntimeError("no luck\\nat all")
"""


@pytest.fixture
def benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of an operator that doubles, on the CPU, with a GPU's clock that says a millisecond for each call."""
    (tmp_path / "others.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT))
    harness = importlib.import_module("generated._testing.benchmarking")
    monkeypatch.setattr(harness, "DEVICE", "cpu")
    monkeypatch.setattr(harness, "copy_rate", lambda: [1e-3])
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr("triton.testing.do_bench", lambda call, **options: call() is None or 1.0)

    def twice(x: torch.Tensor) -> torch.Tensor:
        return x + x

    def make(elements: int, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, ...]:
        return (harness.draw((elements,), dtype),)

    return harness.ByBytes(twice, lambda x: 2 * x, make, dtypes="bfloat16 float32", wrt=(0,), sizes=(64, 256))


def package(name: str, row: Row, **options: Any) -> Package:
    return Package(name, "no-distribution", "others", {"twice": row}, **options)


def measured(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, packages: tuple[Package, ...], direction: str = "forward"
) -> dict[str, Figure]:
    monkeypatch.setattr(peers.with_peers, "__defaults__", (packages,))
    found = measuring.measure(benchmark, Case("twice", direction, "bfloat16", "elements", 64), rounds=2)
    return {one.provider: one for one in found}


def test_peers_are_checked_before_they_are_timed(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = (
        package("right", Row("double")),
        package("adapted", Row("double", lambda f, x: f(x.view(8, 8)))),  # The shape may be another view.
        package("wrong", Row("halve")),
        package("wider", Row("doubled_in_float32")),
        package("broken", Row("broken")),
        package("older", Row("no_such_function")),
        Package("absent", "absent", "no_such_package.inside", {"twice": Row("double")}),
        Package("of another", "other", "others", {"thrice": Row("double")}),
    )
    found = measured(benchmark, monkeypatch, packages)
    assert [*found] == ["twice", "torch", "torch.compile", "right", "adapted", "wrong", "wider", "broken", "older"]
    assert {name for name, one in found.items() if one.rate} == {"twice", "torch", "torch.compile", "right", "adapted"}
    assert found["right"].rate == pytest.approx(2 * 64 * 2 * 1e-9 / 1e-3)
    assert "differs by" in found["wrong"].error
    assert "float32 of [64], not bfloat16 of [64]" in found["wider"].error
    assert found["broken"].error == "RuntimeError: no luck at all"
    assert "no_such_function" in found["older"].error


def test_gradients_are_compared(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same gradients come in for all, so that theirs are the same; and peers without any are left out."""

    def wrong(function: Any, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = function(x).detach() + x - x.detach()
        return found

    packages = (
        package("right", Row("double"), gradients=True),
        package("wrong", Row("double", wrong), gradients=True),
        package("none", Row("double")),
    )
    found = measured(benchmark, monkeypatch, packages, "backward")
    assert [*found] == ["twice", "torch", "torch.compile", "right", "wrong"]
    assert found["right"].rate
    assert "differs by" in found["wrong"].error


def test_the_table_is_of_the_gallery() -> None:
    """Of operators that there are, and with calls that take their inputs and those params that have no default."""
    for one in PACKAGES:
        assert one.rows.keys() <= GALLERY
        for op, row in one.rows.items():
            benchmark = measuring.benchmark_of("generated", op)
            inputs = inspect.signature(benchmark.reference).parameters
            taken = [name for name, of in inputs.items() if of.kind is of.POSITIONAL_OR_KEYWORD]
            more = ["given"] * (row.given is not None)
            inspect.signature(row.call).bind(None, *taken, *more, **benchmark.params)


def test_versions_are_of_what_was_measured(benchmark: Any) -> None:
    packages = (
        package("here", Row("double")),
        Package("absent", "absent", "no_such_package", {"twice": Row("double")}),
        Package("unasked", "unasked", "no_such_package", {"thrice": Row("double")}),
    )
    assert peers.versions(["twice"], packages) == {"peers": "here of unknown version", "not installed": "absent"}
    assert peers.versions(["once"], packages) == {}


def test_an_interrupted_run_has_what_was_measured_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of specs before the one in which Control-C came, and the machine."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "a GPU")

    def measure(benchmark: Any, case: Case, rounds: int) -> list[Figure]:
        if case.size == max(benchmark.sizes):
            raise KeyboardInterrupt
        return [Figure(case, case.op, benchmark.unit, 1.0)]

    monkeypatch.setattr(benchmarks, "measure", measure)
    path = str(ROOT / "specs" / "relu.toml")
    run = benchmarks.run_benchmarks((path,), measuring.Wanted(), "a command", lambda results, total: results)
    assert [one.case.size for one in run.figures] == [2**18, 2**20, 2**22, 2**24, 2**26]
    assert (run.about["device"], run.about["command"], run.about["rounds"]) == ("a GPU", "a command", "5")
    sizes = 2**26, 2**28
    monkeypatch.setattr(benchmarks, "measure", lambda benchmark, case, rounds: [Figure(case, case.op, "GB/s", 2.0)])
    wanted = measuring.Wanted(every=False)
    again = benchmarks.run_benchmarks((path,), wanted, "another", lambda results, total: results, run)
    assert [(one.case.size, one.rate) for one in again.figures[-2:]] == [*zip(sizes, (1.0, 2.0), strict=True)]


ABOUT = {
    "device": "a GPU",
    "driver": "1",
    "torch": "2.11",
    "triton": "3.6",
    "tritongen": "0",
    "peers": "liger 0.8",
    "not installed": "quack",
    "date": "2026-01-01",
    "rounds": "3",
    "command": "tritongen bench --docs page.md",
}


def figures(op: str, rates: dict[str, float | None], unit: str = "GB/s", direction: str = "forward") -> list[Figure]:
    case = Case(op, direction, "bfloat16", "elements", 2**20)
    return [
        Figure(case, name, unit, rate, rate * 0.99, rate * 1.01, rate / 4000, 7.5)
        if rate
        else Figure(case, name, unit, error="RuntimeError: `no` <luck>")
        for name, rate in rates.items()
    ]


def test_the_page_has_a_table_for_each_direction_and_unit() -> None:
    found = (
        *figures("matmul", {"matmul": 700, "torch": 720, "torch.compile": 710}, "TFLOP/s"),
        *figures("softmax", {"softmax": 3000, "torch": 2000, "torch.compile": 2500, "liger": 2800}),
        *figures("softmax", {"softmax": 3000, "torch": 2000, "torch.compile": None}, direction="backward"),
        *figures("gelu", {"gelu": 2900, "torch": 2000, "torch.compile": 2910, "liger": None}),
    )
    text = page(Run(ABOUT, found))
    lines = text.splitlines()
    headings = [line for line in lines if line.startswith("## ")]
    assert headings == ["## Bound by memory", "## Matmuls and attention", "## Bound by memory, backward", "## Failed"]
    tables = [line for line in lines if line.startswith("a GPU, driver 1, torch 2.11, Triton 3.6, liger 0.8. 100% is ")]
    assert len(tables) == 3
    assert "Geometric mean of the ratios: 1.03; 0 of 2 are below 0.98." in tables[0]
    inputs = "bfloat16 elements=1,048,576"
    shown = f"| softmax | {inputs} | 3,000 [2,970, 3,030] | 75% | 50% | 62% | liger 70% | 1.07 | 7.5, 7.5 |"
    failed = f"| gelu | {inputs} | 2,900 [2,871, 2,929] | 72% | 50% | 73% | liger failed | 1.00 | 7.5, 7.5 |"
    assert {shown, failed} <= {*lines}
    assert any("| **0.97** |" in line for line in lines)
    assert "- liger, gelu forward: RuntimeError: 'no' &lt;luck>" in lines
    assert "- **Not installed**: quack." in lines
    assert "- **Command**: `tritongen bench --docs page.md`, 2026-01-01." in lines
    assert measured_in(text).shares["softmax"] == {"tritongen": 75, "torch": 50, "torch.compile": 62}
    assert measured_in(text).device == "a GPU, driver 1, torch 2.11, Triton 3.6, liger 0.8"
