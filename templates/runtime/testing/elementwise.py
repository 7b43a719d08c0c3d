"""Tests of operators that compute each element by itself."""

import pytest
import torch
import triton

from .. import heuristics
from .harness import Dtypes, each
from .inputs import scattered
from .operator import OperatorTests

SMALL_BLOCK = triton.Config({"BLOCK": 16})
SMALL_TILE = triton.Config({"BLOCK_M": 2, "BLOCK_N": 32})


# What a function of float32 or float64 is computed to, relative and absolute: a few roundings.
DENSE = {torch.float32: 4e-6, torch.float64: 1e-13}


class MapTests(OperatorTests):
    """Contiguous data in blocks, any other in tiles."""

    @each("table, config", lambda cls: cls.configs(heuristics.Flat, SMALL_BLOCK))
    def test_flat_configs(
        self, table: str, config: triton.Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.force(monkeypatch, table, config)
        self.check(*self.make(self.wide))

    @each("table, config", lambda cls: cls.configs(heuristics.Tile, SMALL_TILE))
    def test_tile_configs(
        self, table: str, config: triton.Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.force(monkeypatch, table, config)
        self.check(*map(scattered, self.make(self.wide)))


class ElementwiseTests(MapTests):
    """And each function as exactly as its dtype allows."""

    @each("dtypes", lambda cls: [one for one in cls.floats() if one[0] in DENSE])
    def test_dense_values(
        self, dtypes: Dtypes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So many values that a coefficient of an approximation that is off by a hundredth shows."""
        monkeypatch.setattr(type(self), "tolerances", DENSE)
        self.check(*self.make(self.dense, dtypes))
