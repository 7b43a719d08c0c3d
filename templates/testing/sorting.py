"""Tests of rows that are sorted in registers."""

from typing import Any

import pytest
import triton.language as tl
from triton.runtime import interpreter

from ..runtime import launch
from .steps import StepsTests


def _sort(keys: Any, *, descending: bool) -> Any:
    """In the interpreter: there Triton's own compares one pair of elements after another."""
    data = keys.handle.data.copy()
    data.sort(-1)
    data = data[..., ::-1] if descending else data
    return tl.tensor(interpreter.TensorHandle(data, keys.dtype.scalar), keys.type)


if launch.INTERPRETED:
    tl.sort = _sort


class SortTests(StepsTests):
    """Equal elements keep their order, and rows that do not fit in registers are refused."""

    def test_equal_elements(self) -> None:
        """Few distinct values, each many times in a row."""
        tensors = self.make(self.ragged)
        few = [
            one.round() if one is not None and one.is_floating_point() else one
            for one in tensors
        ]
        self.check(*few)

    def test_long_rows_are_refused(self) -> None:
        with pytest.raises(ValueError, match="not sorted in registers"):
            self.call(*self.make(self.too_long))
