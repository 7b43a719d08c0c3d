"""Triton's interpreter, mended where it takes the bits of bfloat16 for integers: in matmuls, and in casts."""

from typing import Any

import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder

_create_dot, _cast = InterpreterBuilder.create_dot, InterpreterBuilder.cast_impl


def _create_dot_of_floats(
    builder: InterpreterBuilder, left: Any, right: Any, *others: Any
) -> Any:
    """tl.dot of matrices in float32, if they are in bfloat16."""
    left, right = (
        builder.cast_impl(one, tl.float32) if one.dtype.scalar == tl.bfloat16 else one
        for one in (left, right)
    )
    return _create_dot(builder, left, right, *others)


def _cast_by_float32(builder: InterpreterBuilder, source: Any, dtype: Any) -> Any:
    """A cast, to bfloat16 from float32, from which alone the interpreter can."""
    if dtype.scalar == tl.bfloat16:
        source = _cast(builder, source, tl.float32)
    return _cast(builder, source, dtype)


def mend_bfloat16() -> None:
    """Have the interpreter multiply bfloat16 matrices, and cast to bfloat16, as GPUs do."""
    InterpreterBuilder.create_dot = _create_dot_of_floats
    InterpreterBuilder.cast_impl = _cast_by_float32
