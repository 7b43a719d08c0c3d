"""Two trees of generated operators in turns, in one process: is a kernel or a call slower than it was?

    python bench/compare.py --before DIR [--part gallery,shapes] [--only NAME] [--json FILE]

DIR is a former generated/, or a checkout with one, of whatever layout:

    git archive --prefix=build/before/ <commit> generated | tar x; python bench/compare.py --before build/before

The parts are the gallery, with matrix products of 4,096; the cases of bench/shapes.py, products.py and backward.py, the
last with what else of the gallery has gradients; and host: microseconds of host time a call, as bench/host_time.py
has them.

A call of each tree is captured as a CUDA graph, and the graphs are replayed in turns, so that neither launches nor a
GPU that slows down are in the ratio; it is of medians, and what seems slower is measured in more rounds. What is not
done when the time is up is left out, and told: then give the parts runs of their own. Ends with 1 where something
failed, was left out, or is slower than the limit.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import backward
import products
import shapes
import torch
from gallery import DTYPE, ROOT, benchmark, noted, operators
from host_time import microseconds
from runner import operator

TREES = ("before", "after")  # the packages that the trees are imported as
PARTS = ("gallery", "shapes", "products", "backward", "host")
SIZES = {"elements": 2**28, "size": 4096}  # of what the operators' own benchmarks make
LIMIT = 1.02  # of a ratio
ROUNDS, CALLS = 7, 2000
REPLAY, ROUND = 1.0, 8.0  # milliseconds that a replay of a graph and a round take, at least
HOST = (  # An operator, and the shapes of its inputs; matrices by pointers and by descriptors.
    ("rms_norm", ((64, 1024), (1024,))),
    ("gelu", ((64, 1024),)),
    ("softmax", ((64, 1024),)),
    ("matmul", ((256, 256), (256, 256))),
    ("matmul", ((2560, 2560), (2560, 2560))),
)


@dataclass(frozen=True)
class Case:
    """A call of an operator that both trees have; of its backward alone where it is by some inputs."""

    name: str
    operator: str
    inputs: tuple[torch.Tensor, ...]
    params: dict[str, Any] = field(default_factory=dict)
    wrt: tuple[int, ...] = ()


@dataclass
class Row:
    """The microseconds of a case in both trees, or what went wrong."""

    part: str
    name: str
    before: float = float("nan")
    after: float = float("nan")
    errors: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.after / self.before


# The cases: each is made when the one before it is done with, since all do not fit in memory together.

Cases = Iterator[tuple[str, Callable[[], Case]]]


def of_gallery() -> Cases:
    for name in operators():
        yield name, partial(from_benchmark, name, name)


def from_benchmark(name: str, op: str, row: int = 0, backward: bool = False) -> Case:
    """What the benchmark of an operator makes, in rows of a length where it is given."""
    bench = benchmark(op)
    made = {bench.argument: SIZES[bench.argument]} | ({bench.row: row} if row else {})
    return Case(name, op, bench.inputs(**made), dict(bench.params), bench.wrt if backward else ())


def of_shapes() -> Cases:
    for op in shapes.ROWWISE:
        for length in shapes.LENGTHS:
            name = f"{op}, rows of {length}"
            yield name, partial(from_benchmark, name, op, length)
    for what, view in shapes.VIEWS.items():
        for op in shapes.REDUCTIONS:
            name = f"{op} of {what}"
            yield name, partial(reduced, name, op, view)


def reduced(name: str, op: str, view: Callable[[torch.Tensor], torch.Tensor]) -> Case:
    return Case(name, op, (view(torch.randn(2**26, device="cuda").bfloat16()),))


def of_products() -> Cases:
    for case in products.cases(""):
        yield case.name, partial(Case, case.name, case.operator, case.inputs)


def of_backward() -> Cases:
    known = set()
    for name, op, _, tensors, _ in backward.cases(SIZES["elements"]):
        known.add(op)
        yield name, partial(Case, name, op, tuple(tensors), wrt=tuple(range(len(tensors))))
    for op in operators():
        if op not in known and benchmark(op).wrt:
            yield op, partial(from_benchmark, op, op, backward=True)


CASES: dict[str, Callable[[], Cases]] = {
    "gallery": of_gallery,
    "shapes": of_shapes,
    "products": of_products,
    "backward": of_backward,
}


# Times.


class Captured:
    """A call as a CUDA graph that takes about as long as REPLAY."""

    def __init__(self, call: Callable[[], Any], stream: torch.cuda.Stream) -> None:
        self.calls = 1
        milliseconds = min(self.timed(call, stream) for _ in range(3))
        self.calls = max(1, min(100, round(REPLAY / max(milliseconds, 1e-3))))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            for _ in range(self.calls):
                call()
        self.replays = max(1, round(ROUND / (self.calls * self.milliseconds(2))))

    def timed(self, run: Callable[[], Any], stream: torch.cuda.Stream, times: int = 1) -> float:
        """Milliseconds that a call takes on a stream."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            start.record()
            for _ in range(times):
                run()
            end.record()
        end.synchronize()
        return start.elapsed_time(end) / (times * self.calls)

    def milliseconds(self, replays: int = 0) -> float:
        """Milliseconds that a call takes in some replays of the graph, by default in those of a round."""
        return self.timed(self.graph.replay, torch.cuda.current_stream(), replays or self.replays)


def call_of(case: Case, tree: str) -> Callable[[], Any]:
    """What is captured of a case: the operator, or the backward of a graph that is kept."""
    function = partial(operator(case.operator, tree), **case.params)
    if not case.wrt:
        return partial(function, *case.inputs)
    from generated._testing.benchmarking import Graph

    return Graph(function, case.inputs, case.wrt).backward


def compare(case: Case) -> tuple[float, ...]:
    """Microseconds of a call before and after: the medians of rounds, in which both alternate at being the first."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # Autograd runs the backward on the stream of the forward.
        calls = [call_of(case, tree) for tree in TREES]
    graphs = [Captured(call, stream) for call in calls]
    times: list[list[float]] = [[] for _ in graphs]
    for most in (ROUNDS, 3 * ROUNDS):
        while len(times[0]) < most:
            order = (0, 1) if len(times[0]) % 2 else (1, 0)
            for place in order:
                times[place].append(graphs[place].milliseconds())
        medians = tuple(1e3 * statistics.median(found) for found in times)
        if medians[1] <= 1.01 * medians[0]:
            break
    return medians


def compare_host(device: str, wait: Callable[[], None], only: str) -> Iterator[Row]:
    """The least host time of a call in rounds of many, which a processor that others use disturbs."""
    for name, sizes in HOST:
        plain = [torch.randn(size, dtype=DTYPE, device=device) for size in sizes]
        leaves = [tensor.clone().requires_grad_() for tensor in plain]
        for how, tensors in (("", plain), (" under autograd", leaves)):
            row = Row("host", f"{name} of {'x'.join(map(str, sizes[0]))}{how}")
            if only not in row.name:
                continue
            with noted(row, "host"):
                calls = [partial(operator(name, tree), *tensors) for tree in TREES]
                rounds = [[microseconds(call, CALLS, wait) for call in calls] for _ in range(ROUNDS)]
                row.before, row.after = map(min, zip(*rounds, strict=True))
            yield row


# The run.


def load(folder: Path, name: str) -> None:
    """Make a tree's operators importable from a package of a name. Raises FileNotFoundError where it has none."""
    home = folder / "generated" if (folder / "generated").is_dir() else folder
    if not any(home.glob("*/__init__.py")):
        raise FileNotFoundError(f"{home} has no operators")
    package = ModuleType(name)
    package.__path__ = [str(home.resolve())]
    sys.modules[name] = package


def measured(part: str, only: str, until: float) -> Iterator[Row]:
    """The rows of a part whose names have a text in them."""
    if part == "host":
        yield from compare_host("cuda", torch.cuda.synchronize, only)
        return
    for name, make in CASES[part]():
        if only not in name:
            continue
        with noted(row := Row(part, name), part):
            if time.monotonic() > until:
                raise TimeoutError("left out")
            row.before, row.after = compare(make())
        del make
        gc.collect()
        torch.cuda.empty_cache()
        yield row


def table(rows: list[Row]) -> str:
    """Markdown, the worst last, and after it what failed."""
    lines = ["| part | case | before, us | after, us | after / before |", "|---|---|--:|--:|--:|"]
    for row in sorted((row for row in rows if not row.errors), key=lambda row: row.ratio):
        mark = "**" if row.ratio > LIMIT else ""
        lines.append(
            f"| {row.part} | {row.name} | {row.before:,.2f} | {row.after:,.2f} | {mark}{row.ratio:.3f}{mark} |"
        )
    lines += ["", *(f"- {row.name}: failed in {error}" for row in rows for error in row.errors)]
    slower = sum(row.ratio > LIMIT for row in rows)
    return "\n".join([*lines, f"{slower} of {len(rows)} are slower by more than {LIMIT - 1:.0%}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, metavar="DIR")
    parser.add_argument("--after", type=Path, default=ROOT, metavar="DIR", help="by default this checkout")
    parser.add_argument("--part", default=",".join(PARTS), help=f"of {', '.join(PARTS)}, with commas between")
    parser.add_argument("--only", default="", metavar="NAME", help="the cases whose name has this in it")
    parser.add_argument("--seconds", type=float, default=460, help="after which further cases are left out")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    parts = options.part.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    try:
        for name in TREES:
            load(getattr(options, name), name)
    except FileNotFoundError as error:
        parser.error(str(error))
    if not torch.cuda.is_available():
        parser.exit(4, "bench/compare.py needs a GPU\n")
    until = time.monotonic() + options.seconds
    rows = []
    for part in sorted(parts, key=lambda part: part != "host"):  # Quick, and then done before the time is up.
        for row in measured(part, options.only, until):
            rows.append(row)
            told = "; ".join(row.errors) or f"{row.before:10.2f} {row.after:10.2f} {row.ratio:.3f}"
            print(f"{row.part:9} {row.name:50} {told}", file=sys.stderr, flush=True)
    print(table(rows))
    if options.json:
        known = [{key: value for key, value in asdict(row).items() if value == value} for row in rows]  # No NaN.
        options.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(row.errors or row.ratio > LIMIT for row in rows))


if __name__ == "__main__":
    main()
