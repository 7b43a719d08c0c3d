"""Tests of operators of several steps."""

from collections.abc import Iterable
from typing import Any

import torch
from triton import Config

from ..runtime import matmul_heuristics
from .between import StoresBetween, StreamsBetween
from .harness import Patch, each
from .matmul import Products, described
from .rowwise import RowwiseTests
from .streaming import StreamingTests


class StepsTests(RowwiseTests):
    """Row-wise steps, which compute in the widest dtype of what they read, and store in that dtype for other steps."""

    @classmethod
    def tolerance(cls, dtype: torch.dtype, tensors: Iterable[Any]) -> float:
        dtypes = [dtype, *(one.dtype for one in tensors if one is not None)]
        return max(cls.tolerances.get(one, 0.0) for one in dtypes)


class MatmulStepsTests(StoresBetween, Products, RowwiseTests):
    """Each configuration of each step, with small ones for the others; intermediates are rounded."""

    rounds_factors = True
    stores_scores = True
    expands = False  # After a matmul, what is equal is constant along reduced axes.

    @each("dtype, table, config", lambda cls: cls.strided(torch.float16))
    @each("n_splits", lambda _: (1, 3))
    def test_strided_configs(
        self,
        n_splits: int,
        dtype: torch.dtype,
        table: str,
        config: Config,
        patch: Patch,
    ) -> None:
        self.force_tiles(patch, table, config)
        self.force_split_k(patch, n_splits)
        self.check(*self.make(self.wide, self.all_of(dtype)))

    @described
    @each(
        "table, config",
        lambda cls: cls.configs(matmul_heuristics.Tma, cls.small(), backward=False),
    )
    def test_tma_configs(self, table: str, config: Config, patch: Patch) -> None:
        self.force_tiles(patch, table, config, tma=True)
        self.check(*self.make(self.wide, self.half()))


class StreamStepsTests(StreamsBetween, StreamingTests, MatmulStepsTests):
    """Those of steps that stream an axis, too."""
