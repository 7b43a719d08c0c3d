"""A check in Triton's interpreter that kernels access no memory outside of the tensors of a launch."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import triton
from triton.runtime import interpreter
from triton.tools.tensor_descriptor import TensorDescriptor


def span(one: Any) -> tuple[int, int]:
    """The range of addresses of a tensor, or of the tensor of a descriptor."""
    described = isinstance(one, TensorDescriptor)
    base = one.base if described else one
    strides = one.strides if described else one.stride()
    steps = zip(one.shape, strides, strict=True)
    last = sum((size - 1) * step for size, step in steps) if 0 not in one.shape else -1
    return base.data_ptr(), base.data_ptr() + (last + 1) * base.itemsize


def spans(arguments: Iterable[Any]) -> list[tuple[int, int]]:
    """The ranges of the tensors and descriptors among some arguments."""
    return [
        span(one)
        for one in arguments
        if isinstance(one, (torch.Tensor, TensorDescriptor))
    ]


def check_bounds(patch: pytest.MonkeyPatch) -> None:
    """Make the interpreter refuse accesses out of bounds, even where they do not affect values."""
    if not triton.knobs.runtime.interpret:
        return
    executor: Any = interpreter.GridExecutor
    builder: Any = interpreter.InterpreterBuilder
    begin = executor._init_args_hst
    allowed: list[tuple[int, int]] = []

    def begin_with(self: Any, args: Any, kwargs: Any) -> Any:
        found = begin(self, args, kwargs)
        allowed[:] = spans([*found[0], *found[1].values()])
        return found

    def checked(access: Callable[..., Any], place: int) -> Callable[..., Any]:
        """A load or store, of which one argument behind the pointers is the mask."""

        def call(self: Any, pointers: Any, *rest: Any, **named: Any) -> Any:
            # Before Triton 3.9, loads by descriptors pass a bare array.
            handled = isinstance(rest[place], interpreter.TensorHandle)
            mask = rest[place].data if handled else rest[place]
            outside = pointers.data[mask.astype(bool)]
            for first, end in allowed:
                outside = outside[(outside < first) | (outside >= end)]
            assert not outside.size, "an access outside of the tensors"
            return access(self, pointers, *rest, **named)

        return call

    patch.setattr(executor, "_init_args_hst", begin_with)
    for name, place in (("create_masked_load", 0), ("create_masked_store", 1)):
        patch.setattr(builder, name, checked(getattr(builder, name), place))
