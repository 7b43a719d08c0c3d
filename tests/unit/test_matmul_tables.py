"""Which tiles kernels of matrix products may take, by what each of them sums."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton

from tests.harness.importing import module_at, runtime_module, runtime_of
from tritongen.diagnostics.report import Mistakes
from tritongen.emit.candidates import Config
from tritongen.emit.matmul_configs import Summing, Tables, fitting
from tritongen.operator.compile import forward_of, generate
from tritongen.spec.read import read_spec
from tritongen.spec.types import Schedule

ONE = Summing(1, (1, 1), described=True)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(block_n=(32, 64))])
def test_tiles_are_as_wide_as_strips(schedule: Schedule) -> None:
    """Those that TMA copies are finished in halves."""
    tables = fitting(replace(ONE, strips=64), schedule)
    assert min(tiles.block_n for tiles in tables.descriptors) == 128
    for table in (tables.pointers, tables.pointers_single, tables.pointers_double):
        assert min(tiles.block_n for tiles in table) == 64


def test_tiles_of_wide_groups_leave_memory_for_the_epilogue() -> None:
    """On sm_100, 64 x 256 with four stages would take more than there is."""
    tables = fitting(replace(ONE, strips=128), Schedule())
    assert [(tiles.block_m, tiles.block_n, tiles.stages) for tiles in tables.descriptors] == [
        (128, 256, 3),
        (64, 256, 3),
    ]


def test_kernels_of_one_matmul_have_the_tiles_of_the_runtimes() -> None:
    """Both were measured; what the runtime computes has its tables written out there."""
    gemm = runtime_module("gemm")

    def read(configs: Sequence[triton.Config]) -> tuple[Config, ...]:
        sides = [[one.kwargs[f"BLOCK_{side}"] for side in "MNK"] for one in configs]
        return tuple(
            Config(one.num_warps, *side, stages=one.num_stages) for one, side in zip(configs, sides, strict=True)
        )

    for table, splits in ((gemm.STRIDED, False), (gemm.SPLIT, True)):
        found = Tables(*map(read, (gemm.TMA.configs, table.half, table.single, table.double)))
        assert found == fitting(replace(ONE, splits=splits), Schedule())


def test_sums_fit_in_registers() -> None:
    """128 numbers of float32 in each thread leave room for the rest."""
    for products in (1, 2, 3, 4):
        tables = fitting(Summing(products, (1, products), described=True), Schedule())
        for tiles in (*tables.descriptors, *tables.pointers):
            assert products * tiles.block_m * tiles.block_n <= 128 * 32 * tiles.warps


def test_what_is_read_fits_in_shared_memory() -> None:
    for products in (1, 2, 3, 4, 8):
        tables = fitting(Summing(products, (products, products), described=True), Schedule())
        for tiles in tables.descriptors:
            stage = 2 * products * (tiles.block_m + tiles.block_n) * tiles.block_k
            assert 2 * stage <= tiles.stages * stage <= 227 * 1024
        for tiles in tables.pointers:
            stage = 2 * products * (tiles.block_m + tiles.block_n) * tiles.block_k
            assert stage <= (tiles.stages - 1) * stage <= 99 * 1024


def test_products_of_one_sum_read_no_more_at_once_than_one() -> None:
    one, two = (fitting(Summing(1, (n, n), described=True, terms=n), Schedule()) for n in (1, 2))
    for tiles, halved in zip(one.pointers, two.pointers, strict=True):
        assert (halved.block_m, halved.block_n, 2 * halved.block_k) == (tiles.block_m, tiles.block_n, tiles.block_k)
    in_turn = fitting(Summing(1, (2, 2), described=True, alternates=True, terms=2), Schedule())
    assert in_turn.descriptors == one.descriptors


def test_halves_of_float8_fit_in_registers() -> None:
    """The sum of a tile, and what a block of half of it sums up to: 192 numbers of a thread's 255."""
    halved = Summing(1, (1, 1), described=True, bytes=True, twice=True, halved=True)
    whole = replace(halved, halved=False)
    wide, narrow = (fitting(summing, Schedule()) for summing in (halved, whole))
    assert max(tiles.block_m * tiles.block_n // tiles.warps // 32 for tiles in wide.descriptors) == 128
    assert max(tiles.block_m * tiles.block_n // tiles.warps // 32 for tiles in narrow.descriptors) == 64
    assert wide.pointers == narrow.pointers


def test_what_is_computed_besides_has_registers() -> None:
    """Of a tile of 128 x 128, the gradient of a SwiGLU spilled 348 bytes with 4 warps; without, 4 are faster."""
    plain, computing = (fitting(replace(ONE, computes=computes), Schedule()).descriptors for computes in (False, True))
    assert [tiles.warps for tiles in plain] == [8, 4, 4, 4]
    assert [tiles.warps for tiles in computing] == [8, 8, 4, 4]
    assert [replace(tiles, warps=8) for tiles in plain] == [replace(tiles, warps=8) for tiles in computing]


def test_a_schedule_is_followed() -> None:
    """Whoever asks for tiles gets them, though they may not fit."""
    schedule = Schedule(block_m=(128,), block_n=(256,), num_stages=(5,))
    (tiles,) = fitting(Summing(2, (2, 2), described=True), schedule).descriptors
    assert (tiles.block_m, tiles.block_n, tiles.stages) == (128, 256, 5)


def test_steps_that_multiply_follow_a_schedule() -> None:
    """By kernels of their own, since those of the runtime have tiles of their own."""
    text = """
        op.name = "scheduled"
        inputs = { x = "float[M, K]", w = "float[N, K]" }
        compute = { h = "sum(x * w, K)", y = "softmax(h, N)" }
        outputs = { y = "x" }
    """
    spec = read_spec("scheduled.toml", text)
    listed = replace(spec, schedule=Schedule(block_k=(16, 32), num_stages=(2,)))
    for block_k in (16, 32):
        assert f"128, {block_k}, num_warps=8, num_stages=2)" in generate(listed)["configs.py"]
    with pytest.raises(Mistakes, match="block_m is 8, and tiles of a contraction"):
        forward_of(replace(listed, schedule=Schedule(block_m=(8,), block_k=(16,))))


def test_no_step_without_a_matmul_has_blocks_of_the_summed_axis() -> None:
    rows = read_spec(
        "rows.toml",
        """
        op.name = "rows"
        inputs.x = "float[M, N]"
        compute.y = "x - sum(x, M) - sum(x, N)"
        outputs.y = "x"
        schedule = { block_k = 64, block_m = 4 }
        """,
    )
    with pytest.raises(Mistakes, match="block_k is for the summed axis"):
        forward_of(rows)


CPU = torch.device("cpu")  # For which the rules choose as for an H100.


@pytest.fixture
def matmul() -> ModuleType:
    """The operator, imported anew with its runtime."""
    return module_at(Path(__file__).parents[2] / "generated" / "matmul")


@pytest.fixture
def matmul_heuristics(matmul: ModuleType) -> ModuleType:
    return runtime_of(matmul, "matmul_heuristics")


@pytest.fixture
def configs(matmul: ModuleType) -> ModuleType:
    return importlib.import_module(f"{matmul.__name__}.configs")


@pytest.mark.parametrize("memory", [64 * 1024, 99 * 1024, 163 * 1024, 227 * 1024])
def test_stages_fit_into_shared_memory(
    configs: ModuleType, matmul_heuristics: ModuleType, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul_heuristics.heuristics, "shared_memory", lambda _: memory)
    for config in configs.STRIDED.half:
        block_m, block_n, block_k = (config.kwargs[f"BLOCK_{side}"] for side in "MNK")
        stage = (block_m + block_n) * block_k * 2
        chosen = [matmul_heuristics.choose_stages(config, programs, stage, CPU) for programs in (1, 66, 132, 133)]
        assert all(stages * stage <= memory for stages in chosen)
        assert chosen == sorted(chosen, reverse=True)
        if memory == 227 * 1024:
            assert chosen[-1] == config.num_stages


@pytest.mark.parametrize(("memory", "more"), [(99 * 1024, 0), (163 * 1024, 0), (227 * 1024, 1)])
def test_kernels_without_an_epilogue_have_a_further_stage_where_it_fits(
    configs: ModuleType, matmul_heuristics: ModuleType, memory: int, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul_heuristics.heuristics, "shared_memory", lambda _: memory)
    config = next(iter(configs.TMA))
    assert matmul_heuristics.stages_without_epilogue(config, (128 + 256) * 64 * 2, CPU) == config.num_stages + more


def test_sums_are_split_among_three_programs_or_more(matmul_heuristics: ModuleType) -> None:
    counts = {1: 32, 16: 8, 44: 3, 45: 1, 66: 1, 132: 1, 0: 32}
    assert {tiles: matmul_heuristics.choose_split_k(tiles, 8192, CPU) for tiles in counts} == counts
    assert matmul_heuristics.choose_split_k(1, 512, CPU) == 1


@pytest.mark.parametrize(
    ("shape", "chosen"),
    [
        ((1, 16, 4096, 4096), ((16, 64), 8)),
        ((1, 32, 4096, 4096), ((32, 64), 8)),
        ((1, 64, 1024, 1024), ((16, 64), 8)),
        ((1, 64, 4096, 4096), ((64, 128), 8)),
        ((1, 64, 11_008, 4096), ((64, 128), 3)),
        ((1, 256, 1000, 2048), ((64, 128), 8)),
        ((1, 300, 4096, 4096), ((64, 128), 4)),
        ((1, 512, 512, 4096), ((64, 128), 8)),
        ((1, 512, 4096, 4096), ((128, 128), 2)),
        ((1, 1024, 1024, 1024), ((64, 64), 1)),
        ((1, 4096, 64, 4096), ((64, 64), 8)),
        ((1, 4096, 4096, 4096), ((128, 128), 1)),
        ((4096, 16, 16, 64), ((16, 64), 1)),  # Not 128 x 128 of all rows together.
        ((1, 0, 4096, 4096), ((128, 128), 1)),
    ],
)
def test_sums_without_tensor_cores_have_the_fastest_tiles_and_parts(
    shape: tuple[int, int, int, int],
    chosen: tuple[tuple[int, int], int],
    configs: ModuleType,
    matmul_heuristics: ModuleType,
) -> None:
    """As measured, within 3 %: several programs for each SM, also where the matrix has few rows."""
    n_batch, n_rows, n_cols, _ = shape
    sums = matmul_heuristics.FmaSums(*shape, swaps=False)
    config = configs.STRIDED.choose(n_rows, n_cols, torch.float32, True, CPU, n_batch, sums)
    tiles = matmul_heuristics.count_tiles(config, n_rows, n_cols, n_batch)
    n_splits = matmul_heuristics.choose_split_k(tiles, shape[-1], CPU, config, sums)
    assert (matmul_heuristics.blocks_of(config)[:2], n_splits) == chosen


def test_tiles_of_a_batch_have_the_rows_of_one_matrix(configs: ModuleType) -> None:
    found = [configs.STRIDED.choose(16, 64, torch.bfloat16, True, CPU, n_batch) for n_batch in (1, 4096)]
    assert [config.kwargs["BLOCK_M"] for config in found] == [32, 16]


@pytest.mark.parametrize(
    ("shape", "by_tma"),
    [
        ((4096, 4096, 1024), True),
        ((2048, 2048, 2048), True),  # A tile for each SM.
        ((1024, 2048, 4096), True),
        ((1000, 1000, 1000), True),  # Tiles for half of the SMs,
        ((136, 4096, 4096), True),  # and for as many, though most of them are not full.
        ((256, 256, 100_352), True),  # Gradients of the weights of convolutions with windows of one element.
        ((512, 512, 8192), True),
        ((512, 512, 4096), False),  # Sums so short that the reduction would show.
        ((128, 512, 65_536), False),
        ((768, 768, 768), False),
        ((256, 2048, 1024), False),
    ],
    ids=str,
)
def test_matmuls_of_so_many_terms_are_read_by_tma(
    shape: tuple[int, int, int], by_tma: bool, matmul_heuristics: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As measured on an H200; without stream-K, pointers read small tiles of few."""
    monkeypatch.setattr(matmul_heuristics, "capability", lambda _: (9, 0))
    assert matmul_heuristics.use_tma(CPU, torch.bfloat16, *shape, 1, True, True) == by_tma
    if shape[0] * shape[1] <= 1000**2:
        assert not matmul_heuristics.use_tma(CPU, torch.bfloat16, *shape, 1, True, False)


@pytest.mark.parametrize(
    ("shape", "by_tma"),
    [((512, 4096, 4096), False), ((1280, 1280, 1280), False), ((2304, 2304, 2304), True), ((512, 512, 65_536), True)],
    ids=str,
)
def test_pointers_multiply_bytes_as_fast_unless_there_are_many(
    shape: tuple[int, int, int], by_tma: bool, matmul_heuristics: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul_heuristics, "capability", lambda _: (9, 0))
    assert matmul_heuristics.use_tma(CPU, torch.float8_e4m3fn, *shape, 1, True, True) == by_tma


def test_blocks_of_inner_axes_that_are_cut_apart_are_nearly_full(matmul_heuristics: ModuleType) -> None:
    blocks = {3136: 256, 784: 64, 256: 256, 144: 32, 64: 64}
    assert {length: matmul_heuristics.even_block_k(length, 256) for length in blocks} == blocks
    assert matmul_heuristics.even_block_k(784, 16) == 16
    assert [length for length in range(16, 256, 16) if not matmul_heuristics.fills(length, 32)] == [16, 48, 80, 112]


def test_the_tail_wave_is_split_where_that_saves_enough(matmul_heuristics: ModuleType) -> None:
    """What is left of whole rounds, in parts that are one round or two, of 8 steps or more."""
    assert matmul_heuristics.choose_stream_k(18, 1024, 132) == (18, 7, 0, 0)
    assert matmul_heuristics.choose_stream_k(72, 512, 132) == (66, 2, 6, 22)
    assert matmul_heuristics.choose_stream_k(2048, 128, 132) == (66, 2, 2, 16)
    assert matmul_heuristics.choose_stream_k(4096, 64, 132) == (4, 8, 0, 0)
    assert matmul_heuristics.choose_stream_k(2048, 64, 132) == (0, 0, 0, 0)  # As long as the round that it would save.
    split = {0: 0, 110: 0, 132: 0, 264: 0, 300: 36, 390: 0}
    assert {tiles: matmul_heuristics.choose_stream_k(tiles, 128, 132)[0] for tiles in split} == split
    assert matmul_heuristics.choose_stream_k(72, 0, 132) == (0, 0, 0, 0)


def test_tiles_are_chosen_by_the_waves_that_they_take(configs: ModuleType) -> None:
    """The best of three tiles, for the first three shapes as measured; in the last two programs share no sums."""
    chosen = [
        ((4096, 4096, 4096), 256),
        ((2304, 4608, 4096), 256),  # Of 324 tiles, 60 are shared.
        ((3000, 5000, 4096), 256),
        ((768, 768, 65536), 256),  # 18 tiles, all of them shared.
        ((1024, 1024, 1024), 128),
        ((2048, 4104, 0), 128),
        ((768, 768, 0), 128),
    ]
    found = [configs.TMA.choose(*shape, CPU).kwargs["BLOCK_N"] for shape, _ in chosen]
    assert found == [columns for _, columns in chosen]
    assert configs.TMA.choose(768, 768, 0, CPU).kwargs["BLOCK_M"] == 64


def test_few_rows_are_one_tile(configs: ModuleType) -> None:
    """So that the right matrix is read once; its columns in pieces of 128 bytes, where that leaves tiles enough."""

    def tile(n_rows: int, n_cols: int, dtype: torch.dtype, cols_last: bool, sides: str = "MN") -> tuple[int, ...]:
        config = configs.STRIDED.choose(n_rows, n_cols, dtype, cols_last, CPU)
        return tuple(config.kwargs[f"BLOCK_{side}"] for side in sides)

    for n_rows in (1, 16, 17, 32, 33, 64):
        for n_cols in (512, 1024, 4096, 14336):
            for cols_last in (False, True):
                assert tile(n_rows, n_cols, torch.bfloat16, cols_last)[0] >= n_rows
            assert n_cols < 4096 or tile(n_rows, n_cols, torch.bfloat16, True)[1] >= 64
    assert tile(64, 4096, torch.bfloat16, False) == tile(64, 1024, torch.bfloat16, True) == (64, 32)
    assert tile(16, 4096, torch.float32, True) == (16, 64)
    # Half of the inner axis at once, and twice the stages, where its columns are what is contiguous.
    assert tile(16, 4096, torch.bfloat16, True, "MNK") == (16, 64, 128)
    assert tile(16, 4096, torch.bfloat16, False, "MNK") == (32, 32, 256)


def test_swapped_factors_have_tiles_of_many_rows(configs: ModuleType, matmul_heuristics: ModuleType) -> None:
    """In others, threads of a warp read the first factor from the same banks."""
    sums = [matmul_heuristics.FmaSums(1, 64, 1024, 1024, swaps) for swaps in (False, True)]
    found = [configs.STRIDED.choose(64, 1024, torch.float32, True, CPU, 1, one) for one in sums]
    assert [config.kwargs["BLOCK_M"] >= 64 for config in found] == [False, True]


@pytest.mark.parametrize("kind", ["rows", "only", "first", "inner"])
def test_matrices_are_copied_where_many_others_read_them(kind: str, matmul_heuristics: ModuleType) -> None:
    """Never a small one for a few, always a large one for many; and more of either never leave it uncopied."""
    sizes = [2**power for power in range(4, 31)]
    found = [[matmul_heuristics.use_copies(rows, elements, kind) for elements in sizes] for rows in sizes[:10]]
    assert (found[0][0], found[-1][-1]) == (False, True)
    for line in (*found, *zip(*found, strict=True)):
        assert [*line] == sorted(line)


def images(side: int, count: int = 4) -> torch.Tensor:
    """Images of 8 channels, as matrices [pixels, channels]: with an odd number of pixels, TMA does not read them."""
    return torch.empty(count, 8, side * side, dtype=torch.bfloat16).mT


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        (torch.empty(512, 8, dtype=torch.bfloat16), images(7), 33),  # Only the images are copied.
        (torch.empty(512, 9, dtype=torch.bfloat16)[:, :8], images(7), 129),  # The weights too, for so few columns.
        (torch.empty(512, 8, dtype=torch.bfloat16), images(8), 129),  # None is, and pointers read vectors.
    ],
)
def test_narrow_results_are_read_by_tma_if_little_is_copied(left: Any, right: Any, found: int) -> None:
    contraction = runtime_module("contraction")
    n_rows, n_cols = left.shape[-2], right.shape[-2]
    is_readable = contraction.all_readable((left, right))
    assert contraction.narrowest((left,), (right,), n_rows, n_cols, is_readable) == found
    assert contraction.narrowest((right,), (left,), n_cols, n_rows, is_readable) == found


@pytest.mark.parametrize(
    ("sizes", "is_readable", "narrowest", "found"),
    [
        ((1535, 1537, 1533), False, 129, True),
        ((1023, 1025, 1021), True, 129, True),
        ((1023, 1025, 1021), False, 129, False),  # Copies would take longer than they save.
        ((512, 49, 2048, 32), False, 33, True),  # 32 images.
        ((512, 49, 2048, 32), False, 129, False),
        ((512, 49, 2048, 16), False, 33, False),
        ((512, 25, 2048, 256), False, 33, False),
        ((4096, 4096, 4096), True, 129, True),
    ],
)
def test_matmuls_are_read_by_tma_where_that_pays(
    sizes: tuple[int, ...], is_readable: bool, narrowest: int, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heuristics = runtime_module("matmul_heuristics")
    monkeypatch.setattr(heuristics, "capability", lambda _: (9, 0))
    n_rows, n_cols, n_inner, n_batch = (*sizes, 1)[:4]
    shape = (n_rows, n_cols, n_inner, n_batch)
    assert heuristics.use_tma(torch.device("cpu"), torch.bfloat16, *shape, is_readable, True, narrowest) == found


def test_images_of_few_pixels_have_narrow_tiles() -> None:
    table = runtime_module("gemm").TMA
    (narrow, wide) = (table.choose(64 * 512, n_cols, 2048, torch.device("cpu")).kwargs for n_cols in (49, 100))
    assert (narrow["BLOCK_M"], narrow["BLOCK_N"], wide["BLOCK_N"]) == (128, 64, 128)
