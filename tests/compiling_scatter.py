"""Compiles the kernels of the runtime's scatter-add for a GPU that is not there: `compiling_scatter.py TARGET`.

Like tests/compiling.py, of which it prints the same: what Triton refuses, and how many kernels it took.
"""

from __future__ import annotations

import itertools
import sys

import torch
from compiling import Launches
from importing import runtime_module


def main(target: str) -> None:
    launches = Launches()
    launches.driver.target = target
    scatter = runtime_module("scatter_sums")
    for dtype, positions in ((torch.bfloat16, torch.uint8), (torch.float32, torch.int64), (torch.float64, torch.int32)):
        for n_cols, deterministic in itertools.product((1, 4096), (True, False)):
            terms, sums = (torch.empty((rows, n_cols), dtype=dtype) for rows in (200, 7))
            at = torch.zeros((1, 200), dtype=positions)
            scatter.scatter_sum(terms, at, sums, deterministic=deterministic)
    for name in {name for name in vars(scatter.kernels) if name.endswith("_kernel")} - launches.launched:
        launches.refuse(f"{name} was not launched")
    print(f"compiled {len(launches.compiled)} of {len(launches.compiled) + launches.refused}")


if __name__ == "__main__":
    main(sys.argv[1])
