"""Rates of row-wise math by the length of a row, and of reductions by axis, on a GPU.

    python bench/shapes.py [--numel 268435456]

Prints Markdown tables for docs/performance.md: bfloat16, medians, shares of torch's copy of 1 GiB in the
same run, each as ours / torch / torch.compile.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
LENGTHS = [2**n for n in range(8, 19, 2)]
ROWWISE = ("softmax", "log_softmax", "layer_norm", "rms_norm", "fused_add_rms_norm", "sum", "argmax", "logsumexp")
REDUCED = {
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
    copy = bench("softmax").copy_rate()[0]
    print(f"Copy ceiling {copy:,.0f} GB/s. Each cell: ours / torch / torch.compile, % of it.\n")
    head = "|".join(f" {length:,} " for length in LENGTHS)
    print(f"| row length |{head}|\n|---|{'--:|' * len(LENGTHS)}")
    for name in ROWWISE:
        cells = [by_length(name, options.numel, length, copy) for length in LENGTHS]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    names = ("sum", "amax", "argmax", "var")
    print(f"\n| 2^26 elements, over | {' | '.join(names)} |\n|---|{'--:|' * len(names)}")
    flat = torch.randn(2**26, device="cuda").bfloat16()
    for what, view in REDUCED.items():
        cells = [reduced(name, view(flat), copy) for name in names]
        print(f"| {what} | {' | '.join(cells)} |", flush=True)


def bench(name: str) -> Any:
    return importlib.import_module(f"generated.{name}.bench_{name}")


def by_length(name: str, numel: int, length: int, copy: float) -> str:
    module = bench(name)
    rates = [module.measure(numel, provider, length, torch.bfloat16)[0] for provider in module.PROVIDERS[:3]]
    return cell(rates, copy)


def reduced(name: str, x: torch.Tensor, copy: float) -> str:
    """Over the last axis of a view, which is another axis of the memory behind it."""
    module = bench(name)
    torch.compiler.reset()
    ours: Callable[..., Any] = getattr(importlib.import_module(f"generated.{name}"), name)
    functions = (ours, module.reference, torch.compile(module.reference, dynamic=False))
    count = module.moved(x, ours(x))
    return cell([module.rates(lambda run=function: run(x), count)[0] for function in functions], copy)


def cell(rates: list[float], copy: float) -> str:
    return " / ".join(f"{100 * rate / copy:.0f}" for rate in rates)


if __name__ == "__main__":
    main()
