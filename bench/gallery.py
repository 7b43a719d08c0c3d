"""Rates of the gallery's operators on a GPU, next to torch and torch.compile: docs/performance.md.

    python bench/gallery.py [--ops softmax,gelu] [--numel 268435456] [--markdown FILE] [--json FILE]

Every operator's own benchmark measures, in bfloat16 and in rows of 4,096 where there are rows: median
times, minimal bytes (each input and output once), against torch's copy of 1 GiB in the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import shlex
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
DTYPE = torch.bfloat16
COLUMNS = ("ours", "torch", "compile", "copy")  # as a benchmark has its providers
SLOWER = 0.97  # of torch.compile's rate: below it an operator is set in bold


@dataclass(slots=True)
class Row:
    """An operator's rates in GB/s, NaN where there is none, and what went wrong."""

    name: str
    shapes: list[str] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COLUMNS, math.nan))
    errors: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.rates["ours"] / self.rates["compile"]


def bound_by_memory() -> list[str]:
    """The gallery but for matrix products, which bench/products.py measures."""
    return [name for name in operators() if benchmark(name).argument == "elements"]


def operators() -> list[str]:
    return sorted(path.stem for path in (ROOT / "specs").glob("*.toml"))


def benchmark(name: str) -> Any:
    """What the benchmark of an operator says."""
    return importlib.import_module(f"generated.{name}.bench_{name}").BENCHMARK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="names with commas between; without it, all of them")
    parser.add_argument("--numel", type=int, default=2**28)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(4, "bench/gallery.py needs a GPU\n")
    sys.path.insert(0, str(ROOT))
    from tritongen.benching.measure import about

    names = options.ops.split(",") if options.ops else bound_by_memory()
    rows = []
    for name in names:
        rows.append(measure(name, options.numel))
        print(told(rows[-1]), file=sys.stderr, flush=True)
    run: dict[str, Any] = about(shlex.join(["python", *sys.argv]))
    run |= {"elements": options.numel, "dtype": str(DTYPE).removeprefix("torch.")}
    ceiling = statistics.median([row.rates["copy"] for row in rows if row.rates["copy"] > 0] or [math.nan])
    text = markdown(rows, run, ceiling)
    print(text)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(record(rows, run, ceiling), indent=1) + "\n", encoding="utf-8")
    sys.exit(any(row.errors for row in rows))


def measure(name: str, numel: int) -> Row:
    row = Row(name)
    with noted(row, "inputs"):
        bench = benchmark(name)
        row.shapes = [" x ".join(map(str, tensor.shape)) for tensor in bench.inputs(elements=numel, dtype=DTYPE)]
        for column, provider in zip(COLUMNS, bench.providers, strict=True):
            with noted(row, column):
                row.rates[column] = bench.measure(provider, elements=numel, dtype=DTYPE)[0]
    torch.cuda.empty_cache()
    return row


@contextlib.contextmanager
def noted(row: Any, what: str) -> Iterator[None]:
    """Adds what is raised inside to the row's errors, so that the others go on."""
    try:
        yield
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        row.errors.append(f"{what}: {type(error).__name__}: {first[:200]}")


def markdown(rows: list[Row], run: dict[str, Any], ceiling: float) -> str:
    """Shares of the ceiling, and how fast the kernel is next to torch.compile's."""
    lines = [
        "{device}, driver {driver}, torch {torch}, Triton {triton}: `{command}`.".format_map(run),
        f"{run['elements']:,} elements, {run['dtype']}. The copy ceiling is {ceiling:,.0f} GB/s; shares are of it.",
        "",
        "| op | inputs | GB/s | share | torch | torch.compile | ours / compile |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        ours, torchs, compiled = (shown(row.rates[name] / ceiling, "{:.0%}") for name in COLUMNS[:3])
        mark = "**" if row.ratio < SLOWER else ""
        ratio = shown(row.ratio, f"{mark}{{:.2f}}{mark}")
        rate = shown(row.rates["ours"], "{:,.0f}")
        lines.append(f"| {row.name} | {', '.join(row.shapes)} | {rate} | {ours} | {torchs} | {compiled} | {ratio} |")
    errors = [f"- {row.name}, {error}" for row in rows for error in row.errors]
    return "\n".join([*lines, *(["", "Failed:", "", *errors] if errors else [])]) + "\n"


def shown(value: float, form: str) -> str:
    return "failed" if math.isnan(value) else form.format(value)


def told(row: Row) -> str:
    return " ".join([f"{row.name:20}", *(f"{name} {row.rates[name]:6.0f}" for name in COLUMNS), *row.errors])


def record(rows: list[Row], run: dict[str, Any], ceiling: float) -> dict[str, Any]:
    ops: dict[str, dict[str, Any]] = {}
    for row in rows:
        rates = {name: None if math.isnan(rate) else round(rate, 1) for name, rate in row.rates.items()}
        ops[row.name] = {"inputs": row.shapes, "gb_per_s": rates, "errors": row.errors}
        figures = {"share": row.rates["ours"] / ceiling, "ours_over_compile": row.ratio}
        ops[row.name] |= {key: round(figure, 4) for key, figure in figures.items() if not math.isnan(figure)}
    return run | {"ceiling_gb_per_s": None if math.isnan(ceiling) else round(ceiling, 1), "ops": ops}


if __name__ == "__main__":
    main()
