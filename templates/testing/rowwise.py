"""Tests of operators that reduce rows."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import triton
from triton import Config

from ..runtime import heuristics
from .elementwise import SMALL_TILE, TALL_TILE, MapGradients, MapTests
from .harness import SUMS, Harness, Patch, Shape, each, gpu, only
from .inputs import DEVICE, scattered

Row = tuple[int, ...]


def rows_of(cls: type[Harness], kind: type, backward: bool = False) -> list[Row]:
    """The entries in tables of a kind for rows of some lengths, without the lengths: elements, warps and the rest."""
    tables = cls.tables_of(kind, backward)
    return list(dict.fromkeys(row[1:] for table in tables for row in table.rows))


def force_registers(
    cls: type[Harness], patch: Patch, elements: int, num_warps: int
) -> None:
    """Force rows to be held in registers, as many in one program as its elements allow."""

    def choose(n_rows: int, n_cols: int, contiguous: bool) -> Config:
        block_n = triton.next_power_of_2(n_cols)
        tile = {"BLOCK_M": max(1, elements // block_n), "BLOCK_N": block_n}
        return Config(tile, num_warps)

    for table in cls.tables_of(heuristics.Registers):
        patch.setattr(table, "fits", lambda *_: True)
        patch.setattr(table, "choose", choose)


class RowwiseTests(MapTests):
    """Rows in registers, looped over, and shared by several programs."""

    tolerances = SUMS
    ctas_per_row: ClassVar[Sequence[int]] = ()

    @each("row", lambda cls: rows_of(cls, heuristics.Registers))
    def test_register_configs(self, row: Row, patch: Patch) -> None:
        force_registers(type(self), patch, *row)
        self.check(*self.make(self.wide))

    @each("table, config", lambda cls: cls.configs(heuristics.Table))
    def test_warps(self, table: str, config: Config, patch: Patch) -> None:
        """Each number of warps that @triton.autotune tries for rows in registers."""
        self.force(patch, table, config)
        self.check(*self.make(self.wide))

    @each("table, config", lambda cls: cls.configs(heuristics.Loop, SMALL_TILE))
    def test_loop_configs(self, table: str, config: Config, patch: Patch) -> None:
        self.force_loop(patch)
        self.force(patch, table, config)
        self.check(*self.make(self.wide))

    @each("shape", lambda cls: cls.layout_shapes() if cls.loops() else ())
    def test_loop_over_scattered_rows(self, shape: Shape, patch: Patch) -> None:
        """With more dimensions than fold."""
        self.force_loop(patch)
        self.force_all(patch, heuristics.Loop, SMALL_TILE)
        self.check(*map(scattered, self.make(shape)))

    @only(lambda cls: cls.loops())
    def test_loop_over_many_rows(self, patch: Patch) -> None:
        """In tiles with more rows than columns."""
        self.force_loop(patch)
        self.force_all(patch, heuristics.Loop, TALL_TILE)
        self.check(*map(scattered, self.make(self.special, ends=False)))

    @each("params", lambda cls: cls.other_params if cls.loops() else ())
    @each("n_splits", lambda cls: (1, *cls.splits))
    def test_params_of_loops(
        self, n_splits: int, params: Mapping[str, Any], patch: Patch
    ) -> None:
        self.force_loop(patch, n_splits)
        self.force_all(patch, heuristics.Loop, SMALL_TILE)
        for dtypes in dict.fromkeys([(), self.all_of(torch.float64)]):
            self.check(*self.make(self.wide, dtypes), **params)

    @only(lambda cls: cls.loops() and cls.floats())
    def test_special_values_in_loops(self, patch: Patch) -> None:
        """NaN or infinity in one iteration persists through later ones."""
        self.force_all(patch, heuristics.Loop, TALL_TILE)
        for n_splits in (1, *self.splits):
            self.force_loop(patch, n_splits)
            self.check_special_values(self.floats()[-1])

    @only(lambda cls: cls.loops() and cls.positions())
    def test_positions_outside_in_loops(self, patch: Patch) -> None:
        self.force_all(patch, heuristics.Loop, SMALL_TILE)
        for n_splits in (1, *self.splits):
            self.force_loop(patch, n_splits)
            self.call(*self.astray())

    @each("shift", lambda cls: cls.shifts)
    def test_shifted_values(self, shift: float, patch: Patch) -> None:
        """Values so large that exp overflows unless the maximum is subtracted."""
        self.check(*self.shifted(shift))
        self.force_all(patch, heuristics.Loop, SMALL_TILE)
        for n_splits in (1, *self.splits):
            self.force_loop(patch, n_splits)
            self.check(*self.shifted(shift))

    @each("n_splits", lambda cls: cls.splits)
    def test_splits(self, n_splits: int, patch: Patch) -> None:
        """A row shared by several programs; some have nothing to do."""
        self.force_loop(patch, n_splits)
        self.force_all(patch, heuristics.Loop, SMALL_TILE)
        self.check(*self.make(self.wide))
        self.check(*map(scattered, self.make(self.unfolded())))

    @gpu
    @each("n_splits", lambda cls: cls.splits[:1])
    def test_splits_of_calls_alike(self, n_splits: int, patch: Patch) -> None:
        """They launch both stages, with states of their own."""
        self.force_loop(patch, n_splits)
        for seed in (0, 1):
            self.check(*self.make(self.wide, seed=seed))

    @each("members", lambda cls: cls.ctas_per_row)
    def test_shared_rows(self, members: int, patch: Patch) -> None:
        """CTAs that wait for one another need a GPU: in the interpreter, each row has one CTA."""

        def choose(n_cols: int, *_: Any) -> Config:
            block_n = triton.next_power_of_2(-(-n_cols // members))
            tile = {"BLOCK_M": 1, "BLOCK_N": block_n}
            return Config({"CTAS_PER_ROW": -(-n_cols // block_n), **tile})

        is_possible = members == 1 or DEVICE == "cuda"
        self.force_loop(patch)
        patch.setattr(heuristics, "use_cooperative_rows", lambda *_: is_possible)
        patch.setattr(heuristics, "choose_cooperative_rows", choose)
        patch.setattr(heuristics, "choose_groups", lambda *_: 2)
        self.check(*self.make(self.wide))
        if self.floats():
            self.check_special_values(self.floats()[-1])


class RowwiseGradients(MapGradients):
    """Each configuration of kernels of a backward that reduce rows, after the forward's of the same kind."""

    backward_splits: ClassVar[Sequence[int]] = ()  # how many programs share a row
    ctas_per_row: ClassVar[Sequence[int]] = ()

    @each("row", lambda cls: rows_of(cls, heuristics.Registers, backward=True))
    def test_backward_register_configs(self, row: Row, patch: Patch) -> None:
        force_registers(type(self), patch, *row)
        self.check_gradients(*self.make(self.wide))

    @each("table, config", lambda cls: cls.configs(heuristics.Table, backward=True))
    def test_backward_warps(self, table: str, config: Config, patch: Patch) -> None:
        """Each number of warps that @triton.autotune tries for rows in registers."""
        self.force(patch, table, config)
        self.check_gradients(*self.make(self.wide))

    @each(
        "table, config",
        lambda cls: cls.configs(heuristics.Loop, SMALL_TILE, backward=True),
    )
    def test_backward_loop_configs(
        self, table: str, config: Config, patch: Patch
    ) -> None:
        self.not_whole(patch)
        self.force_loop(patch)
        self.force_all(patch, heuristics.Loop, config)
        self.check_gradients(*self.make(self.wide))

    @each("shape", lambda cls: cls.layout_shapes() if cls.loops(True) else ())
    def test_backward_loop_over_scattered_rows(
        self, shape: Shape, patch: Patch
    ) -> None:
        """With more dimensions than fold."""
        self.not_whole(patch)
        self.force_loop(patch)
        self.force_all(patch, heuristics.Loop, SMALL_TILE)
        self.check_gradients(*map(scattered, self.make(shape)), arranged=scattered)

    @each("params", lambda cls: cls.other_params if cls.loops(True) else ())
    @each("n_splits", lambda cls: (1, *cls.backward_splits))
    def test_backward_params_of_loops(
        self, n_splits: int, params: Mapping[str, Any], patch: Patch
    ) -> None:
        self.not_whole(patch)
        self.force_loop(patch, n_splits)
        for kind in (heuristics.Loop, heuristics.Tile):
            self.force_all(patch, kind, SMALL_TILE)
        self.check_gradients(*self.make(self.wide), **params)

    @each("n_splits", lambda cls: cls.saving_splits())
    def test_backward_of_loops(self, n_splits: int, patch: Patch) -> None:
        """From what a forward saves that loops over rows, or splits them among programs."""
        self.force_loop(patch, n_splits)
        self.force_all(patch, heuristics.Loop, SMALL_TILE)
        self.check_gradients(*self.make(self.wide))

    @classmethod
    def saving_splits(cls) -> list[int]:
        """How many programs share a row of the forward, for cases that no test of the backward's kernels covers."""
        alone = [1] if cls.loops() and not cls.loops(backward=True) else []
        return alone + ([] if cls.backward_splits else list(cls.splits[:1]))

    @each("n_splits", lambda cls: cls.backward_splits)
    def test_backward_splits(self, n_splits: int, patch: Patch) -> None:
        """A row shared by several programs, in the forward too if it splits rows."""
        self.not_whole(patch)
        self.force_loop(patch, n_splits)
        for kind in (heuristics.Loop, heuristics.Tile):
            self.force_all(patch, kind, SMALL_TILE)
        self.check_gradients(*self.make(self.wide))
        self.check_gradients(*map(scattered, self.make(self.unfolded())))

    @each("shift", lambda cls: cls.shifts)
    def test_backward_of_shifted_values_in_loops(
        self, shift: float, patch: Patch
    ) -> None:
        self.not_whole(patch)
        self.force_loop(patch)
        self.check_gradients(*self.shifted(shift))

    # Sums over rows

    @classmethod
    def not_whole(cls, patch: Patch) -> None:
        """Force kernels with sums over rows neither to hold rows in registers nor to share them among CTAs."""
        for table in cls.tables_of(heuristics.Whole):
            patch.setattr(table, "fits", lambda *_: False)
        patch.setattr(heuristics, "use_cooperative_sums", lambda *_: False)

    @each("row", lambda cls: rows_of(cls, heuristics.Whole, backward=True))
    def test_backward_whole_configs(self, row: Row, patch: Patch) -> None:
        elements, num_warps, stages = row
        chosen = heuristics.Whole((2**20, elements, num_warps, stages))
        for table in self.tables_of(heuristics.Whole):
            patch.setattr(table, "fits", lambda *_: True)
            patch.setattr(table, "choose", chosen.choose)
        patch.setattr(heuristics, "choose_whole_programs", lambda *_: 2)
        self.check_gradients(*self.make(self.wide))

    @only(lambda cls: cls.tables_of(heuristics.Whole))
    def test_backward_whole_loops(self, patch: Patch) -> None:
        """One program, which loops over all rows."""
        single = heuristics.Whole((2**20, 1, 4, 1))
        for table in self.tables_of(heuristics.Whole):
            patch.setattr(table, "fits", lambda *_: True)
            patch.setattr(table, "choose", single.choose)
        patch.setattr(heuristics, "choose_whole_programs", lambda *_: 1)
        self.check_gradients(*self.make(self.wide))

    @each("members", lambda cls: cls.ctas_per_row)
    def test_backward_shared_rows(self, members: int, patch: Patch) -> None:
        """CTAs that wait for one another need a GPU: in the interpreter, each row has one CTA."""

        def choose(n_cols: int, _: int) -> Config:
            block_n = triton.next_power_of_2(-(-n_cols // members))
            tile = {"CTAS_PER_ROW": members, "BLOCK_M": 1, "BLOCK_N": block_n}
            return Config(tile, 4)

        self.not_whole(patch)
        is_possible = members == 1 or DEVICE == "cuda"
        patch.setattr(heuristics, "use_cooperative_sums", lambda *_: is_possible)
        patch.setattr(heuristics, "choose_cooperative_sums", choose)
        patch.setattr(heuristics, "choose_groups", lambda *_: 2)
        self.check_gradients(*self.make(self.wide))

    @each(
        "table, config",
        lambda cls: cls.configs(heuristics.Sums, SMALL_TILE, backward=True),
    )
    def test_backward_sums_configs(
        self, table: str, config: Config, patch: Patch
    ) -> None:
        self.not_whole(patch)
        self.force(patch, table, config)
        patch.setattr(heuristics, "choose_programs", lambda *_: 3)
        self.check_gradients(*self.make(self.wide))
