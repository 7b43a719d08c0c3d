"""Compiles the kernels of the runtime's scatter-add for a GPU that is not there.

    python -m tests.compiling.scatter TARGET

Prints what tests/compiling/operators.py prints: what Triton refuses, and how many kernels it took. Each launch is
compiled once more with its integers as constants, which is what torch.compile makes of 0 and 1.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import torch
import triton
from triton.compiler import ASTSource
from triton.runtime.jit import mangle_type

from tests.compiling.operators import TARGETS, Launches
from tests.harness.importing import runtime_module


class ConstantLaunches(Launches):
    def compile(self, kernel: Any, *arguments: Any, **named: Any) -> None:
        super().compile(kernel, *arguments, **named)
        given = dict(zip(kernel.arg_names, arguments, strict=False)) | named
        given = {name: given[name] for name in kernel.arg_names}
        tensors = {name for name, value in given.items() if isinstance(value, torch.Tensor)}
        signature = {name: mangle_type(value) if name in tensors else "constexpr" for name, value in given.items()}
        constants = {name: value for name, value in given.items() if name not in tensors}
        try:
            compiled = triton.compile(ASTSource(kernel, signature, constants), TARGETS[self.driver.target])
            self.compiled[id(compiled)] = compiled
        except Exception as error:
            self.refuse(f"{kernel.__name__} with constants for {self.driver.target}: {error}")


def main(target: str) -> None:
    launches = ConstantLaunches()
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
