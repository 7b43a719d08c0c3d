"""Triton's interpreter, mended where it takes the bits of bfloat16 for integers: in matmuls, and in casts."""

from typing import Any

import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

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
    """A cast; to and from bfloat16 by float32, and rounded to the nearest, where the interpreter truncates."""
    if source.dtype.scalar == tl.bfloat16 and dtype.scalar != tl.float32:
        source = _cast(builder, source, tl.float32)
    if dtype.scalar != tl.bfloat16:
        return _cast(builder, source, dtype)
    value = _cast(builder, source, tl.float32).data
    bits = value.view("uint32")
    rounded = bits + 0x7FFF + (bits >> 16 & 1)
    rounded[value != value] = 0x7FC00000  # NaN
    return TensorHandle((rounded >> 16).astype("uint16"), tl.bfloat16)


def mend_bfloat16() -> None:
    """Have the interpreter multiply bfloat16 matrices, and cast from and to bfloat16, as GPUs do.

    Once in a process, though several packages of operators have a runtime each.
    """
    if hasattr(InterpreterBuilder, "has_mended_bfloat16"):
        return
    InterpreterBuilder.has_mended_bfloat16 = True
    InterpreterBuilder.create_dot = _create_dot_of_floats
    InterpreterBuilder.cast_impl = _cast_by_float32
