"""Triton's interpreter, which multiplies the bits of bfloat16 matrices: as integers, they make no product."""

from typing import Any

import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder

_create_dot = InterpreterBuilder.create_dot


def _create_dot_of_floats(
    builder: InterpreterBuilder, left: Any, right: Any, *others: Any
) -> Any:
    """tl.dot of matrices in float32, if they are in bfloat16."""
    left, right = (
        builder.cast_impl(one, tl.float32) if one.dtype.scalar == tl.bfloat16 else one
        for one in (left, right)
    )
    return _create_dot(builder, left, right, *others)


def multiply_bfloat16() -> None:
    """Have the interpreter multiply bfloat16 matrices as GPUs do."""
    InterpreterBuilder.create_dot = _create_dot_of_floats
