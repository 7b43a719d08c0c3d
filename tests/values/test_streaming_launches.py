"""What kernels that stream an axis are launched with: what they are compiled for, and tiles that are timed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

EXAMPLES = Path(__file__).parents[2] / "examples" / "specs"


def files_of(name: str, more: str = "") -> dict[str, str]:
    """The files of an example, with `more` in its spec."""
    return generate(read_spec(f"{name}.toml", (EXAMPLES / f"{name}.toml").read_text(encoding="utf-8") + more))


def not_specialized(text: str) -> dict[str, set[str]]:
    """By kernel, the arguments that Triton is told not to look at."""
    kernels = [one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef)]
    return {
        one.name: {name.value for name in ast.walk(one.decorator_list[0]) if isinstance(name, ast.Constant)}
        for one in kernels
    }


def test_a_bias_is_read_in_whole_pieces() -> None:
    """Triton is told nothing of steps that are as long as rows are many, but for those of whole matrices of scores."""
    found = not_specialized(files_of("attention_bias")["kernels.py"])
    assert {"n_rows", "n_cols", "stride_lse_0"} <= found["attention_bias_kernel"]
    assert not [name for names in found.values() for name in names if "bias" in name]
