"""Helpers of operators that are registered with torch.library."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton


def filled(tensor: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """An empty tensor in place of None, which registered operators cannot return."""
    return like.new_empty(0) if tensor is None else tensor


def unwritten(
    like: torch.Tensor, shape: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """A placeholder for a result that is not computed and never read: one element, expanded."""
    return like.new_zeros((), dtype=dtype).expand(shape)


def wrap_triton(kernel: Any) -> Any:
    """torch.library.wrap_triton, which shows launches to torch; it refuses kernels of the interpreter."""
    if triton.knobs.runtime.interpret:
        return kernel
    return torch.library.wrap_triton(kernel)


def lower(op: Callable[..., Any], device_type: str) -> Callable[..., Any]:
    """An operator under autocast: floats are cast to its dtype, except for float64."""

    def is_cast(arg: Any) -> bool:
        lower = (torch.float16, torch.bfloat16, torch.float32)
        return isinstance(arg, torch.Tensor) and arg.dtype in lower

    def call(*args: Any) -> Any:
        dtype = torch.get_autocast_dtype(device_type)
        with torch.autocast(device_type, enabled=False):
            return op(*(arg.to(dtype) if is_cast(arg) else arg for arg in args))

    return call
