"""Tests of matmuls."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
import torch
from triton import Config

from ..runtime import launch, matmul_heuristics
from .gradients import BackwardTests
from .harness import SUMS, Dtypes, Harness, Patch, Shape, each, gpu, in_turn, only
from .inputs import DEVICE, Layout, backward_matrices, contiguous
from .launches import hopper
from .operator import OperatorTests

described = pytest.mark.skipif(
    DEVICE == "cuda" and torch.cuda.get_device_capability() < (9, 0), reason="needs TMA"
)


class Tiles(Harness):
    """Forces the choice of kernels of matmuls, including those of a backward."""

    tiled: ClassVar[Sequence[Shape]]  # several tiles with tails, TMA can copy the first
    shared: ClassVar[Shape]  # eleven small tiles
    narrowest: ClassVar[int] = 1  # columns that tiles must have

    @classmethod
    def half(cls) -> Dtypes:
        return cls.all_of(torch.float16)

    @classmethod
    def small(cls) -> Config:
        """A small tile, but wide enough if it must hold whole rows, or strips of them."""
        return cls.few_rows(max(cls.narrowest, min(cls.widths())))

    @classmethod
    def extremes(cls) -> list[Config]:
        """A small tile and, for axes whose lengths the tables' tiles divide, one wider than these."""
        wide = [cls.few_rows(4 * max(cls.widths()))] if cls.sizes else []
        return [cls.small(), *wide]

    @classmethod
    def few_rows(cls, width: int) -> Config:
        """A tile with few rows."""
        tile = {"BLOCK_M": 16, "BLOCK_N": width, "BLOCK_K": 32, "GROUP": 2}
        return Config(tile, num_stages=2)

    @classmethod
    def widths(cls) -> list[int]:
        """The widths of the tiles in the forward's tables; without those, of small ones."""
        found = [
            config.kwargs["BLOCK_N"]
            for kind in (matmul_heuristics.Tma, matmul_heuristics.Strided)
            for table in cls.tables_of(kind, backward=False)
            for config in getattr(table, "half", table)
        ]
        return found or [16]

    @classmethod
    def strided(
        cls, *dtypes: torch.dtype, backward: bool = False
    ) -> list[tuple[torch.dtype, str, Any]]:
        """Tables of tiles that are read through pointers, with each tile for some dtypes: half precision, and others
        that all inputs may have.
        """
        tables = cls.tables_of(matmul_heuristics.Strided, backward)
        others = {torch.float16: cls.extremes()} if tables else {}
        return [
            (dtype, name, config)
            for dtype in dtypes
            if dtype == torch.float16 or cls.all_of(dtype)
            for table, name in tables.items()
            for config in (*table.candidates(dtype), *others.get(dtype, ()))
        ]

    @classmethod
    def force_tiles(
        cls, patch: Patch, table: str, config: Config, tma: bool = False
    ) -> None:
        """Force launches to take a tile of a table, and small tiles of the others, in which it might not fit."""
        cls.force_small(patch, tma)
        cls.force(patch, table, config)

    @classmethod
    def force_small(
        cls, patch: Patch, tma: bool = False, tile: Config | None = None
    ) -> None:
        """Force launches to take small tiles, or given ones, of every table."""
        for kind in (matmul_heuristics.Tma, matmul_heuristics.Strided):
            cls.force_all(patch, kind, tile or cls.small())
        patch.setattr(matmul_heuristics, "use_tma", lambda *_: tma)

    @classmethod
    def force_split_k(cls, patch: Patch, n_splits: int) -> None:
        """Force sums to be split among `n_splits` programs."""
        patch.setattr(matmul_heuristics, "choose_split_k", lambda *_: n_splits)

    @classmethod
    def force_stream_k(cls, patch: Patch, long_splits: int, short_splits: int) -> None:
        """Split half of the tiles: a third of these into `short_splits`, the others into `long_splits`."""

        def choose(tiles: int, *_: int) -> tuple[int, int, int, int]:
            split = tiles - (tiles - 1) // 2
            short = (split + 1) // 3
            return split - short, long_splits, short, short_splits

        patch.setattr(matmul_heuristics, "choose_stream_k", choose)


class Products(Tiles):
    """Tolerances of results that are computed from matmuls."""

    tolerances = SUMS
    cancels = True
    # In float32 it adds in the order of the inner axis, torch in blocks.
    error_factor = 4
    rounds_factors: ClassVar[bool] = False  # that it computes, to what is multiplied

    @classmethod
    def can_run(cls, dtypes: Dtypes) -> bool:
        """Whether dtypes are tested here: Triton's interpreter truncates to bfloat16 where it should round."""
        return DEVICE == "cuda" or torch.bfloat16 not in dtypes

    @classmethod
    def tolerance(cls, dtype: torch.dtype, tensors: Iterable[Any]) -> float:
        """Operands with a prologue are rounded to the dtype that is multiplied."""
        dtypes = [dtype]
        if cls.rounds_factors:
            dtypes += [one.dtype for one in tensors if one is not None]
        return max(cls.tolerances.get(one, 0.0) for one in dtypes)


class MatmulTests(Products, OperatorTests):
    """Tiles read through pointers or copied by TMA, split-K and stream-K."""

    stream_k: ClassVar[Sequence[tuple[int, int]]] = ()  # long and short parts of tiles
    joined: ClassVar[tuple[str, str] | None] = None  # inputs that TMA copies as one
    gluon_matmuls: ClassVar[
        Sequence[Shape]
    ] = ()  # of matrices that a Gluon kernel multiplies
    has_groups: ClassVar[bool] = False  # of terms, with scales of their own

    @classmethod
    def strided_in_turn(cls) -> list[tuple[Any, ...]]:
        """Of half precision with each shape in turn, of wider dtypes with tails."""
        wide = cls.strided(torch.float32, torch.float64)
        half = in_turn(cls.strided(torch.float16), cls.tiled)
        return [*half, *((cls.tiled[1], *one) for one in wide)]

    @each("shape, dtype, table, config", lambda cls: cls.strided_in_turn())
    def test_strided_configs(
        self, shape: Shape, dtype: torch.dtype, table: str, config: Config, patch: Patch
    ) -> None:
        self.force_tiles(patch, table, config)
        self.force_split_k(patch, 1)
        self.check(*self.make(shape, self.all_of(dtype)))

    @each("n_splits", lambda _: (2, 3, 8))
    def test_split_k(self, n_splits: int, patch: Patch) -> None:
        """A sum split among several programs: three steps by two, four by more."""
        self.force_small(patch)
        self.force_split_k(patch, n_splits)
        self.check(*self.make(self.tiled[n_splits > 2]))

    @gpu
    def test_split_k_of_calls_alike(self, patch: Patch) -> None:
        """They launch both kernels, with partial sums of their own."""
        self.force_small(patch)
        self.force_split_k(patch, 3)
        self.check(*self.make(self.tiled[1]))
        self.check(*self.make(self.tiled[1], seed=1))

    @described
    @each(
        "shape, table, config",
        lambda cls: in_turn(
            cls.configs(matmul_heuristics.Tma, *cls.extremes(), backward=False),
            cls.tiled,
        ),
    )
    @each("layout", lambda _: (contiguous, backward_matrices))
    def test_tma_configs(
        self, layout: Layout, shape: Shape, table: str, config: Config, patch: Patch
    ) -> None:
        self.force_tiles(patch, table, config, tma=True)
        self.check(*map(layout, self.make(shape, self.half())))

    @described
    @each("first", lambda cls: cls.joined or ())
    @each(
        "table, config",
        lambda cls: cls.configs(matmul_heuristics.Tma, cls.small(), backward=False),
    )
    def test_joined_inputs_in_either_order(
        self, table: str, config: Config, first: str, patch: Patch
    ) -> None:
        """Either of the two that TMA copies as one may come first in memory."""
        assert self.joined is not None
        places = [self.names().index(name) for name in self.joined]
        self.force_tiles(patch, table, config, tma=True)
        tensors = list(self.make(self.tiled[0], self.half()))
        pair = torch.stack([tensors[place] for place in places])
        for place, tensor in zip(places, pair, strict=True):
            tensors[place] = tensor
        if first != self.joined[0]:
            one, other = places
            tensors[one], tensors[other] = tensors[other], tensors[one]
        self.check(*tensors)

    @described
    @each("long_splits, short_splits", lambda cls: cls.stream_k)
    @each("tile", lambda cls: cls.extremes())
    def test_stream_k(
        self, tile: Config, long_splits: int, short_splits: int, patch: Patch
    ) -> None:
        """Half of the tiles are split."""
        self.force_small(patch, tma=True, tile=tile)
        self.force_stream_k(patch, long_splits, short_splits)
        self.check(*self.make(self.shared, self.half()))

    @hopper
    @each("shape", lambda cls: cls.gluon_matmuls)
    @each(
        "tile",
        lambda cls: (
            matmul_heuristics.OF_GROUPS if cls.has_groups else matmul_heuristics.OF_ALL
        ),
    )
    def test_gluon_kernel(self, shape: Shape, tile: Any, patch: Patch) -> None:
        """The Gluon kernel of Hopper, several tiles to a program, and the plain kernel on the same tensors."""
        patch.setattr(matmul_heuristics, "use_tma", lambda *_: True)
        patch.setattr(matmul_heuristics, "persistent_programs", lambda _: 2)
        spy = Mock(wraps=launch.launched)
        patch.setattr(launch, "launched", spy)
        tensors = self.make(shape)
        for chosen in (tile, None):
            patch.setattr(matmul_heuristics, "gluon_tile", lambda *_, it=chosen: it)
            launch.LAUNCHES.clear()
            spy.reset_mock()
            self.check(*tensors)
            kernels = [one.args[0].__name__ for one in spy.call_args_list]
            found = any(name.endswith("_gluon_kernel") for name in kernels)
            assert found == (chosen is not None)

    @gpu
    @described
    @each(
        "shape", lambda cls: cls.tiled if cls.tables_of(matmul_heuristics.Tma) else ()
    )
    def test_tma_of_calls_alike(self, shape: Shape, patch: Patch) -> None:
        """They reuse the descriptors of earlier calls, with the addresses of their own tensors."""
        self.force_small(patch, tma=True)
        if self.stream_k:
            self.force_stream_k(patch, 2, 3)
        self.check(*self.make(shape, self.half()))
        self.check(*self.make(shape, self.half(), seed=1))


class MatmulGradients(Tiles, BackwardTests):
    """Each configuration of the matmuls of a backward."""

    backward_split_k: ClassVar[Sequence[int]] = ()
    backward_stream_k: ClassVar[Sequence[tuple[int, int]]] = ()

    @each(
        "dtype, table, config",
        lambda cls: cls.strided(
            torch.float16, torch.float32, torch.float64, backward=True
        ),
    )
    def test_backward_strided_configs(
        self, dtype: torch.dtype, table: str, config: Config, patch: Patch
    ) -> None:
        self.force_tiles(patch, table, config)
        self.force_split_k(patch, 1)
        self.check_gradients(*self.make(self.tiled[1], self.all_of(dtype)))

    @each("n_splits", lambda cls: cls.backward_split_k)
    def test_backward_split_k(self, n_splits: int, patch: Patch) -> None:
        """A sum split among several programs."""
        self.force_small(patch)
        self.force_split_k(patch, n_splits)
        self.check_gradients(*self.make(self.tiled[1], self.half()))

    @described
    @each(
        "table, config",
        lambda cls: cls.configs(matmul_heuristics.Tma, cls.small(), backward=True),
    )
    def test_backward_tma_configs(
        self, table: str, config: Config, patch: Patch
    ) -> None:
        self.force_tiles(patch, table, config, tma=True)
        self.check_gradients(*self.make(self.tiled[1], self.half()))

    @described
    @only(lambda cls: cls.tables_of(matmul_heuristics.Tma))
    def test_backward_of_tma(self, patch: Patch) -> None:
        """From what the TMA kernel of the forward saves; it needs aligned lengths."""
        self.force_small(patch, tma=True)
        self.check_gradients(*self.make(self.tiled[0], self.half()))

    @described
    @each("long_splits, short_splits", lambda cls: cls.backward_stream_k)
    def test_backward_stream_k(
        self, long_splits: int, short_splits: int, patch: Patch
    ) -> None:
        """Half of the tiles are split."""
        self.force_small(patch, tma=True)
        self.force_stream_k(patch, long_splits, short_splits)
        self.check_gradients(*self.make(self.tiled[1], self.half()))
