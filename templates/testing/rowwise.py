"""Tests of operators that reduce rows."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import triton
from triton import Config

from ..runtime import heuristics
from .harness import SUMS, Harness, Patch, each, gpu, is_backward, only
from .inputs import DEVICE, scattered
from .operator import SMALL_TILE, TALL_TILE, MapKernels

Row = tuple[int, ...]
ONE_ROW = True, (1, 4, 1)  # as `rows_of` has it


def rows_of(cls: type[Harness], kind: type) -> list[tuple[bool, Row]]:
    """The entries in tables of a kind for rows of some lengths, without the lengths: elements, warps and the rest. With
    whether they are of the backward.
    """
    found = [
        (backward, row[1:])
        for backward in (False, True)
        for table in cls.tables_of(kind, backward)
        for row in table.rows
    ]
    return list(dict.fromkeys(found))


class RowKernels(MapKernels):
    """Rows in registers, looped over, and shared by several programs, in the forward and in the backward."""

    ctas_per_row: ClassVar[Sequence[int]] = ()
    backward_splits: ClassVar[Sequence[int]] = ()  # as `splits`, in the backward

    @each("backward, row", lambda cls: rows_of(cls, heuristics.Registers))
    def test_register_configs(self, backward: bool, row: Row, patch: Patch) -> None:
        """Rows are held in registers, as many in one program as its elements allow."""
        elements, num_warps = row

        def choose(n_rows: int, n_cols: int, contiguous: bool) -> Config:
            block_n = triton.next_power_of_2(n_cols)
            tile = {"BLOCK_M": max(1, elements // block_n), "BLOCK_N": block_n}
            return Config(tile, num_warps)

        for one in self.tables_of(heuristics.Registers):
            patch.setattr(one, "fits", lambda *_: True)
            patch.setattr(one, "choose", choose)
        self.check_pass(backward, self.make(self.wide))

    @each("table, config", lambda cls: cls.configs(heuristics.Table))
    def test_warps(self, table: str, config: Config, patch: Patch) -> None:
        """Each number of warps that @triton.autotune tries for rows in registers."""
        self.force(patch, table, config)
        self.check_pass(is_backward(table), self.make(self.wide))

    # Loops

    @classmethod
    def force_loop(
        cls, patch: Patch, splits: int = 1, tile: Config = SMALL_TILE
    ) -> None:
        """Force loops over rows, in small tiles, with `splits` programs per row and no cooperative launch."""
        for table in vars(cls.tables).values():
            if hasattr(table, "fits"):
                patch.setattr(table, "fits", lambda *_: False)
        for kind in (heuristics.Loop, heuristics.Tile):
            cls.force_all(patch, kind, tile)
        patch.setattr(heuristics, "choose_cooperative_sums", lambda *_: None)
        patch.setattr(heuristics, "choose_splits", lambda *_: splits)
        patch.setattr(heuristics, "choose_mapped_splits", lambda *_: splits)

    @each(
        "table, config", lambda cls: cls.configs(heuristics.Loop, SMALL_TILE, TALL_TILE)
    )
    def test_loop_configs(self, table: str, config: Config, patch: Patch) -> None:
        self.force_loop(patch)
        self.force(patch, table, config)
        self.check_pass(is_backward(table), self.make(self.wide))

    @each("backward", lambda cls: cls.passes(heuristics.Loop))
    def test_loop_over_scattered_rows(self, backward: bool, patch: Patch) -> None:
        """With more dimensions than fold, in short steps."""
        self.force_loop(patch, tile=TALL_TILE)
        self.check_pass(backward, self.make(self.unfolded()), scattered)

    @each("params", lambda cls: cls.other_params)
    @each("backward", lambda cls: cls.passes(heuristics.Loop))
    def test_params_of_loops(
        self, backward: bool, params: Mapping[str, Any], patch: Patch
    ) -> None:
        for n, n_splits in enumerate((1, *self.splits_of(backward))):
            self.force_loop(patch, n_splits)
            dtypes = () if n % 2 else self.all_of(torch.float64)
            self.check_pass(backward, self.make(self.wide, dtypes), **params)

    @only(lambda cls: cls.tables_of(heuristics.Loop, False) and cls.floats())
    def test_special_values_in_loops(self, patch: Patch) -> None:
        """NaN or infinity in one iteration persists through later ones."""
        for n_splits in (1, *self.splits):
            self.force_loop(patch, n_splits, TALL_TILE)
            self.check_special_values(self.floats()[-1])

    @only(lambda cls: cls.tables_of(heuristics.Loop, False) and cls.indices)
    def test_positions_outside_in_loops(self, patch: Patch) -> None:
        for n_splits in (1, *self.splits):
            self.force_loop(patch, n_splits)
            self.call(*self.astray())

    @each("shift", lambda cls: cls.shifts)
    @each("backward", lambda cls: cls.passes(heuristics.Loop))
    def test_shifted_values_in_loops(
        self, backward: bool, shift: float, patch: Patch
    ) -> None:
        for n_splits in (1, *self.splits_of(backward)):
            self.force_loop(patch, n_splits)
            self.check_pass(backward, self.shifted(shift))

    # Rows that programs share

    @classmethod
    def splits_of(cls, backward: bool) -> Sequence[int]:
        """How many programs share a row in a pass."""
        return cls.backward_splits if backward else cls.splits

    @classmethod
    def passes_of_splits(cls) -> list[tuple[bool, int]]:
        """Passes and their number of programs per row: forwards, and backwards of such forwards or with loops
        of their own.
        """
        saved = cls.splits[:1]
        if not cls.tables_of(heuristics.Loop, True):
            saved = (1, *saved) if cls.tables_of(heuristics.Loop, False) else saved
        behind = cls.backward_splits or saved if cls.has_gradient() else ()
        return [(False, n) for n in cls.splits] + [(True, n) for n in behind]

    @each("backward, n_splits", lambda cls: cls.passes_of_splits())
    def test_splits(self, backward: bool, n_splits: int, patch: Patch) -> None:
        """A row shared by several programs; some have nothing to do."""
        self.force_loop(patch, n_splits)
        self.check_pass(backward, self.make(self.wide))
        self.check_pass(backward, self.make(self.unfolded()), scattered)

    @gpu
    @each("n_splits", lambda cls: cls.splits[:1])
    def test_splits_of_calls_alike(self, n_splits: int, patch: Patch) -> None:
        """They launch both stages, with states of their own."""
        self.force_loop(patch, n_splits)
        for seed in (0, 1):
            self.check(*self.make(self.wide, seed=seed))

    @each("members", lambda cls: cls.ctas_per_row)
    @each("backward", lambda cls: (False, True) if cls.has_gradient() else (False,))
    def test_shared_rows(self, backward: bool, members: int, patch: Patch) -> None:
        """CTAs that wait for one another need a GPU: in the interpreter, each row has one CTA."""

        def choose(n_cols: int, *_: Any) -> Config | None:
            block_n = triton.next_power_of_2(-(-n_cols // members))
            tile = {"BLOCK_M": 1, "BLOCK_N": block_n}
            config = Config({"CTAS_PER_ROW": -(-n_cols // block_n), **tile})
            return config if members == 1 or DEVICE == "cuda" else None

        self.force_loop(patch)
        patch.setattr(heuristics, "choose_cooperative_rows", choose)
        patch.setattr(heuristics, "choose_cooperative_sums", choose)
        patch.setattr(heuristics, "choose_groups", lambda *_: 2)
        self.check_pass(backward, self.make(self.wide))
        if self.floats() and not backward:
            self.check_special_values(self.floats()[-1])

    # Sums over rows

    @each(
        "backward, row",
        lambda cls: (
            [*rows_of(cls, heuristics.Whole), ONE_ROW]
            if cls.tables_of(heuristics.Whole)
            else ()
        ),
    )
    def test_whole_configs(self, backward: bool, row: Row, patch: Patch) -> None:
        """Full rows in two persistent programs that sum over them, or a row at a time in one that loops over all."""
        elements, num_warps, stages = row
        chosen = heuristics.Whole((2**20, elements, num_warps, stages))
        for one in self.tables_of(heuristics.Whole):
            patch.setattr(one, "fits", lambda *_: True)
            patch.setattr(one, "choose", chosen.choose)
        patch.setattr(heuristics, "choose_full_programs", lambda *_: min(2, row[0]))
        self.check_pass(backward, self.make(self.wide))

    @each("table, config", lambda cls: cls.configs(heuristics.Sums, SMALL_TILE))
    def test_sums_configs(self, table: str, config: Config, patch: Patch) -> None:
        self.force_loop(patch)
        self.force(patch, table, config)
        patch.setattr(heuristics, "choose_programs", lambda *_: 3)
        self.check_pass(is_backward(table), self.make(self.wide))


class RowwiseTests(RowKernels):
    """Operators whose forward reduces rows."""

    tolerances = SUMS
