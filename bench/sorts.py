"""Times of sorting, of sums by index and of recurrences, on a GPU, beside torch.

    tritongen build examples/specs; python bench/sorts.py

The operators are those of the examples. Prints a Markdown table for docs/design/sorting.md: medians of microseconds,
with the time of the host, and seconds of the first call, which compiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import runner
import torch

K = 8
operator = partial(runner.operator, package="ops")


def index_add(x: torch.Tensor, node: torch.Tensor, n: int) -> torch.Tensor:
    return torch.zeros(n, x.shape[1], device=x.device, dtype=x.dtype).index_add_(0, node, x)


def cases() -> Iterator[tuple[str, torch.dtype, tuple[int, ...], Callable[[], Any], Callable[[], Any]]]:
    """What, of which dtype and lengths, ours and torch's."""
    for dtype in (torch.float32, torch.bfloat16):
        for rows, cols in ((65536, 64), (16384, 256), (4096, 1024), (1024, 4096)):
            x = torch.randn(rows, cols, device="cuda", dtype=dtype)
            theirs: Callable[[], Any] = partial(torch.sort, x, dim=-1, stable=True)
            yield "sort", dtype, (rows, cols), partial(operator("sort"), x), theirs
            yield "topk", dtype, (rows, cols, K), partial(operator("topk"), x, k=K), partial(torch.topk, x, K)
        for terms, cols, n in ((65536, 256, 8192), (2**20, 64, 32768), (8192, 1024, 50257)):
            x = torch.randn(terms, cols, device="cuda", dtype=dtype)
            node = torch.randint(0, n, (terms,), device="cuda")
            ours = partial(operator("scatter_sum"), x, node, n_nodes=n)
            yield "scatter_sum", dtype, (terms, cols, n), ours, partial(index_add, x, node, n)
    x, decay = torch.randn(8, 4096, 1024, device="cuda"), torch.rand(8, 4096, 1024, device="cuda")
    ours = partial(operator("recurrence"), x, decay)
    yield "recurrence, and cumsum of torch", x.dtype, tuple(x.shape), ours, partial(torch.cumsum, x, 1)


def main() -> None:
    options = runner.given(runner.parser(__doc__, "cases"), "examples/specs")
    print("| | dtype | lengths | ours | torch | first call |\n|---|---|---|--:|--:|--:|")
    for what, dtype, lengths, ours, theirs in cases():
        if options.only not in what:
            continue
        start = time.perf_counter()
        ours()
        torch.cuda.synchronize()
        first = time.perf_counter() - start
        shape = "x".join(map(str, lengths))
        times = f"{1e3 * runner.milliseconds(ours):.1f} | {1e3 * runner.milliseconds(theirs):.1f} | {first:.1f}"
        print(f"| {what} | {str(dtype).removeprefix('torch.')} | {shape} | {times} |", flush=True)


if __name__ == "__main__":
    main()
