# mypy: allow-untyped-calls
"""Tests of kernels that hold a tile of rows and stream another axis."""

import math
from collections.abc import Sequence
from typing import ClassVar
from unittest.mock import Mock

import torch
from triton import Config

from ..runtime import launch, streaming, streaming_heuristics
from .gradients import BackwardTests
from .harness import Dtypes, Harness, Patch, Shape, each, gpu, in_turn, only, wide
from .inputs import DEVICE
from .launches import hopper
from .matmul import Products, Tiles
from .operator import OperatorTests

Hidden = tuple[str, float, int, int]  # as in `hiding`
SMALL = streaming_heuristics.streamed_tile(32, 16, 4, 1)
WIDE = streaming_heuristics.streamed_tile(16, 32, 4, 1)


def streamed(
    tests: type[Tiles], backward: bool = False
) -> list[tuple[torch.dtype, str, Config]]:
    """Tables of a pass by dtypes that all may have: each tile, and a small one, taller than a block or wider."""
    kind = streaming_heuristics.Streamed
    return [
        (dtype, name, config)
        for dtype, tile in ((torch.float16, SMALL), (torch.float32, WIDE))
        if tests.all_of(dtype)
        for table, name in tests.tables_of(kind, backward).items()
        for config in (*table.of(dtype.itemsize).values(), tile)
    ]


def first_filled(tensor: torch.Tensor, dim: int, value: float) -> torch.Tensor:
    """A tensor with one value in the first two places along a dimension, or in one of few."""
    count = 2 if tensor.shape[dim] > 3 else 1
    return tensor.index_fill(dim, torch.arange(count, device=tensor.device), value)


def hide(
    tests: Harness, tensors: Sequence[torch.Tensor], hidden: Hidden
) -> list[torch.Tensor]:
    """Inputs by which the first rows have no keys."""
    name, value, dim, _ = hidden
    return [
        first_filled(one, dim, value) if name == own else one
        for own, one in zip(tests.names(), tensors, strict=True)
    ]


class StreamingTests(Products, OperatorTests):
    """Each configuration, and a small one with several tiles and blocks, also split among programs."""

    rounds_factors = True
    stores_scores = False
    expands = False  # All scores would be equal.
    leaves_rows_out: ClassVar[bool] = True
    gluon: ClassVar[Sequence[Shape]] = ()  # of tensors that a Gluon kernel takes
    error_factor = 8  # Scores are summed in another order, and exponentials amplify the difference.

    @classmethod
    def check_special_values(cls, dtypes: Dtypes) -> None:
        """Zeros of both signs, and NaN in a row of the first input. In other inputs, masks may hide NaN from some rows,
        where torch adds a mask to scores and multiplies masked values by 0.
        """
        tensors = cls.make(cls.special, dtypes, ends=False)
        for one, tensor in zip(cls.inputs, tensors, strict=True):
            chosen = torch.rand(tensor.shape).to(DEVICE)
            if one.is_float:
                tensor[chosen < 0.02], tensor[chosen > 0.98] = 0.0, -0.0
        tensors[0].flatten()[0] = math.nan
        cls.check(*tensors)

    @classmethod
    def force_splits(cls, patch: Patch, n_splits: int) -> None:
        """Force small tiles, with the streamed axis split among `n_splits` programs."""
        cls.force_all(patch, streaming_heuristics.Streamed, SMALL)
        patch.setattr(streaming_heuristics, "choose_stream_splits", lambda *_: n_splits)
        patch.setattr(streaming, "BLOCK_SPLITS", 2)

    @each("n_splits", lambda _: (2, 3, 20))
    @each("shape", lambda cls: cls.tiled)
    def test_stream_splits(self, shape: Shape, n_splits: int, patch: Patch) -> None:
        """The streamed axis split among programs; the last ones may have no blocks."""
        self.force_splits(patch, n_splits)
        self.check(*self.make(shape))

    @only(lambda cls: cls.few_keys)
    def test_fewer_keys_than_rows(self) -> None:
        self.check(*self.make(self.few_keys))

    @each("hidden", lambda cls: cls.hiding)
    def test_rows_without_keys(self, hidden: Hidden, patch: Patch) -> None:
        """Beside other rows of a tile, with one program for the streamed axis and with several."""
        tensors = hide(self, self.make(self.wide), hidden)
        self.check(*tensors)
        self.force_splits(patch, 3)
        self.check(*tensors)

    @gpu
    def test_splits_of_calls_alike(self, patch: Patch) -> None:
        """They launch both kernels, with partial sums of their own."""
        self.force_splits(patch, 3)
        self.check(*self.make(self.tiled[1]))
        self.check(*self.make(self.tiled[1], seed=1))

    @each("shape, dtype, table, config", lambda cls: in_turn(streamed(cls), cls.tiled))
    def test_streamed_configs(
        self, shape: Shape, dtype: torch.dtype, table: str, config: Config, patch: Patch
    ) -> None:
        self.force(patch, table, config)
        self.check(*self.make(shape, self.all_of(dtype)))

    @hopper
    @each("dtype", lambda cls: [torch.float16, torch.bfloat16] if cls.half() else ())
    @each("shape", lambda cls: cls.gluon)
    def test_gluon_kernel(self, shape: Shape, dtype: torch.dtype, patch: Patch) -> None:
        """The Gluon kernel of Hopper, and the plain kernel on the same tensors."""
        spy = Mock(wraps=launch.launched)
        patch.setattr(launch, "launched", spy)
        tensors = self.make(shape, self.all_of(dtype))
        for is_gluon in (True, False):
            if not is_gluon:
                patch.setattr(streaming_heuristics, "use_gluon", lambda *_: False)
            launch.LAUNCHES.clear()
            spy.reset_mock()
            self.check(*tensors)
            kernels = [one.args[0].__name__ for one in spy.call_args_list]
            found = any(name.endswith("_gluon_kernel") for name in kernels)
            assert found == is_gluon


def of_lost_rows(found: torch.Tensor, in_torch: torch.Tensor) -> torch.Tensor:
    """Where a gradient is NaN as torch's is, but not all: of a gate, not of keys."""
    return ~(found.isfinite() | in_torch.isfinite()) & in_torch.isfinite().any()


class StreamingGradients(BackwardTests):
    """Each configuration of kernels of a backward that stream an axis, and rows without keys."""

    tiled: ClassVar[Sequence[Shape]]

    @each("dtype, table, config", lambda cls: streamed(cls, backward=True))
    def test_backward_streamed_configs(
        self, dtype: torch.dtype, table: str, config: Config, patch: Patch
    ) -> None:
        self.force(patch, table, config)
        self.check_gradients(*self.make(self.tiled[1], self.all_of(dtype)))

    @only(lambda cls: cls.few_keys)
    def test_gradients_of_fewer_keys_than_rows(self) -> None:
        """Gradients of keys and values are finite, also where rows without keys make torch's NaN."""
        tensors = self.make(self.few_keys)
        want = self.gradients(self.oracle, *wide(tensors))
        if not self.leaves_rows_out or all(one.isfinite().all() for one in want):
            self.check_gradients(*tensors)
        else:
            found = self.gradients(self.call, *tensors)
            for one, other in zip(found, want, strict=True):
                assert (one.isfinite() | of_lost_rows(one, other)).all()

    @each("hidden", lambda cls: cls.hiding if cls.leaves_rows_out else ())
    def test_gradients_of_rows_without_keys(self, hidden: Hidden) -> None:
        """They have no part in them, as if they had keys, and nothing came of those."""

        def others(outgoing: torch.Tensor) -> torch.Tensor:
            return first_filled(outgoing, hidden[-1], 0)

        tensors = self.make(self.wide)
        given = hide(self, tensors, hidden)
        found = self.gradients(self.call, *given, arranged=others)
        want = self.gradients(self.oracle, *wide(tensors), arranged=others)
        in_torch = self.gradients(self.oracle, *wide(given), arranged=others)
        for one, other, wanted in zip(found, in_torch, want, strict=True):
            wanted[of_lost_rows(one, other)] = float("nan")
        self.compare_gradients(found, want)
