"""Tests of operators that reduce rows."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest
import torch
import triton

from ..runtime import heuristics
from .elementwise import SMALL_TILE, TALL_TILE, MapTests
from .harness import SUMS, Harness, Shape, each, gpu, only
from .inputs import DEVICE, scattered

Row = tuple[int, ...]


def rows_of(cls: type[Harness], kind: type, backward: bool = False) -> list[Row]:
    """The entries in tables of a kind for rows of some lengths, without the lengths: elements, warps and the rest."""
    tables = cls.tables_of(kind, backward)
    return list(dict.fromkeys(row[1:] for table in tables for row in table.rows))


def force_registers(
    cls: type[Harness], patch: pytest.MonkeyPatch, elements: int, num_warps: int
) -> None:
    """Force rows to be held in registers, as many in one program as its elements allow."""

    def choose(n_rows: int, n_cols: int, contiguous: bool) -> triton.Config:
        block_n = triton.next_power_of_2(n_cols)
        tile = {"BLOCK_M": max(1, elements // block_n), "BLOCK_N": block_n}
        return triton.Config(tile, num_warps)

    for table in cls.tables_of(heuristics.Registers):
        patch.setattr(table, "fits", lambda *_: True)
        patch.setattr(table, "choose", choose)


class RowwiseTests(MapTests):
    """Rows in registers, looped over, and shared by several programs."""

    tolerances = SUMS
    ctas_per_row: ClassVar[Sequence[int]] = ()

    @each("row", lambda cls: rows_of(cls, heuristics.Registers))
    def test_register_configs(self, row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
        force_registers(type(self), monkeypatch, *row)
        self.check(*self.make(self.wide))

    @each("table, config", lambda cls: cls.configs(heuristics.Table))
    def test_warps(
        self, table: str, config: triton.Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each number of warps that @triton.autotune tries for rows in registers."""
        self.force(monkeypatch, table, config)
        self.check(*self.make(self.wide))

    @each("table, config", lambda cls: cls.configs(heuristics.Loop, SMALL_TILE))
    def test_loop_configs(
        self, table: str, config: triton.Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.force_loop(monkeypatch)
        self.force(monkeypatch, table, config)
        self.check(*self.make(self.wide))

    @each("shape", lambda cls: cls.layout_shapes() if cls.loops() else ())
    def test_loop_over_scattered_rows(
        self, shape: Shape, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With more dimensions than fold."""
        self.force_loop(monkeypatch)
        self.force_all(monkeypatch, heuristics.Loop, SMALL_TILE)
        self.check(*map(scattered, self.make(shape)))

    @only(lambda cls: cls.loops())
    def test_loop_over_many_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In tiles with more rows than columns."""
        self.force_loop(monkeypatch)
        self.force_all(monkeypatch, heuristics.Loop, TALL_TILE)
        self.check(*map(scattered, self.make(self.special, ends=False)))

    @each("params", lambda cls: cls.other_params if cls.loops() else ())
    @each("n_splits", lambda cls: (1, *cls.splits))
    def test_params_of_loops(
        self,
        n_splits: int,
        params: Mapping[str, Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.force_loop(monkeypatch, n_splits)
        self.force_all(monkeypatch, heuristics.Loop, SMALL_TILE)
        for dtypes in dict.fromkeys([(), self.all_of(torch.float64)]):
            self.check(*self.make(self.wide, dtypes), **params)

    @only(lambda cls: cls.loops() and cls.floats())
    def test_special_values_in_loops(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """NaN or infinity in one iteration persists through later ones."""
        self.force_all(monkeypatch, heuristics.Loop, TALL_TILE)
        for n_splits in (1, *self.splits):
            self.force_loop(monkeypatch, n_splits)
            self.check_special_values(self.floats()[-1])

    @only(lambda cls: cls.loops() and cls.positions())
    def test_positions_outside_in_loops(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.force_all(monkeypatch, heuristics.Loop, SMALL_TILE)
        for n_splits in (1, *self.splits):
            self.force_loop(monkeypatch, n_splits)
            self.call(*self.astray())

    @each("shift", lambda cls: cls.shifts)
    def test_shifted_values(
        self, shift: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Values so large that exp overflows unless the maximum is subtracted."""
        self.check(*self.shifted(shift))
        self.force_all(monkeypatch, heuristics.Loop, SMALL_TILE)
        for n_splits in (1, *self.splits):
            self.force_loop(monkeypatch, n_splits)
            self.check(*self.shifted(shift))

    @each("n_splits", lambda cls: cls.splits)
    def test_splits(self, n_splits: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """A row shared by several programs; some have nothing to do."""
        self.force_loop(monkeypatch, n_splits)
        self.force_all(monkeypatch, heuristics.Loop, SMALL_TILE)
        self.check(*self.make(self.wide))
        self.check(*map(scattered, self.make(self.unfolded())))

    @gpu
    @each("n_splits", lambda cls: cls.splits[:1])
    def test_splits_of_calls_alike(
        self, n_splits: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They launch both stages, with states of their own."""
        self.force_loop(monkeypatch, n_splits)
        for seed in (0, 1):
            self.check(*self.make(self.wide, seed=seed))

    @each("members", lambda cls: cls.ctas_per_row)
    def test_shared_rows(self, members: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """CTAs that wait for one another need a GPU: in the interpreter, each row has one CTA."""

        def choose(n_cols: int, *_: Any) -> triton.Config:
            block_n = triton.next_power_of_2(-(-n_cols // members))
            tile = {"BLOCK_M": 1, "BLOCK_N": block_n}
            return triton.Config({"CTAS_PER_ROW": -(-n_cols // block_n), **tile})

        is_possible = members == 1 or DEVICE == "cuda"
        self.force_loop(monkeypatch)
        monkeypatch.setattr(heuristics, "use_shared_rows", lambda *_: is_possible)
        monkeypatch.setattr(heuristics, "choose_shared_rows", choose)
        monkeypatch.setattr(heuristics, "choose_groups", lambda *_: 2)
        self.check(*self.make(self.wide))
        if self.floats():
            self.check_special_values(self.floats()[-1])
