"""The runtime's launches of kernels over rows: what those are told of their tensors, and kernels that finish sums."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from tests.harness.importing import built, module_at
from tests.harness.oracles import DEVICE
from tritongen.resources import templates_dir
from tritongen.spec.read import read_spec

RUNTIME = module_at(Path(templates_dir(), "runtime")).__name__
ROWWISE, COLUMNS, HEURISTICS, LAUNCH, TENSORS = (
    importlib.import_module(f"{RUNTIME}.{name}") for name in ("rowwise", "columns", "heuristics", "launch", "tensors")
)


def sizes(rows: list[int], tiles: Any, by_col: Any = (), by_row: Any = ()) -> Any:
    """Those of rows of 8 columns, in three dimensions at most."""
    return ROWWISE.sizes(n_dims=3, rows=rows, n_cols=8, tiles=tiles, by_col=by_col, by_row=by_row)


def test_sizes_are_grouped_by_what_tensors_have() -> None:
    tile, other = torch.empty(2, 3, 8), torch.empty(2, 3, 16)[..., ::2]
    column, row = torch.empty(16)[::2], torch.empty(2, 3)
    found = sizes([2, 3], (tile, other, None), (column,), (row,))
    shape = (6, 8, 1, 1)  # All steps are even: rows fold into one dimension, and Triton drops divisions by 1.
    assert found == (*shape, 8, 0, 0, 1, 16, 0, 0, 2, 0, 0, 0, 0, 2, 1, 0, 0)


def test_absent_tensors_are_not_stepped_through() -> None:
    assert sizes([2, 3], (torch.empty(2, 3, 8), None), (None,), (None,))[7:] == (1, *[0] * 8)


def test_rows_that_do_not_fold() -> None:
    scattered = torch.empty(2, 2, 2, 2, 8).permute(3, 2, 1, 0, 4)
    assert sizes([2, 2, 2, 2], (scattered,)) is None
    assert sizes([2, 2, 2, 2], (scattered.contiguous(),)) is not None


@pytest.mark.parametrize(
    ("tiles", "divides"),
    [
        ((torch.empty(3, 24), None), 8),
        ((torch.empty(2, 3, 40), torch.empty(2, 3, 40)), 8),
        ((torch.empty(3, 48)[:, :40],), 8),
        ((torch.empty(3, 40)[:, :32],), 8),  # Rows begin at multiples of 40.
        ((torch.empty(24),), 8),
        ((torch.empty(3, 48),), 1),  # Triton knows.
        ((torch.empty(3, 20),), 1),
        ((torch.empty(3, 25)[:, :24],), 1),
        ((torch.empty(3, 24), torch.empty(24, 3).T), 1),
    ],
)
def test_what_divides_rows_is_told(tiles: tuple[torch.Tensor | None, ...], divides: int) -> None:
    assert TENSORS.alignment(*tiles) == divides


@triton.jit
def add_up_kernel(
    x_ptr,
    first_ptr,
    second_ptr,
    third_ptr,
    n_rows,
    n_cols,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    INDEX: tl.constexpr,
):  # type: ignore[no-untyped-def]
    """A program's part of three sums over rows, of x, 2 x and 3 x."""
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(tl.program_id(0) * BLOCK_M, n_rows, tl.num_programs(0) * BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)[:, None]
        total += tl.load(x_ptr + rows * n_cols + cols, mask=(rows < n_rows) & (cols < n_cols), other=0.0)
    at = tl.program_id(0) * n_cols + cols
    part = tl.sum(total, axis=0, keep_dims=True)
    if first_ptr is not None:
        tl.store(first_ptr + at, part, mask=cols < n_cols)
    if second_ptr is not None:
        tl.store(second_ptr + at, 2 * part, mask=cols < n_cols)
    if third_ptr is not None:
        tl.store(third_ptr + at, 3 * part, mask=cols < n_cols)


@pytest.mark.parametrize("asked", [(1,), (1, 2), (1, 2, 3), (2,), (1, 3), ()])
def test_sums_that_are_asked_for(asked: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at a time, whichever of them there are."""
    x = torch.randn(37, 70, device=DEVICE)
    sums = [torch.full((70,), float("nan"), device=DEVICE) if n in asked else None for n in (1, 2, 3)]
    table = HEURISTICS.Sums((4, 16))
    monkeypatch.setattr(HEURISTICS, "choose_programs", lambda *_: 3)
    launched: list[Any] = []
    run = LAUNCH.launched
    monkeypatch.setattr(LAUNCH, "launched", lambda kernel, *rest: launched.append(kernel) or run(kernel, *rest))
    call = COLUMNS.Call(None, compute=tl.float32, sums=sums, args=((x,), (37, 70), ()), constants={})
    COLUMNS.run_tiles(call, table, add_up_kernel)
    assert len(launched) == 1 + (len(asked) + 1) // 2
    for times, found in zip((1, 2, 3), sums, strict=True):
        if found is not None:
            torch.testing.assert_close(found.double(), times * x.double().sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_rows", [1, 5, 70])
@pytest.mark.parametrize("dtypes", [(torch.float32,), (torch.float64, torch.int64)])
def test_sums_along_rows_are_added_up(n_rows: int, dtypes: tuple[torch.dtype, ...]) -> None:
    """Of parts that are no power of two, each sum in the dtype of its parts."""
    parts = [torch.randn(150, n_rows, device=DEVICE).mul(100).to(dtype) for dtype in dtypes]
    results = tuple(torch.full((n_rows,), -1, dtype=dtype, device=DEVICE) for dtype in dtypes)

    def write(kernel: Any, grid: Any, args: Any, *others: Any) -> Any:
        if kernel != "sums":
            return run(kernel, grid, args, *others)
        for place, part in zip(args, parts, strict=False):
            place.copy_(part)
        return None

    run, table = LAUNCH.launched, HEURISTICS.Loop((1, 10), (1, 10))
    rows = ROWWISE.Rows(None, True, table, "sums", (results, (n_rows, 150 * 16), ()), {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LAUNCH, "launched", write)
        patch.setattr(HEURISTICS, "choose_splits", lambda *_: 150)
        ROWWISE.run_sums(rows, dtypes)
    for part, found in zip(parts, results, strict=True):
        torch.testing.assert_close(found, part.double().sum(0).to(found), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("n_cols", [1, 4, 9, 100, 128])
def test_short_rows_fill_the_tile_of_a_loop(n_cols: int) -> None:
    """As many elements as ever, and columns that a row has; fewer where programs would be few."""
    table = HEURISTICS.Loop((32, 256), (32, 256), (64, 64))
    own, loop = table.configs[0].kwargs, HEURISTICS.Simple(table)
    short = min(triton.next_power_of_2(n_cols), own["BLOCK_N"])
    assert loop.choose(1 << 22, n_cols, True).kwargs == {"BLOCK_M": 32 * 256 // short, "BLOCK_N": short}
    few = own if short == own["BLOCK_N"] else {"BLOCK_M": 2, "BLOCK_N": short}
    assert loop.choose(512, n_cols, True).kwargs == few
    assert loop.choose(512, 0, True).kwargs == own


@pytest.mark.parametrize("contiguous", [True, False])
def test_a_single_tile_of_a_loop_is_for_all_columns(contiguous: bool) -> None:
    """As a schedule may have it."""
    table = HEURISTICS.Loop((1, 128))
    for one in (table, HEURISTICS.Simple(table)):
        assert one.choose(1000, 10000, contiguous).kwargs == {"BLOCK_M": 1, "BLOCK_N": 128}


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "simple", "tile"),
    [
        (1 << 22, 64, True, (1024, 2, 4)),
        (1 << 18, 64, True, (512, 2, 2)),
        (1 << 15, 64, True, (64, 64, 8)),
        (1 << 15, 9, True, (128, 16, 8)),
        (1 << 20, 128, True, (1024, 4, 8)),
        (1 << 20, 256, True, (1024, 16, 4)),
        (1 << 20, 512, True, (64, 64, 8)),
        (1 << 18, 1024, False, (128, 16, 4)),
        (1 << 15, 8192, False, (64, 64, 8)),
    ],
)
def test_tiles_of_strided_columns_in_a_loop(n_rows: int, n_cols: int, simple: bool, tile: tuple[int, int, int]) -> None:
    """Wide and short ones where columns are few and rows are many, and fewer states of several numbers."""
    table = HEURISTICS.Loop((32, 256), (1, 2048, 8), (64, 64, 8))
    found = (HEURISTICS.Simple(table) if simple else table).choose(n_rows, n_cols, False)
    assert (*found.kwargs.values(), found.num_warps) == tile


@pytest.mark.parametrize(
    ("rule", "n_rows", "n_cols", "tile"),
    [
        ("STRIDED", 1 << 22, 64, (64, 64, 4)),
        ("STRIDED", 1 << 20, 256, (64, 256, 16)),
        ("STRIDED", 1 << 18, 1000, (16, 1024, 16)),
        ("STRIDED", 1 << 18, 1025, None),
        ("STRIDED_FOLDED", 1 << 20, 256, (32, 256, 16)),
        ("STRIDED_REDUCED", 1 << 24, 16, (64, 16, 1)),
        ("STRIDED_REDUCED", 1 << 22, 64, (64, 64, 2)),
        ("STRIDED_REDUCED", 1 << 20, 256, (32, 256, 4)),
        ("STRIDED_REDUCED", 1 << 18, 1024, None),
        ("STRIDED_REDUCED", 1 << 14, 1024, (8, 1024, 4)),
    ],
)
def test_strided_rows_in_registers(rule: str, n_rows: int, n_cols: int, tile: tuple[int, int, int] | None) -> None:
    """None where they are looped over: longer ones, and if a row gives a number alone shorter ones too, if many."""
    table = HEURISTICS.Registers((1024, 1024, 1), (32768, 32768, 32), strided=getattr(HEURISTICS, rule))
    assert table.fits(n_rows, n_cols, False) == (tile is not None)
    assert table.fits(n_rows, n_cols, True)
    if tile is not None:
        found = table.choose(n_rows, n_cols, False)
        assert (*found.kwargs.values(), found.num_warps) == tile


@pytest.mark.parametrize(("n_cols", "warps"), [(64, 2), (128, 2), (100, 1), (256, 1), (4096, 4)])
def test_short_rows_in_registers_that_are_read_in_vectors_have_two_warps(n_cols: int, warps: int) -> None:
    table = HEURISTICS.Registers((1024, 1024, 1), (4096, 4096, 4))
    assert table.choose(1 << 18, n_cols, True).num_warps == warps


def test_short_rows_fill_the_tiles_of_maps() -> None:
    tile = HEURISTICS.Tile((64, 64), (4, 512), (128, 8))
    assert tile.choose(1 << 22, 2, True).kwargs == {"BLOCK_M": 512, "BLOCK_N": 2}
    assert tile.choose(1 << 22, 2, False).kwargs == {"BLOCK_M": 2048, "BLOCK_N": 2}
    assert tile.choose(1 << 22, 5, True).kwargs == {"BLOCK_M": 128, "BLOCK_N": 8}


def test_parts_are_of_whole_blocks() -> None:
    """Fewer programs than were asked for, where blocks do not divide evenly: none has nothing to do."""
    assert ROWWISE.even_splits(320, 4, 32) == (4, 96)
    assert ROWWISE.even_splits(320, 7, 32) == (5, 64)
    assert ROWWISE.even_splits(1, 3, 32) == (1, 32)


def test_no_kernel_is_a_default() -> None:
    """torch 2.11 does not trace a default that is a kernel, where a module names it in its functions."""
    for name in ("rowwise", "columns", "elementwise", "contraction", "launch"):
        module = importlib.import_module(f"{RUNTIME}.{name}")
        tuples = [one for one in vars(module).values() if isinstance(one, type) and hasattr(one, "_field_defaults")]
        defaults = [value for one in tuples for value in one._field_defaults.values()]
        assert not [value for value in defaults if hasattr(value, "fn") or hasattr(value, "arg_names")]


@pytest.mark.parametrize(("shape", "tries"), [("A, B, N", False), ("..., A, B, C, D, N", True), ("..., N", True)])
def test_what_always_folds_is_not_tried_again(shape: str, tries: bool, tmp_path: Path) -> None:
    """Two axes are no more than a kernel steps through; leading axes may be any number."""
    toml = f'[op]\nname = "total"\n[inputs]\nx = "float[{shape}]"\n[compute]\ny = "sum(x, N)"\n[outputs]\ny = "x"'
    function = built(read_spec("total.toml", toml), tmp_path).total
    assert ("is None:  # Dimensions that do not fold" in (tmp_path / "total" / "op.py").read_text()) == tries
    x = torch.randn(2, 3, 4, 5, 2, 7, dtype=torch.float64).permute(3, 2, 1, 0, 4, 5)
    x = x if tries else x[0, :, 0, :, 0]
    torch.testing.assert_close(function(x.to(DEVICE)).cpu(), x.sum(-1))


def test_columns_that_share_elements() -> None:
    """Those of the last dimensions along which no tensor moves."""
    assert TENSORS.steady((10, 4096), (1, 0), (3, 0)) == 4096
    assert TENSORS.steady((10, 49, 64), (1, 0, 0)) == 49 * 64
    assert TENSORS.steady((10, 49, 64), (64, 1, 0)) == 64
    assert TENSORS.steady((10, 4096), (1, 0), (0, 1)) == 1
    assert TENSORS.steady((0, 0), (0, 0)) == 0


def test_blocks_divide_columns_that_share_elements() -> None:
    wide, narrow = HEURISTICS.Loop((1, 16384, 32), (64, 64)), HEURISTICS.Loop((16, 256), (64, 64))
    found = HEURISTICS.Uniform(wide, 3 * 4096).choose(1, 12 * 4096, True)
    assert (found.kwargs, found.num_warps) == ({"BLOCK_M": 1, "BLOCK_N": 4096, "UNIFORM": True}, 8)
    found = HEURISTICS.Uniform(wide, 49 * 64).choose(1, 490 * 64, True)
    assert (found.kwargs, found.num_warps) == ({"BLOCK_M": 1, "BLOCK_N": 16384, "UNIFORM": False}, 32)
    assert HEURISTICS.Uniform(narrow, 768).choose(16, 7680, True).kwargs["UNIFORM"]
    assert not HEURISTICS.Uniform(narrow, 128).choose(16, 7680, True).kwargs["UNIFORM"]


def test_long_rows_of_such_columns_are_looped_over() -> None:
    table = HEURISTICS.Loop((16, 256), (64, 64))
    assert HEURISTICS.Uniform(table, 1024).reads_once(20 * 1024)
    assert not HEURISTICS.Uniform(table, 784).reads_once(20 * 784)
    assert not HEURISTICS.Uniform(table, 1024).reads_once(4 * 1024)
    # A single element, which rows in registers read at once, too.
    assert not HEURISTICS.Uniform(table, 16384).reads_once(16384)


@pytest.mark.parametrize("dynamic", [False, True])
def test_traces_choose_such_blocks(dynamic: bool) -> None:
    """By lengths and strides that torch.compile may know as symbols alone."""
    table = HEURISTICS.Loop((1, 4096, 8), (64, 64))

    def chosen(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        sizes, (_, steps) = TENSORS.fold(2, x.shape, (x.stride(), (w.stride(0), 0)))
        uniform = HEURISTICS.Uniform(table, TENSORS.steady(sizes, steps))
        found = uniform.choose(*x.shape, True).kwargs
        return x + found["BLOCK_N"] + found["UNIFORM"] + uniform.reads_once(x.numel())

    compiled = torch.compile(chosen, backend="eager", fullgraph=True, dynamic=dynamic)
    for shape in ((10, 4096), (7, 2048), (6, 49)):
        given = torch.zeros(shape), torch.zeros(shape[0])
        torch.testing.assert_close(compiled(*given), chosen(*given))
