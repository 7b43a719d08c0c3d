"""Traces operators under autograd, as torch.compile does before it compiles, and needs no GPU for it.

    python tests/runtime/traced.py

Prints the names of those that are one graph, with their gradients.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import torch
import torch.utils._triton

sys.path.insert(0, str(Path(__file__).parents[2]))
# Else torch takes kernels for Python functions.
torch.utils._triton.has_triton = lambda *_: True
torch.utils._triton.has_triton_package = lambda: True

SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "linear": ((40, 72), (96, 72), (96,)),
    "bij_bjk": ((3, 40, 72), (3, 72, 96)),
    "attention": ((2, 3, 40, 16), (2, 3, 50, 16), (2, 3, 50, 16)),
    "rms_norm": ((3, 5000), (5000,)),
    "sum": ((2, 100_000),),
    "outer": ((40,), (50,)),
}
PARAMS: dict[str, dict[str, Any]] = {"attention": {"scale": 0.1}}


class Traced(Exception):
    """Where compilation would begin."""


def stop(*_: Any) -> Any:
    raise Traced


def is_one_graph(name: str) -> bool:
    """Whether all is traced; else torch says at what it stopped."""
    operator = getattr(importlib.import_module(f"generated.{name}"), name)
    inputs = [torch.randn(shape, dtype=torch.bfloat16).requires_grad_() for shape in SHAPES[name]]
    try:
        torch.compile(operator, fullgraph=True, backend=stop)(*inputs, **PARAMS.get(name, {}))
    except torch._dynamo.exc.BackendCompilerFailed as error:
        return isinstance(error.inner_exception, Traced)
    return False


if __name__ == "__main__":
    for each in SHAPES:
        if is_one_graph(each):
            print(each)
