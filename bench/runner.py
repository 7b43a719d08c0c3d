"""What the programs of this folder share: their options, operators, and calls that alternate on a GPU."""

from __future__ import annotations

import argparse
import importlib
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import triton

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 9
Call = Callable[[], Any]

sys.path.insert(0, str(ROOT))


def parser(about: str | None, only: str) -> argparse.ArgumentParser:
    """The options of a program that says what it is about, and what `--only` chooses by name."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", default="", help=f"the {only} whose name has this in it")
    return made


def given(made: argparse.ArgumentParser) -> argparse.Namespace:
    """The options, where there is a GPU and the operators of bench/plans/specs are built; else exits."""
    options = made.parse_args()
    if not torch.cuda.is_available():
        made.exit(4, f"bench/{made.prog} needs a GPU\n")
    if not (ROOT / "bench/plans/ops").exists():
        made.exit(2, "tritongen build bench/plans/specs: there are no kernels to time\n")
    return options


def operator(name: str) -> Callable[..., Any]:
    """The function of an operator: of the gallery, of the examples, or of bench/plans."""
    packages = "generated", "examples.ops", "bench.plans.ops"
    package = next(one for one in packages if (ROOT / one.replace(".", "/") / name).exists())
    found: Callable[..., Any] = getattr(importlib.import_module(f"{package}.{name}"), name)
    return found


def milliseconds(run: Call, rep: int = 20) -> float:
    return float(triton.testing.do_bench(run, warmup=10, rep=rep, return_mode="median"))


def medians(runs: Mapping[str, Call], rounds: int = ROUNDS) -> dict[str, float]:
    """Milliseconds of calls that alternate in an order drawn for each round: the medians of the rounds."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name in random.sample(sorted(runs), len(runs)):
            times[name].append(milliseconds(runs[name]))
    return {name: statistics.median(found) for name, found in times.items()}


def rates(runs: Mapping[str, Call], operations: float, rounds: int = ROUNDS) -> dict[str, float]:
    """TFLOP/s of such calls."""
    return {name: operations / found * 1e-9 for name, found in medians(runs, rounds).items()}


def cells(times: Sequence[float]) -> list[str]:
    """Milliseconds of ours and of its peers as microseconds, and how many times as long the fastest of those takes."""
    return [", ".join(f"{1000 * time:,.0f}" for time in times), f"{min(times[1:]) / times[0]:.2f}"]


def graph(call: Call) -> Call:
    """What launches the kernels of a call again."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        call()
    return captured.replay
