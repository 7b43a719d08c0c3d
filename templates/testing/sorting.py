"""Tests of rows that are sorted in registers."""

import functools
import operator
from typing import Any

import pytest
import triton.language as tl
from triton.runtime import interpreter

from ..runtime import launch
from .steps import StepsTests

_reduce = interpreter.ReduceOps.generic_reduce


def _reduce_pairs(self: Any, given: tuple[Any, ...]) -> Any:
    """The interpreter calls a function for each pair that a sort compares: here it compares all at once."""
    if self.combine_fn != tl.standard._xor_combine:
        return _reduce(self, given)
    (pairs,) = given
    data, axis = pairs.handle.data, self.axis
    places = ([one] if self.keep_dims else one for one in range(data.shape[axis]))
    found = functools.reduce(operator.xor, (data.take(one, axis) for one in places))
    return [self.to_tensor(found, pairs.dtype)]


if launch.INTERPRETED:
    interpreter.ReduceOps.generic_reduce = _reduce_pairs


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
