"""Row-wise operators at the sizes that models have, as CUDA graphs, beside torch and torch.compile.

    python bench/sizes.py [--only NAME] [--warm]

Prints a Markdown table for docs/performance.md: bfloat16, for each operator and size the ratio of the faster of the two
peers to ours, then the cases below 0.95 with their microseconds, and the geometric mean. --warm compiles and launches
each call once without timing it, so that several processes can fill the caches of Triton and of Inductor beforehand.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import runner
import torch
from compare import Captured
from gallery import DTYPE, benchmark

OPERATORS = (
    *("rms_norm", "layer_norm", "fused_add_rms_norm", "softmax", "logsumexp", "cross_entropy", "sum"),
    *("gelu", "swiglu"),  # elementwise: only how many elements there are counts
)
SIZES = (
    *((1, 4096), (16, 4096), (64, 8192), (512, 2048), (1000, 3000), (4096, 1024), (4096, 5120), (8192, 8192)),
    *((16384, 2048), (16384, 16384), (32768, 64), (262144, 128), (2048, 32000), (256, 65536), (64, 262144)),
)
ROUNDS = 9
BELOW = 0.95


def calls(name: str, rows: int, columns: int) -> dict[str, Callable[[], Any]]:
    """Ours and its peers, of the same inputs."""
    bench = benchmark(name)
    length = {bench.row: columns} if bench.row else {}
    inputs = bench.inputs(elements=rows * columns, dtype=DTYPE, **length)
    return {provider: partial(bench.function(provider), *inputs) for provider in bench.providers[:3]}


def microseconds(runs: dict[str, Callable[[], Any]]) -> list[float]:
    """The medians of rounds in which the calls alternate, as graphs; of more where ours seems slower."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for run in runs.values():  # Compiled, and known to the launch cache, before anything is captured.
        run(), run()
    graphs = [Captured(run, stream) for run in runs.values()]
    rounds: list[list[float]] = []
    medians = [math.inf, 0.0]
    for most in (ROUNDS, 3 * ROUNDS):
        if min(medians[1:]) < BELOW * medians[0]:
            rounds += [[graph.milliseconds() for graph in graphs] for _ in range(most - len(rounds))]
            medians = [1e3 * statistics.median(times) for times in zip(*rounds, strict=True)]
    return medians


def main() -> None:
    parser = runner.parser(__doc__, "operators")
    parser.add_argument("--warm", action="store_true", help="compile, and time nothing")
    options = runner.given(parser)
    names = [name for name in OPERATORS if options.only in name]
    ratios, short = {}, []
    for rows, columns in SIZES:
        for name in names:
            runs = calls(name, rows, columns)
            if options.warm:
                for run in runs.values():
                    run()
                continue
            ours, *peers = microseconds(runs)
            ratios[rows, columns, name] = ratio = min(peers) / ours
            told = f"{name} {rows}x{columns}: {ours:.1f}, {', '.join(f'{peer:.1f}' for peer in peers)} ({ratio:.2f})"
            print(told, flush=True)
            short += [told] if ratio < BELOW else []
    if options.warm:
        return
    print(f"\n| rows x columns | {' | '.join(names)} |\n|---|{'--:|' * len(names)}")
    for rows, columns in SIZES:
        row = [f"{ratios[rows, columns, name]:.2f}" for name in names]
        print(f"| {rows:,} x {columns:,} | {' | '.join(row)} |")
    mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
    print(f"\nGeometric mean {mean:.3f}. Below {BELOW} (ours, torch, torch.compile, microseconds):")
    print("\n".join(f"- {one}" for one in short))


if __name__ == "__main__":
    main()
