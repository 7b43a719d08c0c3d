"""Counts what attention compiles as lengths change, for a GPU that is not there.

    python -m tests.compiling.lengths FOLDER

Calls the operator in FOLDER, with its gradient, on a hundred pairs of lengths, and prints the kernels that a pair was
the first to compile. Run as a program of its own, as tests/compiling/operators.py.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch

from tests.compiling.operators import Launches, Operator


def main() -> None:
    launches = Launches()
    attention = Operator(Path(sys.argv[1])).function
    lengths = random.Random(0)
    pairs = [(lengths.randint(65, 3000), lengths.randint(1, 3000)) for _ in range(100)]
    known: set[int] = set()
    for n_rows, n_cols in [(512, 512), *pairs]:
        q, k, v = (
            torch.empty(2, 3, length, 64, dtype=torch.bfloat16, requires_grad=True)
            for length in (n_rows, n_cols, n_cols)
        )
        attention(q, k, v, scale=0.125).sum().backward()
        new = launches.compiled.keys() - known
        known |= new
        names = sorted(launches.compiled[one].metadata.name for one in new)
        if names:
            print(" ".join(names))
    print(f"compiled {len(known)} of {len(known) + launches.refused}")


if __name__ == "__main__":
    main()
