"""What operators that are registered with torch.library need besides."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton


def filled(tensor: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """A tensor of no elements for None, which no registered operator returns."""
    return like.new_empty(0) if tensor is None else tensor


def unwritten(
    like: torch.Tensor, shape: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """A tensor that nothing reads, for a result that is not made: one element, seen as many."""
    return like.new_zeros((), dtype=dtype).expand(shape)


def wrap_triton(kernel: Any) -> Any:
    """torch.library.wrap_triton, by which torch sees a launch; it refuses kernels of the interpreter."""
    if triton.knobs.runtime.interpret:
        return kernel
    return torch.library.wrap_triton(kernel)


def lower(op: Callable[..., Any], device_type: str) -> Callable[..., Any]:
    """An operator under autocast: its floats in the dtype of that, float64 as it is."""

    def is_cast(arg: Any) -> bool:
        lower = (torch.float16, torch.bfloat16, torch.float32)
        return isinstance(arg, torch.Tensor) and arg.dtype in lower

    def call(*args: Any) -> Any:
        dtype = torch.get_autocast_dtype(device_type)
        with torch.autocast(device_type, enabled=False):
            return op(*(arg.to(dtype) if is_cast(arg) else arg for arg in args))

    return call
