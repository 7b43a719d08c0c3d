"""What generated modules have for torch.library and torch.func. tritongen copies what a module needs into it."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton


def _check_tensor(name: str, tensor: object) -> None:
    """Refuse what is no tensor, of which torch's dispatcher would tell less."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")


def _filled(tensor: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """A tensor of no elements for None, which no registered operator returns."""
    return like.new_empty(0) if tensor is None else tensor


def wrap_triton(kernel: Any) -> Any:
    """torch.library.wrap_triton, by which torch sees a launch; it refuses kernels of the interpreter."""
    if triton.knobs.runtime.interpret:
        return kernel
    return torch.library.wrap_triton(kernel)


def _one_by_one(
    call: Callable[..., Any], info: Any, in_dims: Sequence[int | None], *args: Any
) -> tuple[Any, Any]:
    """What torch.func.vmap makes of a call: one for each of the batch."""
    each = []
    for place in range(info.batch_size):
        pairs = zip(args, in_dims, strict=True)
        each.append(
            call(*(arg.select(dim, place) if isinstance(dim, int) else arg for arg, dim in pairs))
        )
    if not isinstance(each[0], tuple):
        return torch.stack(each), 0
    columns = [
        None if column[0] is None else torch.stack(column)
        for column in zip(*each, strict=True)
    ]
    return tuple(columns), tuple(None if column is None else 0 for column in columns)


def _over_batch(
    call: Callable[..., Any],
    named: Sequence[int | None],
    info: Any,
    in_dims: Sequence[int | None],
    *args: Any,
) -> tuple[Any, Any]:
    """What torch.func.vmap makes of a call: one, with the batch as the first of the leading axes.

    `named` has how many axes of an argument follow the leading ones; None where it has no leading ones.
    """
    moved = list(args)
    leading = 0
    for place, (arg, dim, count) in enumerate(zip(args, in_dims, named, strict=True)):
        if dim is not None and count is None:
            return _one_by_one(call, info, in_dims, *args)
        if dim is not None:
            moved[place] = arg.movedim(dim, 0)
        if arg is not None and count is not None:
            leading = max(leading, arg.ndim - count - (dim is not None))
    for place, (dim, count) in enumerate(zip(in_dims, named, strict=True)):
        if dim is not None and count is not None:
            missing = leading + 1 + count - moved[place].ndim
            moved[place] = moved[place][(slice(None), *[None] * missing)]
    results = call(*moved)
    return results, (0,) * len(results) if isinstance(results, tuple) else 0


class _Once(torch.autograd.Function):
    """Launches that torch.func sees as one function, which has no derivative."""

    @staticmethod
    def forward(function, *args):
        return function(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keeps nothing."""

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("a gradient has no derivative here: it is once_differentiable")

    @staticmethod
    def vmap(info, in_dims, function, *args):
        call = functools.partial(_Once.apply, function)
        return _one_by_one(call, info, in_dims[1:], *args)


def _once(function: Callable[..., Any], *args: Any) -> Any:
    """A call of a registered operator, which torch.func by itself does not take for a function."""
    if torch._C._are_functorch_transforms_active():
        return _Once.apply(function, *args)
    return function(*args)


def _lower(op: Callable[..., Any], device_type: str) -> Callable[..., Any]:
    """An operator under autocast: its floats in the dtype of that, float64 as it is."""

    def is_cast(arg: Any) -> bool:
        lower = (torch.float16, torch.bfloat16, torch.float32)
        return isinstance(arg, torch.Tensor) and arg.dtype in lower

    def call(*args: Any) -> Any:
        dtype = torch.get_autocast_dtype(device_type)
        with torch.autocast(device_type, enabled=False):
            return op(*(arg.to(dtype) if is_cast(arg) else arg for arg in args))

    return call
