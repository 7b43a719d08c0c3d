"""Tells how wide a linear layer of few rows copies to shared memory, by its lengths, for a GPU that is not there.

    python -m tests.compiling.matmuls FOLDER LENGTH...

Calls the operator in FOLDER on 16 rows and a weight of so many rows and columns, in bfloat16, with the gradient, whose
matrices have other contiguous axes, and prints the length, the kernel and the bytes of each asynchronous copy that a
thread makes. Run as a program of its own, as tests/compiling/operators.py.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch

from tests.compiling.operators import Launches, Operator

COPY = re.compile(r"cp\.async\.c[ag]\.shared\.global \[[^\]]*\], \[[^\]]*\], 0x([0-9a-f]+)")


def main() -> None:
    linear = Operator(Path(sys.argv[1])).function
    for length in map(int, sys.argv[2:]):
        launches = Launches()
        x, weight = (torch.empty(rows, length, dtype=torch.bfloat16, requires_grad=True) for rows in (16, length))
        linear(x, weight).backward(torch.empty(16, length, dtype=torch.bfloat16))
        for one in launches.compiled.values():
            if one.metadata.name in ("linear_kernel", "gemm_kernel"):
                copied = {int(size, 16) for size in COPY.findall(one.asm["ptx"])}
                print(length, one.metadata.name, *sorted(copied))


if __name__ == "__main__":
    main()
