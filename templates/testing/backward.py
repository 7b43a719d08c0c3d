"""How gradients are compared, and tests of the configurations that their kernels are launched with."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pytest
import torch
import triton

from ..runtime import heuristics, matmul_heuristics
from .elementwise import SMALL_BLOCK, SMALL_TILE, TALL_TILE
from .harness import Shape, each, only, results, wide
from .inputs import DEVICE, Layout, contiguous, scattered
from .matmul import Tiles, described
from .rowwise import Row, force_registers, rows_of
from .streaming import Hidden, first_filled, hide, streamed


def of_lost_rows(found: torch.Tensor, in_torch: torch.Tensor) -> torch.Tensor:
    """Where a gradient is NaN as torch's is, and that not everywhere: as a gate's is in rows without keys, since the
    mean there is, and those of keys and values must not be.
    """
    lost = ~in_torch.isfinite()
    return lost & ~found.isfinite() & ~lost.all()


def narrowed(tensors: Sequence[Any]) -> list[Any]:
    """Tensors, of which those of float32 are in half precision if others are."""
    floats = [one for one in tensors if one is not None and one.is_floating_point()]
    half = next((one.dtype for one in floats if one.itemsize == 2), None)
    wide = [one is not None and one.dtype == torch.float32 for one in tensors]
    pairs = zip(tensors, wide, strict=True)
    return [one.to(half) if half and is_wide else one for one, is_wide in pairs]


class BackwardTests(Tiles):
    """Each configuration of the backward, after the forward's own kernels of the same kind."""

    wrt: ClassVar[tuple[str, ...]]  # the inputs that have gradients
    ahead: ClassVar[bool] = False  # whether the forward computes them
    backward_splits: ClassVar[Sequence[int]] = ()  # how many programs share a row
    ctas_per_row: ClassVar[Sequence[int]] = ()
    backward_split_k: ClassVar[Sequence[int]] = ()
    backward_stream_k: ClassVar[Sequence[tuple[int, int]]] = ()
    # Whether rows without keys, which make torch's gradients NaN, have no part in ours.
    leaves_rows_out: ClassVar[bool] = False
    may_be_zero: ClassVar[bool] = False  # where torch's gradients are NaN

    # Gradients

    @classmethod
    def places(cls, wrt: Sequence[str] = ()) -> list[int]:
        return [cls.names().index(name) for name in wrt or cls.wrt]

    @classmethod
    def leaves(cls, tensors: Iterable[Any], wrt: Sequence[str] = ()) -> list[Any]:
        """The tensors, as leaves that require a gradient if they are in `wrt`."""
        places = cls.places(wrt)
        return [
            None if one is None else one.detach().requires_grad_(place in places)
            for place, one in enumerate(tensors)
        ]

    @classmethod
    def handed(cls, given: Iterable[Any]) -> list[Any]:
        """The arguments that are passed to the operator for a test's own tensors."""
        return list(given)

    @classmethod
    def gradients(
        cls,
        function: Callable[..., Any],
        *tensors: Any,
        wrt: Sequence[str] = (),
        as_they_are: bool = False,
        arranged: Layout = contiguous,
        **params: Any,
    ) -> list[torch.Tensor]:
        """The gradients of some inputs, for random incoming gradients with a given layout.

        Of rows that a finite number masks, no gradients come in: they have no part in gradients in float32.
        """
        given = cls.leaves(tensors, wrt)
        found = results(
            function(*(given if as_they_are else cls.handed(given)), **params)
        )
        random = torch.Generator().manual_seed(1)
        # The same for every device and dtype.
        outgoing = [
            torch.randn(one.shape, generator=random).bfloat16().to(one) for one in found
        ]
        if cls.masked_math is not None:
            masked = cls.lost(*tensors, **params)
            pairs = zip(outgoing, masked, strict=True)
            outgoing = [
                one.masked_fill(other.to(one.device), 0) for one, other in pairs
            ]
        pairs = zip(found, outgoing, strict=True)
        smooth, arriving = zip(
            *((one, other) for one, other in pairs if one.requires_grad), strict=True
        )
        by = [given[place] for place in cls.places(wrt)]
        outgoing = [arranged(one) for one in arriving]
        return list(torch.autograd.grad(smooth, by, outgoing))

    @classmethod
    def compare_gradients(
        cls,
        got: Sequence[torch.Tensor],
        want: Sequence[torch.Tensor],
        tensors: Iterable[Any] = (),
        errors: Sequence[float] = (),
    ) -> None:
        """Equal within the tolerance of the dtypes, relative to the maximum of a gradient, or within torch's `errors`.

        Results that are saved for a float32 gradient are rounded to half precision if some `tensors` are half
        precision.
        """
        floats = [one.dtype for one in tensors if one is not None]
        rounding = max((cls.tolerances.get(dtype, 0.0) for dtype in floats), default=0)
        errors = errors or [0.0 for _ in want]
        for one, other, error in zip(got, want, errors, strict=True):
            if cls.leaves_rows_out:
                other = other.where(~other.isnan() | ~one.isfinite(), one.to(other))
            if cls.may_be_zero:
                other = other.where(~other.isnan() | (one != 0).to(other.device), 0)
            tolerance = max(rounding, cls.tolerances[one.dtype])
            scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
            torch.testing.assert_close(
                one,
                other.to(one),
                rtol=tolerance,
                atol=max(tolerance * scale, cls.error_factor * error),
                equal_nan=True,
            )

    @classmethod
    def check_gradients(
        cls,
        *tensors: Any,
        wrt: Sequence[str] = (),
        arranged: Layout = contiguous,
        **params: Any,
    ) -> None:
        """The gradients against those of the oracle."""
        options: Any = {"wrt": wrt, "arranged": arranged, **params}
        got = cls.gradients(cls.call, *tensors, **options)

        def oracle(*tensors: Any) -> list[torch.Tensor]:
            return cls.gradients(cls.oracle, *tensors, **options)

        want = cls.expected(oracle, *wide(tensors))
        if want is not None:
            errors: list[float] = []
            if cls.stores_between:

                def in_torch(*tensors: Any) -> tuple[torch.Tensor, ...]:
                    # What is stored between has the dtype of matrices, beside whatever numbers.
                    given = narrowed(tensors)
                    return tuple(cls.gradients(cls.in_torch, *given, **options))

                errors = cls.errors_of_torch(in_torch, tensors, tuple(want))
            cls.compare_gradients(got, want, tensors, errors)

    # Elements

    @each(
        "table, config",
        lambda cls: cls.configs(heuristics.Flat, SMALL_BLOCK, backward=True),
    )
    def test_backward_flat_configs(
        self, table: str, config: triton.Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.force(monkeypatch, table, config)
        self.check_gradients(*self.make(self.wide))

    @each(
        "table, config",
        lambda cls: cls.configs(heuristics.Tile, SMALL_TILE, TALL_TILE, backward=True),
    )
    def test_backward_tile_configs(
        self, table: str, config: triton.Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.force(monkeypatch, table, config)
        self.check_gradients(*map(scattered, self.make(self.wide)))

    # Rows

    @each("row", lambda cls: rows_of(cls, heuristics.Registers, backward=True))
    def test_backward_register_configs(
        self, row: Row, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        force_registers(type(self), monkeypatch, *row)
        self.check_gradients(*self.make(self.wide))

    @each("table, config", lambda cls: cls.configs(heuristics.Table, backward=True))
    def test_backward_warps(
        self, table: str, config: triton.Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each number of warps that @triton.autotune tries for rows in registers."""
        self.force(monkeypatch, table, config)
        self.check_gradients(*self.make(self.wide))

    @each(
        "table, config",
        lambda cls: cls.configs(heuristics.Loop, SMALL_TILE, backward=True),
    )
    def test_backward_loop_configs(
        self, table: str, config: triton.Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.not_whole(monkeypatch)
        self.force_loop(monkeypatch)
        self.force_all(monkeypatch, heuristics.Loop, config)
        self.check_gradients(*self.make(self.wide))

    @each("shape", lambda cls: cls.layout_shapes() if cls.loops(True) else ())
    def test_backward_loop_over_scattered_rows(
        self, shape: Shape, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With more dimensions than fold."""
        self.not_whole(monkeypatch)
        self.force_loop(monkeypatch)
        self.force_all(monkeypatch, heuristics.Loop, SMALL_TILE)
        self.check_gradients(*map(scattered, self.make(shape)), arranged=scattered)

    @each("params", lambda cls: cls.other_params if cls.loops(True) else ())
    @each("n_splits", lambda cls: (1, *cls.backward_splits))
    def test_backward_params_of_loops(
        self,
        n_splits: int,
        params: Mapping[str, Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.not_whole(monkeypatch)
        self.force_loop(monkeypatch, n_splits)
        for kind in (heuristics.Loop, heuristics.Tile):
            self.force_all(monkeypatch, kind, SMALL_TILE)
        self.check_gradients(*self.make(self.wide), **params)

    @each("n_splits", lambda cls: cls.saving_splits())
    def test_backward_of_loops(
        self, n_splits: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """From what a forward saves that loops over rows, or splits them among programs."""
        self.force_loop(monkeypatch, n_splits)
        self.force_all(monkeypatch, heuristics.Loop, SMALL_TILE)
        self.check_gradients(*self.make(self.wide))

    @classmethod
    def saving_splits(cls) -> list[int]:
        """How many programs share a row of the forward, for cases that no test of the backward's kernels covers."""
        alone = [1] if cls.loops() and not cls.loops(backward=True) else []
        return alone + ([] if cls.backward_splits else list(cls.splits[:1]))

    @each("shift", lambda cls: cls.shifts)
    def test_backward_of_shifted_values(
        self, shift: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.check_gradients(*self.shifted(shift))
        self.not_whole(monkeypatch)
        self.force_loop(monkeypatch)
        self.check_gradients(*self.shifted(shift))

    @each("n_splits", lambda cls: cls.backward_splits)
    def test_backward_splits(
        self, n_splits: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A row shared by several programs, in the forward too if it splits rows."""
        self.not_whole(monkeypatch)
        self.force_loop(monkeypatch, n_splits)
        for kind in (heuristics.Loop, heuristics.Tile):
            self.force_all(monkeypatch, kind, SMALL_TILE)
        self.check_gradients(*self.make(self.wide))
        self.check_gradients(*map(scattered, self.make(self.unfolded())))

    # Sums over rows

    @classmethod
    def not_whole(cls, patch: pytest.MonkeyPatch) -> None:
        """Force kernels with sums over rows neither to hold rows in registers nor to share them among CTAs."""
        for table in cls.tables_of(heuristics.Whole):
            patch.setattr(table, "fits", lambda *_: False)
        patch.setattr(heuristics, "use_shared", lambda *_: False)

    @each("row", lambda cls: rows_of(cls, heuristics.Whole, backward=True))
    def test_backward_whole_configs(
        self, row: Row, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        elements, num_warps, stages = row
        chosen = heuristics.Whole((2**20, elements, num_warps, stages))
        for table in self.tables_of(heuristics.Whole):
            monkeypatch.setattr(table, "fits", lambda *_: True)
            monkeypatch.setattr(table, "choose", chosen.choose)
        monkeypatch.setattr(heuristics, "choose_whole_programs", lambda *_: 2)
        self.check_gradients(*self.make(self.wide))

    @only(lambda cls: cls.tables_of(heuristics.Whole))
    def test_backward_whole_loops(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One program, which loops over all rows."""
        single = heuristics.Whole((2**20, 1, 4, 1))
        for table in self.tables_of(heuristics.Whole):
            monkeypatch.setattr(table, "fits", lambda *_: True)
            monkeypatch.setattr(table, "choose", single.choose)
        monkeypatch.setattr(heuristics, "choose_whole_programs", lambda *_: 1)
        self.check_gradients(*self.make(self.wide))

    @each("members", lambda cls: cls.ctas_per_row)
    def test_backward_shared_rows(
        self, members: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """CTAs that wait for one another need a GPU: in the interpreter, each row has one CTA."""

        def choose(n_cols: int, _: int) -> triton.Config:
            block_n = triton.next_power_of_2(-(-n_cols // members))
            tile = {"CTAS_PER_ROW": members, "BLOCK_M": 1, "BLOCK_N": block_n}
            return triton.Config(tile, 4)

        self.not_whole(monkeypatch)
        is_possible = members == 1 or DEVICE == "cuda"
        monkeypatch.setattr(heuristics, "use_shared", lambda *_: is_possible)
        monkeypatch.setattr(heuristics, "choose_shared", choose)
        monkeypatch.setattr(heuristics, "choose_groups", lambda *_: 2)
        self.check_gradients(*self.make(self.wide))

    @each(
        "table, config",
        lambda cls: cls.configs(heuristics.Sums, SMALL_TILE, backward=True),
    )
    def test_backward_sums_configs(
        self, table: str, config: triton.Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.not_whole(monkeypatch)
        self.force(monkeypatch, table, config)
        monkeypatch.setattr(heuristics, "choose_programs", lambda *_: 3)
        self.check_gradients(*self.make(self.wide))

    # Streams

    @each("dtype, table, config", lambda cls: streamed(cls, backward=True))
    def test_backward_streamed_configs(
        self,
        dtype: torch.dtype,
        table: str,
        config: triton.Config,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.force(monkeypatch, table, config)
        self.check_gradients(*self.make(self.tiled[1], self.all_of(dtype)))

    @only(lambda cls: cls.few_keys)
    def test_gradients_of_fewer_keys_than_rows(self) -> None:
        """Those of torch. Where rows without keys make these NaN, those of keys and values are none here; those of a
        gate are, as what it multiplies is.
        """
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

    # Matmuls

    @each(
        "dtype, table, config",
        lambda cls: cls.strided(
            torch.float16, torch.float32, torch.float64, backward=True
        ),
    )
    def test_backward_strided_configs(
        self,
        dtype: torch.dtype,
        table: str,
        config: triton.Config,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.force_tiles(monkeypatch, table, config)
        self.force_split_k(monkeypatch, 1)
        self.check_gradients(*self.make(self.tiled[1], self.all_of(dtype)))

    @each("n_parts", lambda cls: cls.backward_split_k)
    def test_backward_split_k(
        self, n_parts: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A sum split among several programs."""
        self.force_small(monkeypatch)
        self.force_split_k(monkeypatch, n_parts)
        self.check_gradients(*self.make(self.tiled[1], self.half()))

    @described
    @each(
        "table, config",
        lambda cls: (
            cls.configs(matmul_heuristics.Tma, cls.small(), backward=True)
            if cls.tables_of(matmul_heuristics.Tma)
            else ()
        ),
    )
    def test_backward_tma_configs(
        self, table: str, config: triton.Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.force_tiles(monkeypatch, table, config, tma=True)
        self.check_gradients(*self.make(self.tiled[1], self.half()))

    @described
    @only(lambda cls: cls.tables_of(matmul_heuristics.Tma))
    def test_backward_of_tma(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From what the TMA kernel of the forward saves; it needs aligned lengths."""
        self.force_small(monkeypatch, tma=True)
        self.check_gradients(*self.make(self.tiled[0], self.half()))

    @described
    @each("long_parts, short_parts", lambda cls: cls.backward_stream_k)
    def test_backward_stream_k(
        self, long_parts: int, short_parts: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Half of the tiles, split into so many parts and so many."""
        self.force_small(monkeypatch, tma=True)
        self.force_stream_k(monkeypatch, long_parts, short_parts)
        self.check_gradients(*self.make(self.tiled[1], self.half()))
