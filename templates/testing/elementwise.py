"""Tests of operators that compute each element by itself."""

from typing import ClassVar

import torch

from .gradients import BackwardTests
from .harness import Dtypes, Harness, Shape, each, results, wide
from .inputs import DEVICE, Layout, contiguous, scattered
from .operator import MapKernels

# A few roundings of each dtype, relative to 1 and the result: a GPU's own functions are less accurate.
ROUNDING = {
    torch.float32: 8e-7 if DEVICE == "cpu" else 4e-6,
    torch.float64: 1e-14 if DEVICE == "cpu" else 1e-13,
}


class Rounded(Harness):
    """Half precision that is rounded once."""

    dense: ClassVar[Shape] = ()  # of many values

    @classmethod
    def halves(cls) -> list[Dtypes]:
        """For each half-precision dtype that all groups may have: that dtype for all, if results are rounded once.

        Triton's interpreter truncates to bfloat16 instead of rounding.
        """
        halves = (
            (torch.float16,) if DEVICE == "cpu" else (torch.float16, torch.bfloat16)
        )
        found = [] if cls.rounds_between else cls.floats()
        return [one for one in found if one[0] in halves]

    @classmethod
    def check_rounded_once(cls, got: torch.Tensor, want: torch.Tensor) -> None:
        """Half-precision results are the nearest to the oracle, except for a few ties."""
        if got.dtype not in (torch.float16, torch.bfloat16):
            return
        found, wanted = got.cpu(), want.cpu().double()
        largest = max(1.0, float(wanted.nan_to_num().abs().max()))
        nearest = torch.finfo(got.dtype).eps / 2 * wanted.abs()
        allowed = nearest + cls.tolerances[torch.float32] * largest
        is_off = (found.double() - wanted).abs() > allowed
        count = int((is_off & (found != wanted.to(found))).sum())
        assert count <= 1 + 0.02 * got.numel(), f"{count} are rounded more than once"


class ElementwiseTests(Rounded, MapKernels):
    """Each function as accurate as its dtype allows."""

    @each("layout", lambda _: (contiguous, scattered))
    @each("dtypes", lambda cls: cls.halves())
    def test_half_precision(self, dtypes: Dtypes, layout: Layout) -> None:
        """Math computed in half precision instead of float32 is off by more than the last rounding."""
        tensors = [layout(one) for one in self.make(self.wide, dtypes)]
        wanted = results(self.oracle(*tensors))
        for got, want in zip(results(self.call(*tensors)), wanted, strict=True):
            self.check_rounded_once(got, want)

    @each("dtypes", lambda cls: [one for one in cls.floats() if one[0] in ROUNDING])
    def test_dense_values(self, dtypes: Dtypes) -> None:
        """Enough values to reveal an approximation with a coefficient that is off by a hundredth.

        Errors may be as large as torch's, which are larger where a function is steep.
        """
        tensors = self.make(self.dense, dtypes)
        wanted = results(self.oracle(*tensors))
        found = zip(
            results(self.call(*tensors)), results(self.in_torch(*tensors)), strict=True
        )
        for (got, torchs), want in zip(found, wanted, strict=True):
            if got.dtype in ROUNDING:
                error, allowed = (
                    (one.cpu().double() - want).abs() / (1 + want.abs())
                    for one in (got, torchs)
                )
                most = float(allowed.nan_to_num().max())
                assert error.nan_to_num().max() <= max(ROUNDING[got.dtype], 4 * most)


class RoundedGradients(Rounded, BackwardTests):
    """Gradients in half precision that are rounded once."""

    @each("layout", lambda _: (contiguous, scattered))
    @each("dtypes", lambda cls: cls.halves())
    def test_gradients_in_half_precision(self, dtypes: Dtypes, layout: Layout) -> None:
        """They are computed in float32, except from saved results, which were rounded."""
        tensors = [layout(one) for one in self.make(self.wide, dtypes)]
        saved: list[torch.Tensor] = []

        def save(tensor: torch.Tensor) -> torch.Tensor:
            saved.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            found = self.gradients(self.call, *tensors, arranged=layout)
        inputs = {one.data_ptr() for one in tensors}
        if any(one.itemsize == 2 and one.data_ptr() not in inputs for one in saved):
            return
        wanted = self.gradients(self.oracle, *wide(tensors), arranged=layout)
        for got, want in zip(found, wanted, strict=True):
            self.check_rounded_once(got, want)
