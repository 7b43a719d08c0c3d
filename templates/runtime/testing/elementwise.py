"""Tests of operators that compute each element by itself."""

import pytest
import triton

from .. import heuristics
from .harness import each
from .inputs import scattered
from .operator import OperatorTests

SMALL_BLOCK = triton.Config({"BLOCK": 16})
SMALL_TILE = triton.Config({"BLOCK_M": 2, "BLOCK_N": 32})


class ElementwiseTests(OperatorTests):
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
