"""How nests lie in lines: masks that one line reads stand in it, addresses that do not fit have names."""

from __future__ import annotations

import pytest

from tests.harness.nests import given, parsed, value
from tritongen.nest.ir import Branch, For, Line, Nest, lines_of
from tritongen.nest.layout import laid_out

WEIGHT = "tl.load(weight_ptr + cols * stride_weight_n, mask=col_mask, other=0.0).to(COMPUTE)"
LOAD = f"weight = {WEIGHT}"
NAMED = "weight_ptrs = weight_ptr + cols * stride_weight_n"
ROWS, COLS = given("row_mask = rows < n_rows"), given("col_mask = cols < n_cols")


def texts(nest: Nest, width: int = 84) -> list[str]:
    return [line.text for line in lines_of(laid_out(nest, width, 4))]


def loop(*body: Line) -> For:
    return For(value("range(2)"), index="start", body=body)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (LOAD, [NAMED, f"weight = {WEIGHT.replace('weight_ptr + cols * stride_weight_n', 'weight_ptrs')}"]),
        (
            "nll = lse - tl.load(x_ptr + rows * stride_x_0 + at * stride_x_n, mask=row_mask & (at >= 0) & (at < n))",
            [
                "x_ptrs = x_ptr + rows * stride_x_0 + at * stride_x_n",
                "nll = lse - tl.load(x_ptrs, mask=row_mask & (at >= 0) & (at < n))",
            ],
        ),
        (
            "x = tl.load(x_row + cols * stride_x_n, mask=row_mask & (some_at >= 0) & (some_at < n_cols), other=0)",
            [
                "x_ptrs = x_row + cols * stride_x_n",
                "x_mask = row_mask & (some_at >= 0) & (some_at < n_cols)",
                "x = tl.load(x_ptrs, mask=x_mask, other=0)",
            ],
        ),
        ("x = tl.load(x_ptr + cols, mask=col_mask)", None),  # fits
        (f"y = {WEIGHT} if weight_ptr is not None else 1", None),  # no address where there is no tensor
    ],
)
def test_addresses_that_do_not_fit_have_names(before: str, after: list[str] | None) -> None:
    assert texts((parsed(before),)) == (after or [before])


def test_names_are_new() -> None:
    """That of the tensor may be taken, by a line or an argument: then it is the target's, if there is one."""
    taken = parsed("weight_ptrs = 1")
    assert texts((taken, parsed(f"w = {WEIGHT}")))[1] == NAMED.replace("weight_ptrs", "w_ptrs")
    called = parsed(f"tl.device_print({WEIGHT})")
    assert texts((taken, called)) == [taken.text, called.text]
    assert laid_out((called,), 84, 4, ["weight_ptrs"]) == (called,)


def test_names_stand_for_one_thing_in_a_loop() -> None:
    """Triton carries a name of outside through a loop and wants one type of it; after the target there is another."""
    found = texts((parsed(LOAD), loop(parsed(f"w = {WEIGHT}"))))
    assert [name for name in ("weight_ptrs", "w_ptrs") if any(one.startswith(f"{name} = ") for one in found)]
    assert sum(one == NAMED for one in texts((loop(parsed(LOAD)), loop(parsed(LOAD))))) == 2


def test_margins_count() -> None:
    """The comment of a line goes above the first of those that it becomes; an `elif` stands where its `if` does."""
    one = parsed(LOAD, "The weight.")
    width = len(LOAD) + 8
    inner = Branch(value("b"), body=(one,))
    assert laid_out((inner,), width, 4) == (inner,)
    assert laid_out((Branch(value("a"), body=(one,), other=(inner,)),), width, 4)[0].other == (inner,)
    (branch,) = laid_out((loop(inner),), width, 4)[0].body
    assert [line.comment for line in branch.body] == ["The weight.", ""]


@pytest.mark.parametrize(
    ("nest", "after"),
    [
        ((ROWS, COLS, given("tile_mask = row_mask & col_mask")), ["tile_mask = (rows < n_rows) & (cols < n_cols)"]),
        ((loop(COLS, parsed("f(col_mask)")), loop(COLS, parsed("g(col_mask)"))), ["range(2)", "f(cols < n_cols)"] * 2),
        ((ROWS, parsed("f(row_mask)"), parsed("g(row_mask)")), None),
        ((ROWS, loop(parsed("f(row_mask)"))), None),
        ((ROWS, parsed("rows += 1"), parsed("f(row_mask)")), None),
        ((ROWS, given("row_mask = row_mask & other"), parsed("f(row_mask)"), parsed("g(row_mask)")), None),
        ((given("mask = rows < n"), parsed("f(mask)")), None),
        ((given(f"row_mask = {'rows' * 15} < n_rows"), parsed(f"tile_mask = row_mask & {'cols' * 5}")), None),
    ],
)
def test_masks_that_one_line_reads_stand_in_it(nest: Nest, after: list[str] | None) -> None:
    found = [text.replace("g(", "f(") for text in texts(nest, 88)] if after else texts(nest, 88)
    assert found == (after or [line.text for line in lines_of(nest)])
