"""Decoding from pages of bfloat16 and of float8, whose values and scales are the same.

    tritongen build examples/specs/
    python bench/caches.py [--only SEQUENCES]

Prints a Markdown table for docs/design/attention.md: us and GB/s of keys and values, in CUDA graphs that alternate, of
which medians are compared, and the relative difference of the results. Pages have 16 positions and are in random order,
heads are of 128.
"""

from __future__ import annotations

from functools import partial

import runner
import torch
from runner import graphs, medians, operator

S, D = 16, 128
SIZES = [  # sequences, heads of keys, heads of queries for each, pages
    (16, 8, 4, 64),
    (16, 8, 4, 256),
    (16, 8, 4, 1024),
    (64, 8, 4, 256),
    (16, 8, 8, 512),
    (1, 8, 4, 4096),
    (16, 32, 1, 256),
    (4, 8, 4, 64),
]


def measured(n: int, heads: int, group: int, pages: int) -> str:
    """A line of the table."""
    random = torch.Generator("cuda").manual_seed(0)
    wide = {"device": "cuda", "dtype": torch.bfloat16, "generator": random}
    q = torch.randn(n, heads * group, 1, D, **wide)
    k, v = (torch.randn(n * pages, S, heads, D, **wide).to(torch.float8_e4m3fn) for _ in range(2))
    page = torch.randperm(n * pages, device="cuda", generator=random).view(n, pages).int()
    length = torch.full((n,), pages * S, device="cuda", dtype=torch.int32)
    ones = torch.ones(heads, device="cuda")
    given = k.bfloat16(), v.bfloat16()
    plain = partial(operator("attention_paged", "ops"), q, *given, page, length, scale=D**-0.5)
    float8 = partial(operator("attention_float8", "ops"), q, k, v, ones, ones, page, length, scale=D**-0.5)
    wanted, found = plain().double(), float8().double()
    difference = float((found - wanted).norm() / wanted.norm())
    taken = medians(graphs({"bfloat16": plain, "float8": float8}))
    times = [1e3 * taken[name] for name in ("bfloat16", "float8")]
    rates = [2 * k.numel() * size / time / 1e3 for time, size in zip(times, (2, 1), strict=True)]
    texts = (f"{time:.1f}, {rate:,.0f}" for time, rate in zip(times, rates, strict=True))
    sizes = f"{n} x {heads * group}, {heads} | {pages * S:,}"
    return f"| {sizes} | {' | '.join(texts)} | {times[0] / times[1]:.2f} | {difference:.1e} |"


def main() -> None:
    options = runner.given(runner.parser(__doc__, "number of sequences"), "examples/specs")
    print("| sequences x heads of queries, of keys | positions | bfloat16 | float8 | times as fast | difference |")
    print("|---|--:|--:|--:|--:|--:|")
    for size in SIZES:
        if options.only in str(size[0]):
            print(measured(*size), flush=True)


if __name__ == "__main__":
    main()
