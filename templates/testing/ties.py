"""Results that are integers or booleans, on which rounding decides where elements are equal."""

from typing import Any

import torch

from .harness import Harness, results


def nudged(tensor: Any, random: torch.Generator) -> Any:
    """Floats with noise of some times their rounding, as of a few operations, in float32 or float64, on the CPU."""
    if tensor is None or not tensor.is_floating_point():
        return tensor if tensor is None else tensor.cpu()
    noise = torch.randn(tensor.shape, generator=random, dtype=torch.float64)
    eps = torch.finfo(tensor.dtype).eps
    near = tensor.cpu().double() * (1 + 4 * eps * noise)
    return near if tensor.dtype == torch.float64 else near.float()


class TiesTests(Harness):
    """Positions of the largest of equal elements, and comparisons of equal values, are not compared."""

    @classmethod
    def check_results(cls, got: Any, *tensors: Any, **params: Any) -> None:
        try:
            super().check_results(got, *tensors, **params)
        except AssertionError:
            want = results(cls.oracle(*tensors, **params))
            untied = cls.without_ties(results(got), want, tensors, params)
            super().check_results(untied, *tensors, **params)

    @classmethod
    def without_ties(
        cls, got: Any, want: Any, tensors: Any, params: Any
    ) -> tuple[torch.Tensor, ...]:
        """The results, with the oracle's integers where those of nudged inputs differ."""
        found = list(got)
        random = torch.Generator().manual_seed(0)
        for place, (one, other) in enumerate(zip(got, want, strict=True)):
            exact = other.to(one)
            if one.is_floating_point() or torch.equal(one, exact):
                continue
            for _ in range(8):
                given = (nudged(tensor, random) for tensor in tensors)
                near = results(cls.in_torch(*given, **params))[place]
                tied = near.to(one) != exact
                found[place] = torch.where(tied, exact, found[place])
        return tuple(found)
