"""Tests of tiles of rows past which an axis streams."""

from typing import Any

import pytest
import triton

from .. import heuristics
from .harness import Shape, each
from .inputs import Layout, same_columns, same_rows
from .matmul import Products
from .operator import OperatorTests


class StreamingTests(Products, OperatorTests):
    """Each configuration, and a small one with several tiles and blocks."""

    rounds_factors = True

    @classmethod
    def layouts(cls) -> list[Layout]:
        """Those of equal rows or columns are left out: scores of these are all alike."""
        return [
            one for one in super().layouts() if one not in (same_rows, same_columns)
        ]

    @classmethod
    def streamed(cls, half: bool, backward: bool = False) -> list[tuple[str, Any]]:
        """The names of tables, each with each of its tiles, and a small one."""
        tables: dict[heuristics.Streamed, str] = {}
        for name, table in vars(cls.tables).items():
            if isinstance(table, heuristics.Streamed) and ("_" in name) == backward:
                tables.setdefault(table, name)
        small = heuristics.streamed_tile(16, 16, 4, 1)
        return [
            (name, config)
            for table, name in tables.items()
            for config in (*(table.half if half else table.wide).values(), small)
        ]

    @each("table, config", lambda cls: cls.streamed(True) if cls.half() else ())
    @each("shape", lambda cls: cls.tiled)
    def test_half_configs(
        self,
        shape: Shape,
        table: str,
        config: triton.Config,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.force(monkeypatch, table, config)
        self.check(*self.make(shape, self.half()))

    @each("table, config", lambda cls: cls.streamed(False) if cls.single() else ())
    @each("shape", lambda cls: cls.tiled)
    def test_wide_configs(
        self,
        shape: Shape,
        table: str,
        config: triton.Config,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.force(monkeypatch, table, config)
        self.check(*self.make(shape, self.single()))
