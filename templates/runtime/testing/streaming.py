"""Tests of tiles of rows past which an axis streams."""

import math

import pytest
import torch
import triton

from .. import heuristics
from .harness import Dtypes, Shape, each
from .inputs import DEVICE, Layout, same_columns, same_rows
from .matmul import Products, Tiles
from .operator import OperatorTests


def streamed(
    tests: type[Tiles], backward: bool = False
) -> list[tuple[torch.dtype, str, triton.Config]]:
    """Tables of the forward or the backward, each with each tile, and a small one, of dtypes of half precision
    and of wider ones, that all inputs may have.
    """
    tables: dict[heuristics.Streamed, str] = {}
    for name, table in vars(tests.tables).items():
        if isinstance(table, heuristics.Streamed) and ("_" in name) == backward:
            tables.setdefault(table, name)
    small = heuristics.streamed_tile(16, 16, 4, 1)
    return [
        (dtype, name, config)
        for dtype in (torch.float16, torch.float32)
        if tests.all_of(dtype)
        for table, name in tables.items()
        for config in (*table.of(dtype.itemsize).values(), small)
    ]


class StreamingTests(Products, OperatorTests):
    """Each configuration, and a small one with several tiles and blocks."""

    rounds_factors = True
    error_factor = 8  # Scores are sums in another order, and exponentials tell.

    @classmethod
    def layouts(cls) -> list[Layout]:
        """Those of equal rows or columns are left out: scores of these are all alike."""
        return [
            one for one in super().layouts() if one not in (same_rows, same_columns)
        ]

    @classmethod
    def check_special_values(cls, dtypes: Dtypes) -> None:
        """Zeros of both signs, and NaN in a row of the first input. Elsewhere masks hide it from some rows and not from
        others: torch adds them to scores, and multiplies what is masked by 0.
        """
        tensors = cls.make(cls.special, dtypes, ends=False)
        for one, tensor in zip(cls.inputs, tensors, strict=True):
            for value in (0.0, -0.0):
                if one.is_float:
                    tensor.masked_fill_(
                        torch.rand(tensor.shape).to(DEVICE) < 0.02, value
                    )
        tensors[0].flatten()[0] = math.nan
        assert tensors[0].isnan().any()
        cls.compare(cls.call(*tensors), cls.oracle(*tensors), tensors)

    @each("dtype, table, config", streamed)
    @each("shape", lambda cls: cls.tiled)
    def test_streamed_configs(
        self,
        shape: Shape,
        dtype: torch.dtype,
        table: str,
        config: triton.Config,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.force(monkeypatch, table, config)
        self.check(*self.make(shape, self.all_of(dtype)))
