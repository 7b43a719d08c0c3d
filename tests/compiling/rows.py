"""Tells how wide kernels over rows load and store, by what divides the length of a row, for a GPU that is not there.

    python -m tests.compiling.rows FOLDER LENGTH...

Calls the operator in FOLDER on rows of each length in bfloat16, with its gradient by all inputs, and prints the length
and the bits of each access to global memory that a thread makes. A program of its own, as tests/compiling/operators.py.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch

from tests.compiling.operators import Launches, Operator

ACCESS = re.compile(r"(?:ld|st)\.global(?:\.L\w+)*(?:\.(v[248]))?\.[bu](\d+)")


def main() -> None:
    operator = Operator(Path(sys.argv[1])).function
    for length in map(int, sys.argv[2:]):
        launches = Launches()
        x, weight = torch.empty(64, length, dtype=torch.bfloat16), torch.empty(length, dtype=torch.bfloat16)
        operator(x.requires_grad_(), weight.requires_grad_()).sum().backward()
        for one in launches.compiled.values():
            found = ACCESS.findall(one.asm["ptx"])
            bits = {int(vector[1:] or 1) * int(width) for vector, width in found}
            print(length, one.metadata.name, *sorted(bits))


if __name__ == "__main__":
    main()
