"""The gradients of an operator, and how they are compared with those of its oracle."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch

from .harness import Harness, results, wide
from .inputs import Layout, contiguous


class BackwardTests(Harness):
    """The gradients of an operator, and how they are compared."""

    wrt: ClassVar[tuple[str, ...]]  # the inputs that have gradients
    ahead: ClassVar[bool] = False  # whether the forward computes them
    # Whether rows without keys, which make torch's gradients NaN, have no part in ours.
    leaves_rows_out: ClassVar[bool] = False
    may_be_zero: ClassVar[bool] = False  # where torch's gradients are NaN

    # Gradients

    @classmethod
    def places(cls, wrt: Sequence[str] = ()) -> list[int]:
        return [cls.names().index(name) for name in wrt or cls.wrt]

    @classmethod
    def leaves(cls, tensors: Iterable[Any], wrt: Sequence[str] = ()) -> list[Any]:
        """The tensors, as leaves that require a gradient if they are in `wrt`."""
        places = cls.places(wrt)
        return [
            None if one is None else one.detach().requires_grad_(place in places)
            for place, one in enumerate(tensors)
        ]

    @classmethod
    def handed(cls, given: Iterable[Any]) -> list[Any]:
        """The arguments that are passed to the operator for a test's own tensors."""
        return list(given)

    @classmethod
    def gradients(
        cls,
        function: Callable[..., Any],
        *tensors: Any,
        wrt: Sequence[str] = (),
        as_they_are: bool = False,
        arranged: Layout = contiguous,
        **params: Any,
    ) -> list[torch.Tensor]:
        """The gradients of some inputs, for random incoming gradients with a given layout."""
        given = cls.leaves(tensors, wrt)
        found = results(
            function(*(given if as_they_are else cls.handed(given)), **params)
        )
        random = torch.Generator().manual_seed(1)
        # The same for every device and dtype.
        outgoing = [
            torch.randn(one.shape, generator=random).bfloat16().to(one) for one in found
        ]
        outgoing = cls.masked(outgoing, tensors, params)
        pairs = zip(found, outgoing, strict=True)
        smooth, arriving = zip(
            *((one, other) for one, other in pairs if one.requires_grad), strict=True
        )
        by = [given[place] for place in cls.places(wrt)]
        outgoing = [arranged(one) for one in arriving]
        return list(torch.autograd.grad(smooth, by, outgoing))

    @classmethod
    def compare_gradients(
        cls,
        got: Sequence[torch.Tensor],
        want: Sequence[torch.Tensor],
        tensors: Iterable[Any] = (),
        errors: Sequence[float] = (),
    ) -> None:
        """Equal within the tolerance of the dtypes, relative to the maximum of a gradient, or within torch's `errors`.

        Results that are saved for a float32 gradient are rounded to half precision if some `tensors` are half
        precision.
        """
        floats = [one.dtype for one in tensors if one is not None]
        rounding = max((cls.tolerances.get(dtype, 0.0) for dtype in floats), default=0)
        errors = errors or [0.0 for _ in want]
        for one, other, error in zip(got, want, errors, strict=True):
            if cls.leaves_rows_out:
                other = other.where(~other.isnan() | ~one.isfinite(), one.to(other))
            if cls.may_be_zero:
                other = other.where(~other.isnan() | (one != 0).to(other.device), 0)
            tolerance = max(rounding, cls.tolerances[one.dtype])
            scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
            cls.check_near(one, other, tolerance, scale, error)

    @classmethod
    def check_gradients(
        cls,
        *tensors: Any,
        wrt: Sequence[str] = (),
        arranged: Layout = contiguous,
        **params: Any,
    ) -> None:
        """The gradients against those of the oracle."""
        options: Any = {"wrt": wrt, "arranged": arranged, **params}
        got = cls.gradients(cls.call, *tensors, **options)

        def oracle(*tensors: Any) -> list[torch.Tensor]:
            return cls.gradients(cls.oracle, *tensors, **options)

        def in_torch(*tensors: Any) -> tuple[torch.Tensor, ...]:
            return tuple(cls.gradients(cls.in_torch, *tensors, **options))

        want = cls.expected(oracle, *wide(tensors))
        if want is not None:
            errors = cls.errors(in_torch, tensors, tuple(want), backward=True)
            cls.compare_gradients(got, want, tensors, errors)
