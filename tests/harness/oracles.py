"""Compare the results and gradients of an operator with a torch formula in float64.

Operators run on the GPU, or in the interpreter if there is none or TRITON_INTERPRET=1.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = "cuda" if torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1" else "cpu"


def compare(
    function: Callable[..., object],
    formula: Callable[..., object],
    tensors: Sequence[torch.Tensor],
    by: Sequence[int],
    tolerance: float | Sequence[float],
) -> list[torch.Tensor]:
    """Compare a function of `tensors`, whose floats have one dtype, with `formula` on them in float64.

    A float `tolerance` is relative, also to the largest value; a sequence has an absolute one for each result and
    gradient. Integers must be equal. Returns the function's results, and their gradients by the tensors at `by`.
    """
    dtype = next(one.dtype for one in tensors if one.is_floating_point())
    wide = [one.double() if one.is_floating_point() else one for one in tensors]
    placed = [_on_device(one) for one in tensors]
    found, wanted = (differentiated(*given, by, dtype) for given in ((function, placed), (formula, wide)))
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert one.dtype == (dtype if other.is_floating_point() else other.dtype)
        if not other.is_floating_point():
            torch.testing.assert_close(one.cpu(), other)
            continue
        scale = max(1.0, float(other.nan_to_num().abs().max())) if other.numel() else 1.0
        rtol, atol = (tolerance, tolerance * scale) if isinstance(tolerance, float) else (0.0, tolerance[place])
        torch.testing.assert_close(one.cpu().double(), other, rtol=rtol, atol=atol, equal_nan=True)
    return found


class NothingTimes(TorchDispatchMode):
    """Have 0 times an infinite derivative be 0, as for elements that `where` did not choose: torch passes the gradient
    as the first factor. Matmuls are exempt, and so are products that may be matmuls if axes are `short`: of length 1.
    """

    def __init__(self, short: bool) -> None:
        super().__init__()
        self.short = short

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = function.overloadpacket.__name__.rstrip("_")
        factors = [one for one in args[: {"mul": 2, "div": 1}.get(name, 0)] if isinstance(one, torch.Tensor)]
        found = function(*args, **(kwargs or {}))
        if not factors or (len(factors) == 2 and _is_matmul(*factors, self.short)):
            return found
        return found.masked_fill_(factors[0] == 0, 0)


def _is_matmul(left: torch.Tensor, right: torch.Tensor, short: bool) -> bool:
    """Whether factors share an axis and each has one that the other lacks, which if `short` may have length 1."""
    pairs = [*zip(*(zip(one.shape, one.stride(), strict=True) for one in (left, right)), strict=False)]
    has = [tuple(size != 1 and bool(stride) for size, stride in pair) for pair in pairs]
    return (True, True) in has and ((True, False) in has or short) and ((False, True) in has or short)


def differentiated(
    function: Callable[..., object],
    tensors: Sequence[torch.Tensor],
    by: Sequence[int],
    dtype: torch.dtype,
    backward: contextlib.AbstractContextManager[object] | None = None,
) -> list[torch.Tensor]:
    """The results of a call, then the gradients by the tensors at `by`, computed in the context `backward`.

    Upstream gradients are drawn in float64 and rounded to `dtype`.
    """
    leaves = [one.detach().requires_grad_(place in by) for place, one in enumerate(tensors)]
    found = function(*leaves)
    results: list[torch.Tensor] = list(found) if isinstance(found, tuple) else [found]  # type: ignore[list-item]
    random = torch.Generator().manual_seed(1)
    drawn = [torch.randn(one.shape, generator=random, dtype=torch.float64) for one in results]
    smooth = [(one, seed.to(dtype).to(one)) for one, seed in zip(results, drawn, strict=True) if one.requires_grad]
    with backward or contextlib.nullcontext():
        gradients = _gradients(smooth, [leaves[place] for place in by]) if by else ()
    return [*(one.detach() for one in results), *gradients]


def on_device(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an operator to take CPU tensors and return CPU tensors on whichever device tests run."""
    if DEVICE == "cpu":
        return operator

    @functools.wraps(operator)
    def call(*args: Any, **params: Any) -> Any:
        if not any(isinstance(one, torch.Tensor) and one.device.type == "cpu" for one in (*args, *params.values())):
            return operator(*args, **params)
        found = operator(*map(_on_device, args), **{name: _on_device(one) for name, one in params.items()})
        return tuple(one.cpu() for one in found) if isinstance(found, tuple) else found.cpu()

    return call


def _on_device(tensor: Any) -> Any:
    """Copy a tensor to the device with the same strides; other arguments are unchanged."""
    if not isinstance(tensor, torch.Tensor) or tensor.device.type == DEVICE:
        return tensor
    apart = tensor[tuple(slice(None if step else 1) for step in tensor.stride())]  # Expanded elements once.
    copy = torch.empty_strided(apart.shape, apart.stride(), dtype=tensor.dtype, device=DEVICE).copy_(apart)
    return copy.expand(tensor.shape)


def _gradients(
    smooth: Sequence[tuple[torch.Tensor, torch.Tensor]], leaves: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad([o for o, _ in smooth], leaves, [seed for _, seed in smooth], materialize_grads=True)
