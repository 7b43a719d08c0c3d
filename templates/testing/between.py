"""Tolerances of operators that store values between their kernels, as torch does between its own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from .harness import Harness, results


def narrowed(tensors: Sequence[Any]) -> list[Any]:
    """Tensors, of which those of float32 are in half precision if others are."""
    floats = [one for one in tensors if one is not None and one.is_floating_point()]
    half = next((one.dtype for one in floats if one.itemsize == 2), None)
    wide = [one is not None and one.dtype == torch.float32 for one in tensors]
    pairs = zip(tensors, wide, strict=True)
    return [one.to(half) if half and is_wide else one for one, is_wide in pairs]


class StoresBetween(Harness):
    """Results may be as far off as torch's own."""

    @classmethod
    def errors(
        cls,
        function: Callable[..., Any],
        tensors: Sequence[Any],
        want: Any,
        backward: bool = False,
    ) -> list[float]:
        """Errors of torch's own results; of gradients with all float32 inputs rounded to the dtype of matrices."""
        return cls.errors_of_torch(
            function, narrowed(tensors) if backward else tensors, want
        )

    @classmethod
    def errors_of_torch(
        cls, function: Callable[..., Any], tensors: Sequence[Any], want: Any
    ) -> list[float]:
        """The error of torch itself; 0 for integers, and where it has no kernels for the dtypes."""
        try:
            own = results(function(*tensors))
        except RuntimeError:
            return [0.0 for _ in results(want)]
        pairs = zip(own, results(want), strict=True)
        differences = [
            (
                (one.to(other) - other).nan_to_num(0.0, 0.0, 0.0)
                if other.is_floating_point() and other.numel()
                else torch.zeros(1)
            )
            for one, other in pairs
        ]
        return [float(one.abs().max()) for one in differences]


class Recomputed(torch.autograd.Function):
    """A softmax whose gradient is computed as kernels do: by its logsumexp, and by what it gives in some dtype."""

    @staticmethod
    def forward(ctx: Any, rounded: torch.dtype, scores: Any, dim: int) -> Any:
        p = (scores - scores.logsumexp(dim, True)).exp()
        ctx.save_for_backward(p)
        ctx.dim, ctx.rounded = dim, rounded
        return p

    @staticmethod
    def backward(ctx: Any, *outgoing: torch.Tensor) -> tuple[None, torch.Tensor, None]:
        (p,), (dp,) = ctx.saved_tensors, outgoing
        delta = (dp * p).sum(ctx.dim, True).to(ctx.rounded)
        return None, p * (dp - delta.to(p)), None

    @classmethod
    def softmax(cls, rounded: torch.dtype, input: Any, dim: int, **_: Any) -> Any:
        apply: Callable[..., Any] = cls.apply
        return apply(rounded, input, dim)


class StreamsBetween(StoresBetween):
    """The same, of operators that stream an axis."""

    @classmethod
    def errors_of_torch(
        cls, function: Callable[..., Any], tensors: Sequence[Any], want: Any
    ) -> list[float]:
        """Errors of a recomputed softmax included: sums of its gradients cancel in torch's."""
        found = super().errors_of_torch(function, tensors, want)
        dtypes = [one.dtype for one in tensors if one is not None]
        floats = [one for one in dtypes if one.is_floating_point and one.itemsize > 1]
        if not floats:
            return found
        rounded = min(floats, key=lambda one: one.itemsize)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "softmax", partial(Recomputed.softmax, rounded))
            again = super().errors_of_torch(function, tensors, want)
        return [max(errors) for errors in zip(found, again, strict=True)]
