"""Tests of results in float8."""

from typing import Any

import torch

from .harness import Harness


class Float8Tests(Harness):
    """Results in float8 are the nearest to the oracle, saturated at the largest value."""

    @classmethod
    def check_near(cls, got: Any, want: Any, rtol: float, atol: float) -> None:
        if not got.is_floating_point() or got.itemsize > 1:
            super().check_near(got, want, rtol, atol)
            return
        info = torch.finfo(got.dtype)
        near = want.to(got.device, torch.float32).clamp(-info.max, info.max)
        half = 0.5 * info.eps + cls.tolerances[torch.float32]
        torch.testing.assert_close(
            got.float(), near, rtol=half, atol=half * info.tiny, equal_nan=True
        )
