"""Rates of row-wise math by the length of a row, and of reductions by axis, on a GPU.

    python bench/shapes.py [--numel 268435456]

Prints Markdown tables for docs/performance.md: bfloat16, medians, shares of torch's copy of 1 GiB in the
same run, each as ours / torch / torch.compile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial

import torch
from gallery import ROOT, benchmark

LENGTHS = [2**n for n in range(8, 19, 2)]
ROWWISE = ("softmax", "log_softmax", "layer_norm", "rms_norm", "fused_add_rms_norm", "sum", "argmax", "logsumexp")
REDUCTIONS = ("sum", "amax", "argmax", "var")
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "[8192, 8192], last": lambda x: x.view(8192, 8192),
    "[8192, 8192], first": lambda x: x.view(8192, 8192).T,
    "[8192, 8192], all": lambda x: x.view(1, -1),
    "[16, 2^22], last": lambda x: x.view(16, -1),
    "[16, 2^22], first": lambda x: x.view(16, -1).T,
    "[2^18, 256], last": lambda x: x.view(-1, 256),
    "[2^18, 256], first": lambda x: x.view(-1, 256).T,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numel", type=int, default=2**28)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(4, "bench/shapes.py needs a GPU\n")
    sys.path.insert(0, str(ROOT))
    copy = benchmark("softmax").ceiling()[0]
    print(f"Copy ceiling {copy:,.0f} GB/s. Each cell: ours / torch / torch.compile, % of it.\n")
    head = "|".join(f" {length:,} " for length in LENGTHS)
    print(f"| row length |{head}|\n|---|{'--:|' * len(LENGTHS)}")
    for name in ROWWISE:
        cells = [by_length(name, options.numel, length, copy) for length in LENGTHS]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"\n| 2^26 elements, over | {' | '.join(REDUCTIONS)} |\n|---|{'--:|' * len(REDUCTIONS)}")
    for what, x in views():
        cells = [reduced(name, x, copy) for name in REDUCTIONS]
        print(f"| {what} | {' | '.join(cells)} |", flush=True)


def by_length(name: str, numel: int, length: int, copy: float) -> str:
    bench = benchmark(name)
    made = {"elements": numel, bench.row: length, "dtype": torch.bfloat16}
    return cell([bench.measure(provider, **made)[0] for provider in bench.providers[:3]], copy)


def views() -> Iterator[tuple[str, torch.Tensor]]:
    """What is reduced over its last axis, which is another axis of the memory behind it."""
    flat = torch.randn(2**26, device="cuda").bfloat16()
    for what, view in VIEWS.items():
        yield what, view(flat)


def reduced(name: str, x: torch.Tensor, copy: float) -> str:
    from generated._testing.benchmarking import quantiles

    bench = benchmark(name)
    work = bench.work((x,), backward=False, size=x.numel())
    return cell([quantiles(partial(bench.function(provider), x), work)[0] for provider in bench.providers[:3]], copy)


def cell(rates: list[float], copy: float) -> str:
    return " / ".join(f"{100 * rate / copy:.0f}" for rate in rates)


if __name__ == "__main__":
    main()
