"""The values of the runtime's gemm, which computes gradients of matmuls; tests/compiled compiles its kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton

from tests.cases.gemm import (
    BATCHES,
    DEVICE,
    GEMM,
    LAYOUTS,
    RAGGED,
    SMALL,
    SPLIT,
    TOLERANCES,
    Layout,
    batch_last,
    check,
    make,
    needs_tma,
    sliced,
    transposed,
)
from tests.harness.replaying import replay_interpreted


def label(config: triton.Config) -> str:
    return "-".join(map(str, (*config.kwargs.values(), config.num_warps)))


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_dtypes(dtype: torch.dtype, batch: tuple[int, ...]) -> None:
    check(*make(batch, dtype=dtype))


@pytest.mark.parametrize(
    ("batch", "shape"),
    [
        *(
            (batch, shape)
            for batch in BATCHES
            for shape in ((1, 1, 1), (1, 40, 7), (40, 1, 7), (5, 6, 1), (16, 32, 64))
        ),
        *((batch, shape) for batch in BATCHES for shape in ((0, 5, 6), (5, 0, 6), (5, 6, 0), (0, 0, 0))),
        ((0,), (5, 6, 7)),
        ((1,), RAGGED),
        ((), (200, 150, 40)),
    ],
    ids=str,
)
def test_shapes(batch: tuple[int, ...], shape: tuple[int, int, int]) -> None:
    check(*make(batch, shape, torch.float32))


def test_searched(choose: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tile of the table gives the product, and the one that was found is launched; each size is searched."""
    choose(use_tma=False)
    keys, tiles = list[Any](), list[int]()
    run_stages = GEMM.launch.run_stages

    def launched(key: Any, by_name: Any, stages: Any) -> None:
        tiles.append(stages[0].options["BLOCK_M"])
        run_stages(None, by_name, stages)

    def fastest(key: Any, configs: Any, stages: Any, _: torch.device) -> triton.Config:
        keys.append(key)
        for config in configs:
            run_stages(None, {}, stages(config))
        return configs[-1]

    monkeypatch.setattr(GEMM.launch, "run_stages", launched)
    for shape in ((40, 24, 56), (24, 40, 56)):
        left, right = make((), shape, torch.float32)
        found = GEMM.gemm(left, right, search=fastest)
        torch.testing.assert_close(found.double(), left.double() @ right.double().mT, rtol=1e-5, atol=1e-4)
    assert len(set(keys)) == 2
    assert tiles == [GEMM.STRIDED.single[-1].kwargs["BLOCK_M"]] * 2


@pytest.mark.parametrize("way", ["strided", "split_k", "tma", "stream_k"])
@pytest.mark.parametrize("batched", ["left", "right"])
def test_one_matrix_for_all_of_a_batch(way: str, batched: str, choose: Callable[..., None]) -> None:
    choose(SMALL, **WAYS[way])
    for shape in (RAGGED, (24, 72, 48)):
        left, right = make((3,), shape)
        check(*((left, right[1]) if batched == "left" else (left[1], right)))


@pytest.mark.parametrize("tma", [False, pytest.param(True, marks=needs_tma)], ids=["strided", "tma"])
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: Layout, batch: tuple[int, ...], tma: bool, choose: Callable[..., None]) -> None:
    """Of either matrix, and of both. For TMA, rows of 45 are copied, and those of 48 are taken as they are."""
    choose(SMALL, use_tma=tma)
    for shape in (RAGGED, (24, 72, 48)):
        left, right = make(batch, shape)
        check(layout(left), right)
        check(left, layout(right))
        check(layout(left), layout(right))


@pytest.mark.parametrize("way", ["strided", "split_k", "tma", "stream_k"])
@pytest.mark.parametrize("layout", [torch.clone, transposed, batch_last])
def test_a_batch_is_summed(layout: Layout, way: str, choose: Callable[..., None]) -> None:
    """As it lies, where it is read in vectors: inner axes of 144, of which a block has 32; those of 45 are copied."""
    choose(SMALL, **WAYS[way])
    for n_batch, shape in ((3, (24, 40, 144)), (2, RAGGED), (1, (24, 40, 144))):
        left, right = make((n_batch,), shape)
        check(left, layout(right), sums_batch=True)


@pytest.mark.parametrize(("n_batch", "shape"), [(0, RAGGED), (3, (24, 72, 0)), (3, (0, 72, 48))], ids=str)
def test_a_batch_of_nothing_is_summed(n_batch: int, shape: tuple[int, int, int]) -> None:
    check(*make((n_batch,), shape), sums_batch=True)


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("config", [*GEMM.STRIDED.half, SMALL], ids=label)
def test_strided_configs(config: triton.Config, batch: tuple[int, ...], choose: Callable[..., None]) -> None:
    choose(config, use_tma=False, choose_split_k=1)
    check(*make(batch))


@pytest.mark.parametrize(
    ("dtype", "config"),
    [
        *((torch.float32, config) for config in (*GEMM.STRIDED.single, *GEMM.SPLIT.single)),
        *((torch.float64, config) for config in GEMM.STRIDED.double),
    ],
    ids=lambda it: label(it) if isinstance(it, triton.Config) else str(it),
)
def test_wide_strided_configs(config: triton.Config, dtype: torch.dtype, choose: Callable[..., None]) -> None:
    choose(config, use_tma=False, choose_split_k=1)
    check(*make((), dtype=dtype))


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("n_splits", [2, 3])
def test_split_k(n_splits: int, dtype: torch.dtype, batch: tuple[int, ...], choose: Callable[..., None]) -> None:
    choose(SMALL, use_tma=False, choose_split_k=n_splits)
    check(*make(batch, dtype=dtype))
    check(*make(batch, (17, 33, 200), dtype))


@pytest.mark.parametrize(("n_inner", "longest"), [(1, 32), (32, 32), (33, 64), (64, 64), (100, 128), (4096, 256)])
def test_blocks_are_not_longer_than_sums(n_inner: int, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded up: blocks of 256 elements made four times the work of batches of short sums."""
    blocks: list[int] = []
    monkeypatch.setattr(GEMM.launch, "run_stages", lambda *given: blocks.append(given[2][0].options["BLOCK_K"]))
    monkeypatch.setattr(GEMM.launch, "lookup", lambda *_: (None, None))
    for shape in ((16, 64, n_inner), (64, 64, n_inner), (128, 128, n_inner)):
        left, right = make((2,), shape)
        GEMM.gemm(left, right)
    assert 32 <= min(blocks) <= max(blocks) <= longest
    assert n_inner >= 4096 or max(blocks) == longest


@pytest.mark.parametrize(("n_inner", "n_stages"), [(0, 1), (64, 2), (65, 3), (4096, 5)])
def test_no_more_stages_than_blocks(n_inner: int, n_stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one: three of a single block took 10 % longer, since fewer programs shared an SM."""
    stages: list[int] = []
    monkeypatch.setattr(GEMM.launch, "run_stages", lambda *given: stages.append(given[2][0].options["num_stages"]))
    monkeypatch.setattr(GEMM.launch, "lookup", lambda *_: (None, None))
    config = GEMM.matmul_heuristics.tile(64, 32, 64, num_warps=4, num_stages=5)
    monkeypatch.setattr(GEMM.STRIDED, "choose", lambda *_: config)
    GEMM.gemm(*make((), (512, 512, n_inner)))
    assert stages == [n_stages]


@pytest.mark.parametrize(
    ("lengths", "apart", "tile"),
    [
        ((1536, 1536, 1536), 128, (64, 128)),  # 15.8 us, and 18.1 in tiles of 128 x 256 (H200)
        ((1504, 1504, 1504), 32, (128, 256)),  # 18.2, and 21.8 in tiles of 64 x 128
        ((2048, 2048, 2048), 128, (128, 256)),
        ((2040, 2040, 2040), 16, (128, 256)),  # 32, and 57
        ((2560, 2560, 2560), 128, (128, 256)),  # 54.8; 53.4 in split tiles of 128 x 128, which are three launches
        ((4095, 4097, 4093), 128, (128, 256)),  # 247, and 316 in tiles of 128 x 128
        ((2304, 4608, 4096), 128, (128, 128)),  # 118, and 123
        ((1000, 1000, 1000), 16, (64, 128)),
    ],
)
def test_tiles_by_where_rows_begin(
    lengths: tuple[int, int, int], apart: int, tile: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = GEMM.matmul_heuristics
    monkeypatch.setattr(rules.heuristics, "sm_count", lambda _: 132)
    table = rules.Tma(*GEMM.TMA.configs)
    config = table.choose(*lengths, torch.device("cpu"), (rules.reading(2, apart),) * 2)
    assert rules.blocks_of(config)[:2] == tile


def test_what_is_read_an_element_at_a_time_comes_in_short_blocks() -> None:
    """64 elements for each thread: of 192, most were spilled, and a matmul of 1023x1021x1025 took ten times as long."""
    for config in GEMM.STRIDED.half:
        block = GEMM.matmul_heuristics.scalar_block_k(config, config.kwargs["BLOCK_K"])
        held = block * (config.kwargs["BLOCK_M"] + config.kwargs["BLOCK_N"]) / (32 * config.num_warps)
        assert 16 < held <= 64
        assert 32 <= block <= config.kwargs["BLOCK_K"]


def test_few_tiles_of_long_sums_are_split(monkeypatch: pytest.MonkeyPatch, choose: Callable[..., None]) -> None:
    """By the rules as they are."""
    launched = []
    run = GEMM.launch.launched
    monkeypatch.setattr(
        GEMM.launch, "launched", lambda kernel, *args: launched.append(kernel.__name__) or run(kernel, *args)
    )
    choose()
    check(*make((), (20, 30, 1024)))
    assert launched == ["gemm_kernel", "gemm_reduce_kernel"]


@needs_tma
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("config", [*GEMM.TMA, SMALL], ids=label)
def test_tma_configs(config: triton.Config, batch: tuple[int, ...], choose: Callable[..., None]) -> None:
    """Where TMA stores the result, and where it cannot: 69 columns are no multiple of 16 bytes."""
    choose(config, use_tma=True, choose_stream_k=(0, 0, 0, 0))
    for shape in (RAGGED, (140, 264, 72)):
        check(*make(batch, shape))
        check(*map(transposed, make(batch, shape)))


@needs_tma
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize(("long_splits", "short_splits"), [(1, 3), (5, 2)])
def test_stream_k(long_splits: int, short_splits: int, batch: tuple[int, ...], choose: Callable[..., None]) -> None:
    """Half of the tiles are split, a quarter of all into short parts; then all are."""
    for kept in (lambda tiles: tiles // 2, lambda tiles: 0):

        def split(tiles: int, *_: int, kept: Callable[[int], int] = kept) -> tuple[int, int, int, int]:
            return tiles - kept(tiles) - tiles // 4, long_splits, tiles // 4, short_splits

        choose(SMALL, use_tma=True, choose_stream_k=split)
        check(*make(batch))
        check(*map(transposed, make(batch)))


@needs_tma
def test_parts_of_sums_do_not_depend_on_the_length_of_blocks(choose: Callable[..., None]) -> None:
    """Each part has so many terms, which longer blocks have in fewer steps."""
    steps: list[int] = []

    def split(tiles: int, n_steps: int, *_: int) -> tuple[int, int, int, int]:
        steps.append(n_steps)
        return 0, 0, 0, 0

    for block_k in (64, 128):
        config = triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": block_k, "GROUP": 8}, num_warps=4)
        choose(config, use_tma=True, choose_stream_k=split)
        check(*make((), (64, 64, 512)))
    assert steps == [8, 8]


@pytest.mark.sampled(2)
@needs_tma
@pytest.mark.parametrize("batch", [(), (2,), "left", "right"], ids=str)
@pytest.mark.parametrize("precision", ["bf16x3", "bf16x6"])
def test_split_beforehand(
    precision: str, batch: Any, choose: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Float32 as bfloat16s, which carry 16 or 24 bits of its 24."""
    choose(SMALL)
    monkeypatch.setattr(SPLIT, "splits", lambda *_: True)
    for shape in (RAGGED, (24, 72, 48)):
        left, right = make((3,) if batch else (), shape, torch.float32)
        if batch == "left":
            right = right[0]
        elif batch == "right":
            left = left[0]
        check(left, right, precision)
        check(transposed(left), transposed(right), precision)
        check(sliced(left), right, precision)


@needs_tma
def test_values_with_no_rest_when_split(choose: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Infinities, NaN, zeros, and what bfloat16 rounds to infinity."""
    choose(SMALL)
    monkeypatch.setattr(SPLIT, "splits", lambda *_: True)
    left, right = make((), (24, 72, 48), torch.float32)
    left[0, 3] = left[1, 3] = torch.inf
    right[5, 3], right[6, 3], right[7, 3] = 1.0, 0.0, -torch.inf
    left[2, 4] = torch.nan
    left[3, 5], right[:, 5] = 3.4e38, 1e-3
    want = left @ right.mT
    torch.testing.assert_close(SPLIT.multiply(left, right, "bf16x6"), want, rtol=1e-5, atol=1e-5, equal_nan=True)


WAYS: dict[str, dict[str, Any]] = {
    "strided": {"use_tma": False, "choose_split_k": 1},
    "split_k": {"use_tma": False, "choose_split_k": 3},
    "copied": {"use_tma": False, "choose_split_k": 1, "contiguous_axis": "rows", "use_copies": True},
    "split": {},
    "tma": {"use_tma": True, "choose_stream_k": (0, 0, 0, 0)},
    "stream_k": {"use_tma": True, "choose_stream_k": lambda tiles, *_: (tiles - tiles // 2 - 1, 2, 1, 3)},
}


def known() -> list[Any]:
    """The calls that launches are known of, but for those of copies."""
    return [key for key in GEMM.launch.LAUNCHES if "gemm" in key[0]]


@pytest.mark.skipif(DEVICE == "cuda", reason="the emitted tests show it on a GPU")
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_launched_again(
    way: str, batch: tuple[int, ...], choose: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls alike, with other values in other memory, through the launches of the first."""
    choose(SMALL, **WAYS[way])
    monkeypatch.setattr(SPLIT, "splits", lambda *args: args[-1] == "bf16x6")
    dtype = torch.float32 if way in ("copied", "split") else torch.float16
    precision = "bf16x6" if way == "split" else "ieee"

    replay_interpreted(GEMM.launch, monkeypatch)
    for seed in range(3):
        check(*make(batch, seed=seed, dtype=dtype), precision)
        assert len(known()) == 1
    GEMM.gemm(*make(batch, dtype=dtype), "tf32")
    assert len(known()) == 2


@pytest.mark.skipif(DEVICE == "cuda", reason="the emitted tests show it on a GPU")
@pytest.mark.parametrize("way", ["strided", "split_k", "tma", "stream_k"])
def test_sums_over_a_batch_are_launched_again(
    way: str, choose: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(SMALL, **WAYS[way])
    replay_interpreted(GEMM.launch, monkeypatch)
    for seed in range(2):
        check(*make((3,), (24, 72, 144), seed=seed), sums_batch=True)
        assert len(known()) == 1
    check(*make((3,), (24, 72, 48)))
    assert len(known()) == 2


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.zeros(3, 4), torch.zeros(5, 6)),
        (torch.zeros(2, 3, 4), torch.zeros(1, 5, 4)),
        (torch.zeros(3, 4), torch.zeros(5, 4, dtype=torch.float16)),
    ],
    ids=["inner", "batches", "dtypes"],
)
def test_matrices_that_do_not_fit(left: torch.Tensor, right: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=re.escape(f"left is {left.dtype} {list(left.shape)}, right {right.dtype}")):
        GEMM.gemm(left, right)


@pytest.mark.parametrize("batches", [((), ()), ((2,), ()), ((), (2,)), ((2,), (3,))], ids=str)
def test_no_batch_to_sum(batches: tuple[tuple[int, ...], ...]) -> None:
    left, right = (torch.zeros(*batch, 3, 4) for batch in batches)
    with pytest.raises(ValueError, match=re.escape(f"left is torch.float32 {list(left.shape)}, right")):
        GEMM.gemm(left, right, sums_batch=True)
