"""Run benchmarks of emitted operators on a GPU: operator and peers alternate in random order; rates are medians of
rounds.

`triton.testing.do_bench` clears the L2 cache before each call, so that small sizes are memory-bound, too.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib
import inspect
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import __version__
from .peers import versions, with_peers
from .run import Case, Figure

Call = Callable[[], Any]
WARMUP, REPEAT = 10, 20  # milliseconds of each provider in a round
HOST_CALLS, HOST_ROUNDS, HOST_QUEUE = 20, 5, 40  # calls per round, rounds, and at most milliseconds of GPU per round
REFERENCES = ("torch", "torch.compile")
HALF, MORE = 2e-2, 1e-3  # tolerances relative to the largest value, for results of at most 16 bits and for others


@dataclass(frozen=True)
class Wanted:
    """The cases to measure: dtypes (none: a benchmark's default); directions; every size or the largest; rounds."""

    dtypes: tuple[str, ...] = ()
    directions: tuple[str, ...] = ("forward",)
    every: bool = True
    rounds: int = 5


def cases_of(op: str, benchmark: Any, wanted: Wanted) -> list[Case]:
    """The cases of an operator's benchmark by direction, dtype and size."""
    sizes = benchmark.sizes if wanted.every else (max(benchmark.sizes),)
    directions = [one for one in wanted.directions if one == "forward" or benchmark.wrt]
    return [
        Case(op, direction, dtype, benchmark.argument, size)
        for direction in directions
        for dtype in _dtypes(benchmark, wanted.dtypes)
        for size in sizes
    ]


def benchmark_of(package: str, op: str) -> Any:
    """The `BENCHMARK` of an operator in a package of emitted ones."""
    return importlib.import_module(f"{package}.{op}.bench_{op}").BENCHMARK


def _dtypes(benchmark: Any, wanted: Sequence[str]) -> list[str]:
    own = benchmark.dtypes.split()
    if not own:
        return [""]
    default = str(inspect.signature(benchmark.make).parameters["dtype"].default).removeprefix("torch.")
    return [name for name in wanted if name in own] or [default]


@dataclass
class _Provider:
    """A provider in a case: its call and context, the milliseconds of each round, and its error."""

    name: str
    call: Call | None = None
    context: Callable[[], Any] | None = None
    times: list[float] = field(default_factory=list)
    host_us: float | None = None
    error: str = ""

    def attempt(self, work: Callable[[], None]) -> None:
        """Do the work under the provider's context. An exception is recorded, and ends its part in the case."""
        if self.error:
            return
        try:
            with (self.context or contextlib.nullcontext)():
                work()
        except Exception as error:
            self.error = f"{type(error).__name__}: {' '.join(str(error).split()):.200}"
            self.call = None


def measure(benchmark: Any, case: Case, rounds: int) -> list[Figure]:
    """The figures of a case: the operator's first, then its peers', without the ceiling's.

    If a provider fails, or a peer computes something else, its figure has the error. Exceptions of drawing inputs are
    raised.
    """
    import torch

    torch.compiler.reset()
    made = {case.argument: case.size} | ({"dtype": getattr(torch, case.dtype)} if case.dtype else {})
    backward = case.direction == "backward"
    benchmark = with_peers(case.op, benchmark, backward)
    tensors = benchmark.inputs(**made)
    providers = [_Provider(name) for name in benchmark.providers if name != benchmark.ceiling_name]
    wanted: list[Any] = []
    for one in providers:
        one.context = benchmark.compared[one.name].under
        one.attempt(functools.partial(_prepare, one, benchmark, backward, tensors, wanted))
    wanted.clear()
    rng = random.Random(0)
    for _ in range(rounds):
        for one in rng.sample(providers, len(providers)):
            one.attempt(functools.partial(_time, one))
    for one in providers:
        if not backward:
            one.attempt(functools.partial(_time_host, one))
    work = benchmark.work(tensors, backward, case.size) if not providers[0].error else 0.0
    ceiling = benchmark.ceiling()[0]
    return [_figure(case, one, benchmark.unit, work, ceiling) for one in providers]


def _prepare(one: _Provider, benchmark: Any, backward: bool, tensors: Any, wanted: list[Any]) -> None:
    """Create the call, run it to compile its kernels, and compare its results with the first provider's.

    torch and torch.compile are not compared.
    """
    import torch

    torch.manual_seed(0)  # Upstream gradients are drawn.
    one.call = benchmark.run(one.name, backward, tensors)
    found = one.call()
    results = found if isinstance(found, tuple) else (found,)
    if not wanted:
        wanted += results
    elif one.name not in REFERENCES:
        _compare(results, wanted)


def _compare(results: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Raise ValueError if results differ from the `wanted` ones in dtype or size, or by more than the tolerance."""
    for place, (got, want) in enumerate(zip(results, wanted, strict=True)):
        if got.dtype != want.dtype or got.numel() != want.numel():
            shown = [f"{one.dtype} of {list(one.shape)}" for one in (got, want)]
            raise ValueError(f"result {place} is {shown[0]}, not {shown[1]}".replace("torch.", ""))
        largest, error = 0.0, 0.0
        for a, b in zip(got.reshape(-1).split(2**24), want.reshape(-1).split(2**24), strict=True):
            a, b = a.double(), b.double()
            error = max(error, float((a - b).abs().masked_fill(a == b, 0).nan_to_num(float("inf")).max()))
            largest = max(largest, float(b.abs().masked_fill(~b.isfinite(), 0).max()))
        if error > (HALF if want.itemsize <= 2 else MORE) * largest:
            raise ValueError(f"result {place} differs by {error:.2g}, where the largest value is {largest:.2g}")


def _time(one: _Provider) -> None:
    import triton

    one.times.append(triton.testing.do_bench(one.call, warmup=WARMUP, rep=REPEAT, return_mode="median"))


def _time_host(one: _Provider) -> None:
    """Measure the microseconds until a call returns, by few calls at a time, so that launches fit the GPU's queue."""
    import torch

    assert one.call
    calls = max(1, min(HOST_CALLS, int(HOST_QUEUE / statistics.median(one.times))))
    found = []
    for _ in range(HOST_ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            one.call()
        found.append((time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    one.host_us = round(statistics.median(found), 2)


def _figure(case: Case, one: _Provider, unit: str, work: float, ceiling: float) -> Figure:
    if one.error or not one.times or not work:
        return Figure(case, one.name, unit, error=one.error or "the operator failed")
    rates = [work / milliseconds * 1e3 for milliseconds in one.times]
    median = statistics.median(rates)
    rate, low, high, share = (float(f"{value:.5g}") for value in (median, min(rates), max(rates), median / ceiling))
    return Figure(case, one.name, unit, rate, low, high, share, one.host_us)


def about(command: str, ops: Sequence[str], rounds: int) -> dict[str, str]:
    """The device and its driver, versions of packages and peers, the date, rounds and command."""
    import subprocess

    import torch
    import triton

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = "unknown"
    found = {"torch": str(torch.__version__), "triton": triton.__version__, "tritongen": __version__, **versions(ops)}
    run = {"date": datetime.date.today().isoformat(), "rounds": str(rounds), "command": command}
    return {"device": torch.cuda.get_device_name(), "driver": driver, **found, **run}
