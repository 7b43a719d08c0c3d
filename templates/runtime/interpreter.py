"""Fixes of Triton's interpreter: it treats bits of bfloat16 as integers, and scalar conditions as floats."""

from typing import Any

import torch
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

_cast, _create_splat = InterpreterBuilder.cast_impl, InterpreterBuilder.create_splat
_create_dot = InterpreterBuilder.create_dot


def _create_dot_of_floats(builder: Any, left: Any, right: Any, *others: Any) -> Any:
    """tl.dot of matrices in float32, if they are in bfloat16."""
    left, right = (
        builder.cast_impl(one, tl.float32) if one.dtype.scalar == tl.bfloat16 else one
        for one in (left, right)
    )
    return _create_dot(builder, left, right, *others)


def _cast_by_float32(builder: InterpreterBuilder, source: Any, dtype: Any) -> Any:
    """A cast; to and from bfloat16 through float32, rounded to nearest, where the interpreter truncates."""
    if source.dtype.scalar == tl.bfloat16 and dtype.scalar != tl.float32:
        source = _cast(builder, source, tl.float32)
    if dtype.scalar != tl.bfloat16:
        return _cast(builder, source, dtype)
    value = torch.tensor(_cast(builder, source, tl.float32).data)
    return TensorHandle(value.bfloat16().view(torch.uint16).numpy(), tl.bfloat16)


def _create_splat_of_bools(builder: InterpreterBuilder, to: Any, value: Any) -> Any:
    """Broadcast a scalar to a block. The interpreter makes floats of comparisons; they stay booleans here."""
    found = _create_splat(builder, to, value)
    return TensorHandle(found.data != 0, tl.int1) if value.data.dtype == bool else found


def mend() -> None:
    """Have it cast bfloat16 and spread conditions of scalars as GPUs do, once for all packages in a process."""
    if not hasattr(InterpreterBuilder, "casts_bfloat16"):
        InterpreterBuilder.casts_bfloat16 = True
        InterpreterBuilder.create_splat = _create_splat_of_bools
        InterpreterBuilder.cast_impl = _cast_by_float32


def mend_dots() -> None:
    """Make the interpreter multiply bfloat16 matrices as GPUs do, once for all packages in a process."""
    if not hasattr(InterpreterBuilder, "multiplies_bfloat16"):
        InterpreterBuilder.multiplies_bfloat16 = True
        InterpreterBuilder.create_dot = _create_dot_of_floats
