"""The check of nests: what is read and written is masked along every dim along which its address moves."""

from __future__ import annotations

import pytest

from tritongen.nest.check import check
from tritongen.nest.ir import Line, Loop, Walk

WALKS = (Walk("rows"), Walk("cols"), Walk("tile"))
LOAD = "x = tl.load(x_row + cols * stride_x_n, mask={}, other=0.0)"
ROW = Line("x_row = x_ptr + rows * stride_x_m")


def test_accesses_that_are_masked_along_all_dims_pass() -> None:
    total = Line("total = tl.sum(x, axis=1, keep_dims=True)")
    check((*WALKS, ROW, Line(LOAD.format("tile_mask")), total, Line("tl.store(y_ptr + rows, total, mask=row_mask)")))


@pytest.mark.parametrize(
    ("mask", "missing"), [("row_mask", "cols"), ("col_mask", "rows"), ("is_given", "cols and no rows")]
)
def test_load_whose_mask_lacks_a_dim_is_refused(mask: str, missing: str) -> None:
    with pytest.raises(TypeError, match=f"the mask has no {missing}$"):
        check((*WALKS, ROW, Loop("cols", (Line(LOAD.format(mask)),))))


def test_position_that_is_read_moves_along_the_dims_of_its_own_address() -> None:
    at = Line("at = tl.load(i_ptr + rows, mask=row_mask, other=0)")
    check((*WALKS, at, Line("tl.store(y_ptr + at * stride_y, 1.0, mask=row_mask & (at >= 0))")))
    with pytest.raises(TypeError, match="no rows"):
        check((*WALKS, at, Line("tl.store(y_ptr + at * stride_y, 1.0)")))


def test_reduction_along_columns_takes_their_dim_away() -> None:
    best = Line("best = tl.max(x, axis=1, keep_dims=True)")
    load = Line(LOAD.format("tile_mask"))
    check((*WALKS, ROW, load, best, Line("tl.store(y_ptr + best, 1.0, mask=row_mask)")))


TILE = (*WALKS, ROW, Line(LOAD.format("tile_mask")))
SUM = Line("total = tl.sum(x, axis=1, keep_dims=True)")


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (["tl.store(y_ptr + rows, x, mask=row_mask)"], "the address has no cols"),
        (["again = tl.sum(total, axis=1, keep_dims=True)"], "what is reduced has no cols"),
        (["again = tl.reduce(total, 1, nan_max, keep_dims=True)"], "what is reduced has no cols"),
        (["sums = tl.zeros([BLOCK_M, BLOCK_N], COMPUTE)", "sums += total"], "what is added has no cols"),
        (["both, x = sum_pair(x, x)", "tl.store(y_ptr + cols, x, mask=col_mask)"], "the address has no rows"),
    ],
)
def test_value_whose_dims_do_not_fit_is_refused(lines: list[str], wrong: str) -> None:
    with pytest.raises(TypeError, match=f"{wrong}$"):
        check((*TILE, SUM, *map(Line, lines)))


def test_sums_of_lanes_are_as_large_as_a_row_once_they_are_merged() -> None:
    sums = Line("sums = tl.zeros([BLOCK_M, BLOCK_N], COMPUTE)")
    loop = Loop("cols", (Line(LOAD.format("tile_mask")), Line("sums += x")))
    merge, store = (
        Line("sums = tl.sum(sums, axis=1, keep_dims=True)"),
        Line("tl.store(y_ptr + rows, sums, mask=row_mask)"),
    )
    check((WALKS[0], ROW, sums, loop, merge, store))
    with pytest.raises(TypeError, match="no cols"):
        check((WALKS[0], ROW, sums, loop, store))


def test_positions_move_by_numbers() -> None:
    check((*TILE, Line("rows += split * n_rows"), SUM, Line("tl.store(y_ptr + rows, total, mask=row_mask)")))
