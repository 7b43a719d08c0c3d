"""That functions of the runtime and of the harness of emitted tests take few parameters."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TEMPLATES = Path(__file__).parents[2] / "templates"
MOST = 12
# Kernels, whose arguments Triton wants one by one.
KERNELS = {
    "gemm_kernels.py": {
        "gemm_kernel",
        "multiply_block",
        "gemm_tma_kernel",
        "gemm_stream_k_kernel",
        "gemm_reduce_kernel",
    },
    "split_kernels.py": {"gemm_split_kernel"},
    "scatter_sums_kernels.py": {"segments_kernel"},
}


def n_parameters(function: ast.FunctionDef | ast.Lambda) -> int:
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return len(named) + (given.vararg is not None) + (given.kwarg is not None)


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*/*.py")), ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_functions_take_few_parameters(path: Path) -> None:
    """More are a tuple with names. What is listed above and takes no more is to be taken off the list."""
    functions = [one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.FunctionDef)]
    assert {one.name for one in functions if n_parameters(one) > MOST} == KERNELS.get(path.name, set())
