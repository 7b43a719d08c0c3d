"""References that differ from the spec in rows without keys, as torch's attention does."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from .harness import Harness, results, wide


class OwnMathTests(Harness):
    """The spec's own math stands beside its reference."""

    own_math: Callable[..., Any] | None = None
    stores_scores: ClassVar[bool] = False  # as a step does for others

    @classmethod
    def in_torch(cls, *tensors: Any, **params: Any) -> Any:
        """The reference, in the dtypes of the inputs; or the spec's own math, if scores are stored as in that."""
        own = cls.own_math if cls.stores_scores else None
        return (own or cls.reference)(*tensors, **{**cls.params, **params})

    @classmethod
    def oracle(cls, *tensors: Any, **params: Any) -> Any:
        """Attention is computed as two matmuls and a softmax: torch's CPU kernel divides by the number of heads, which
        may be 0. Where rows have no keys, of which torch's attention makes 0, the oracle is the spec's own math.
        """
        with sdpa_kernel(SDPBackend.MATH):
            found = super().oracle(*tensors, **params)
        if cls.own_math is None:
            return found
        pairs = zip(results(found), cls.lost(*tensors, **params), strict=True)
        is_other = any(bool((other & ~one.isnan()).any()) for one, other in pairs)
        return cls.exactly(cls.own_math, *tensors, **params) if is_other else found

    @classmethod
    def lost(cls, *tensors: Any, **params: Any) -> list[torch.Tensor]:
        """Masks of results in rows without keys, or in rows masked by a finite value."""
        math = cls.masked_math or cls.own_math or cls.reference
        given = [
            (
                torch.full((1,) * len(own.axes), own.default or 0)
                if one is None
                else one.cpu()
            )
            for own, one in zip(cls.inputs, wide(tensors), strict=True)
        ]
        with torch.no_grad():
            found = results(math(*given, **{**cls.params, **params}))
        return [one.isnan() for one in found]

    @classmethod
    def masked(cls, outgoing: list[torch.Tensor], given: Any) -> list[torch.Tensor]:
        """Incoming gradients, zero in rows masked by a finite value: in float32 these have no part in
        gradients.
        """
        if cls.masked_math is None:
            return outgoing
        tensors, params = given
        pairs = zip(outgoing, cls.lost(*tensors, **params), strict=True)
        return [one.masked_fill(other.to(one.device), 0) for one, other in pairs]
