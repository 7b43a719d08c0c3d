"""The check of nests: tiles fit what takes them, and all that is accessed is masked along each dim of its address."""

from __future__ import annotations

import pytest

from tests.cases.step_case import Case
from tests.harness.nests import parsed, value
from tritongen.lowering.positions import ROWS, TILE, cols_from
from tritongen.nest.check import check
from tritongen.nest.ir import Branch, For, Given, Let, Positions, needed_by, without_dead_code
from tritongen.nest.values import expr
from tritongen.operator.compile import generate

WALKS = (*ROWS, *cols_from(expr(0), "n_cols", wide=True), TILE)
LOAD = "x = tl.load(x_row + cols * stride_x_n, mask={}, other=0.0)"
ROW = parsed("x_row = x_ptr + rows * stride_x_m")
TILES = (*WALKS, ROW, parsed(LOAD.format("tile_mask")))
SUM = parsed("total = tl.sum(x, axis=1, keep_dims=True)")


def test_accesses_that_are_masked_along_all_dims_pass() -> None:
    check((*TILES, SUM, parsed("tl.store(y_ptr + rows, total, mask=row_mask)")))


@pytest.mark.parametrize(
    ("mask", "missing"), [("row_mask", "BLOCK_N"), ("col_mask", "BLOCK_M"), ("is_given", "BLOCK_M and no BLOCK_N")]
)
def test_load_whose_mask_lacks_a_dim_is_refused(mask: str, missing: str) -> None:
    with pytest.raises(TypeError, match=f"the mask has no {missing}$"):
        check((*WALKS, ROW, For(value("range(2)"), index="start", body=(parsed(LOAD.format(mask)),))))


def test_position_that_is_read_moves_along_the_dims_of_its_own_address() -> None:
    at = parsed("at = tl.load(i_ptr + rows, mask=row_mask, other=0)")
    check((*WALKS, at, parsed("tl.store(y_ptr + at * stride_y, 1.0, mask=row_mask & (at >= 0))")))
    with pytest.raises(TypeError, match="no BLOCK_M"):
        check((*WALKS, at, parsed("tl.store(y_ptr + at * stride_y, 1.0)")))


def test_clamped_positions_need_no_mask() -> None:
    load = parsed("x = tl.load(x_ptr + at * stride_x)")
    check((*WALKS, parsed("at = tl.minimum(rows, n_rows - 1)"), load))
    with pytest.raises(TypeError, match="no BLOCK_M"):
        check((*WALKS, parsed("at = rows + 1"), load))


def test_reduction_along_columns_takes_their_dim_away() -> None:
    best = parsed("best = tl.max(x, axis=1, keep_dims=True)")
    check((*TILES, best, parsed("tl.store(y_ptr + best, 1.0, mask=row_mask)")))


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (["tl.store(y_ptr + rows, x, mask=row_mask)"], "the address has no BLOCK_N"),
        (["again = tl.sum(total, axis=1, keep_dims=True)"], r"along axis 1 has \[BLOCK_M, 1\]"),
        (["again = tl.reduce(total, 1, nan_max, keep_dims=True)"], r"along axis 1 has \[BLOCK_M, 1\]"),
        (["sums = tl.zeros([BLOCK_M, BLOCK_N], COMPUTE)", "sums += total"], "what is added has no BLOCK_N"),
        (["both, x = sum_pair(x, x)", "tl.store(y_ptr + cols, x, mask=col_mask)"], "the address has no BLOCK_M"),
        (["y = x + x.T"], r"shapes \[BLOCK_M, BLOCK_N\], \[BLOCK_N, BLOCK_M\] do not fit"),
        (["y = tl.dot(x, x)"], r"a matmul of \[BLOCK_M, BLOCK_N\] and \[BLOCK_M, BLOCK_N\]"),
        (["y = tl.dot(x, x.T, total)"], "what the matmul is added to has no BLOCK_M"),
        (["store_tile(y_desc, y_ptr, total, first_row, first_col)"], "what is stored has "),
    ],
)
def test_tile_whose_shape_does_not_fit_is_refused(lines: list[str], wrong: str) -> None:
    with pytest.raises(TypeError, match=wrong):
        check((*TILES, SUM, *map(parsed, lines)))


def test_value_of_branches_has_the_larger_shape() -> None:
    branch = Branch(value("w_ptr is not None"), body=(parsed("w = x"),))
    store = parsed("tl.store(y_ptr + rows, w, mask=row_mask)")
    check((*TILES, parsed("w = 1.0"), store))
    with pytest.raises(TypeError, match="the address has no BLOCK_N"):
        check((*TILES, parsed("w = 1.0"), branch, store))


def test_lanes_that_branches_merge_are_merged_behind_them() -> None:
    merge = Branch(value("mode == 'sum'"), body=(parsed("x = tl.sum(x, axis=1, keep_dims=True)"),))
    check((*TILES, merge, parsed("tl.store(y_ptr + rows, x, mask=row_mask)")))


def test_choice_of_a_tile_and_a_number_is_as_large_as_the_tile() -> None:
    """So may one be of what has a shape that is not known."""
    branch = Branch(value("is_wanted"), body=(parsed("scale = tl.load(scale_ptr)"), parsed(LOAD.format("tile_mask"))))
    sums, chosen = parsed("sums = tl.zeros([BLOCK_M, BLOCK_N], COMPUTE)"), "scale * x if is_wanted else 0.0"
    check((*WALKS, ROW, branch, sums, parsed(f"sums += tl.where(col_mask, {chosen}, 0.0)")))
    check((*WALKS, sums, parsed(f"sums += tl.where(col_mask, {chosen.replace('x', 'x.of_some_shape()')}, 0.0)")))
    with pytest.raises(TypeError, match="no BLOCK_N"):
        check((*WALKS, ROW, branch, parsed(f"tl.store(y_ptr + rows, {chosen}, mask=row_mask)")))


def test_sums_of_lanes_are_as_large_as_a_row_once_they_are_merged() -> None:
    sums = parsed("sums = tl.zeros([BLOCK_M, BLOCK_N], COMPUTE)")
    loop = For(value("range(2)"), index="start", body=(*TILES, parsed("sums += x")))
    merge = parsed("sums = tl.sum(sums, axis=1, keep_dims=True)")
    store = parsed("tl.store(y_ptr + rows, sums, mask=row_mask)")
    check((*ROWS, sums, loop, merge, store))
    with pytest.raises(TypeError, match="no BLOCK_N"):
        check((*ROWS, sums, loop, store))


def test_positions_move_by_numbers() -> None:
    check((*TILES, parsed("rows += split * n_rows"), SUM, parsed("tl.store(y_ptr + rows, total, mask=row_mask)")))


def test_positions_and_masks_that_nothing_reads_are_left_out() -> None:
    body = (*cols_from(value("start"), "n_cols"), TILE, parsed(LOAD.format("col_mask")))
    (left,) = without_dead_code((*ROWS, For(value("range(2)"), index="start", body=body)))
    assert [type(one) for one in left.body] == [Positions, Given, Let]
    again, use = parsed("row_mask = row_mask & is_wanted"), parsed("tl.store(y_ptr + rows, 0.0, mask=row_mask)")
    assert without_dead_code((*ROWS, again, use)) == (*ROWS, again, use)
    assert without_dead_code((*ROWS, again)) == ()
    assert needed_by([use], (*ROWS, again)) == (*ROWS, again)
    assert needed_by([parsed("tl.store(y_ptr + rows, 0.0)")], (*ROWS, again)) == ROWS[:1]


def test_lines_that_call_something_stay() -> None:
    pure, call = parsed("masked = x & (cols <= rows)"), parsed("y = tl.load(x_ptr)")
    assert without_dead_code((pure, call)) == (call,)
    assert needed_by([parsed("tl.store(y_ptr, y)")], (pure, call)) == (call,)


ARGUMENTS = ("x_ptr", "y_ptr", "i_ptr", "stride_x_n", "stride_x_m", "n_rows", "n_cols", "BLOCK_M", "BLOCK_N", "INDEX")


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("y = tl.load(x_ptr + rows, mask=rows)", "the mask is no boolean: rows"),
        ("y = tl.load(x_ptr + rows, mask=rows & 1)", "the mask is no boolean: rows & 1"),
        ("tl.store(rows + cols, x, mask=tile_mask)", r"what is accessed is no pointer: rows \+ cols"),
        ("y = tl.load(cols * stride_x_n, mask=col_mask)", "what is accessed is no pointer"),
        ("y = load_or(rows, cols, tile_mask, 0.0, COMPUTE)", "what is accessed is no pointer: rows"),
        ("y = tl.load(x_ptr + at * stride_x_n)", r"at \* stride_x_n may be more than int32 holds"),
        ("y = tl.load(x_ptr + (rows + 3 * stride_x_n), mask=row_mask)", r"3 \* stride_x_n may be more"),
        ("y_row = x_ptr + (n_rows - 1) * stride_x_m", r"\(n_rows - 1\) \* stride_x_m may be more"),
        ("y = late\nlate = 1", "late is read before it has a value"),
        ("late += 1", "late is read before it has a value"),
    ],
)
def test_access_of_a_wrong_kind_is_refused(line: str, wrong: str) -> None:
    lines = ["at = tl.program_id(1)", *line.split("\n")]
    with pytest.raises(TypeError, match=wrong):
        check((*TILES, *map(parsed, lines)), ARGUMENTS)


def test_access_of_the_right_kind_passes() -> None:
    lines = [
        "at = tl.program_id(1).to(INDEX)",
        "y = tl.load(x_ptr + at * stride_x_n)",
        "y = tl.load(x_ptr + rows * stride_x_n, mask=row_mask & (rows != at))",
        "first = 1",
        "y = tl.load(x_ptr + first * stride_x_m)",
        "y = tl.load(x_ptr + tl.full((), n_rows - 1, INDEX) * stride_x_m)",
        "last = tl.maximum(rows, 0)",
        "y = load_or(x_ptr, last * stride_x_m, row_mask, 0.0, COMPUTE)",
        "n_rows = tl.full((), n_rows, tl.int64)",
        "y = tl.load(x_ptr + n_rows * stride_x_m)",
    ]
    check((*TILES, *map(parsed, lines)), ARGUMENTS)


@pytest.mark.parametrize("at", ["2", "size(M) - 1"])
def test_positions_that_are_read_are_as_wide_as_offsets(at: str) -> None:
    """A product of a number, or a length, and a stride is one of int32 unless one of both is wider."""
    spec = Case("x:M,N", f"y = take(x, {at}, M)", lambda x: x[2], wrt="-").spec()
    assert "tl.full((), y_at, INDEX) * stride_x_m" in generate(spec)["kernels.py"]
