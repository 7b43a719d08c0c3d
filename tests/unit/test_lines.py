"""What a kernel takes and declares is read off the names in its lines."""

from dataclasses import replace

import pytest

from tests.harness.nests import parsed, value
from tritongen.lang.ir import BOOL, Call, Constant, Dtype, Scalar
from tritongen.lang.trees import parse
from tritongen.lowering.views import Kernel
from tritongen.nest.ir import Advance, Branch, Positions, Run, names_of, nested, under, without_unread
from tritongen.nest.values import Expr

WORD = Dtype("str")
LINES = {
    "x_row = x_ptr + rows * stride_x": ("x_row", {"x_row", "x_ptr", "rows", "stride_x"}),
    "y = tl.load(x_row, mask=row_mask, other=0.0)": ("y", {"y", "tl", "x_row", "row_mask"}),
    "m, n = merge(m, n)": ("", {"m", "n", "merge"}),
    "total += x": ("", {"total", "x"}),
    "tl.store(y_ptr, x.to(y_ptr.dtype.element_ty))": ("", {"tl", "y_ptr", "x"}),
    "mode == 'rows' and not other": ("", {"mode", "other"}),
}


@pytest.mark.parametrize("text", LINES)
def test_names(text: str) -> None:
    line = parsed(text)
    assert (line.assigned, line.names) == LINES[text]


def test_names_of_lines_are_variables() -> None:
    lines = [parsed("rows = first + x"), parsed("y = f(cols=2)"), parsed("z = 'word' + x.field")]
    assert names_of(lines) == {"rows", "first", "x", "y", "f", "z"}


def test_names_of_all_statements() -> None:
    rows = Positions(value("start"), name="rows", block="BLOCK_M")
    assert names_of([rows]) == {"start", "BLOCK_M", "rows"}
    assert names_of([replace(rows, wide=True)]) == {"start", "BLOCK_M", "rows", "INDEX"}
    assert names_of([Advance("x_ptr", ((("i", "stride"), ("j", "")),), False)]) == {"x_ptr", "i", "stride", "j"}
    assert names_of([Run("f", ("x_ptr",), ("n_cols",))]) == {"x_ptr", "tile_mask", "n_cols"}


def test_a_kernel_takes_the_dtype_of_offsets_where_it_has_some() -> None:
    kernel = Kernel("f", "", (), (), ("BLOCK", "INDEX"), (parsed("i = tl.program_id(0) * BLOCK"),))
    assert kernel.signature == "BLOCK: tl.constexpr"
    wide = replace(kernel, body=(parsed("i = tl.program_id(0).to(INDEX) * BLOCK"),))
    assert wide.signature == "BLOCK: tl.constexpr, INDEX: tl.constexpr"


def test_values_that_nothing_reads_are_left_out() -> None:
    lines = [*map(parsed, ("a = stride_a", "b = a + stride_b", "c = 1", "i, j = unravel(rows)", "tl.debug_barrier()"))]
    names = {"b", "j"}
    assert [line.text for line in without_unread(lines, names)] == [line.text for line in lines if line.text != "c = 1"]
    assert {"stride_a", "stride_b", "rows"} < names
    assert without_unread(lines, set()) == lines[-1:]


def test_what_depends_on_conditions_stands_in_branches() -> None:
    flag, mode = Scalar("flag", BOOL), Call("eq", (Scalar("mode", WORD), Constant("a", WORD)), (), BOOL)
    lines = [
        parsed("x = 1"),
        *under(((flag, True),), [replace(parsed("y = 2", "y is"), above=1)]),
        *under(((flag, True), (mode, True)), [parsed("z = 3")]),
        *under(((flag, False), (mode, True)), [parsed("z = 4")]),
        parsed("w = 5"),
    ]
    first, branch, last = nested(lines)
    inner = Branch(value("mode == 'a'"), body=(parsed("z = 3"),))
    assert (first, last) == (lines[0], lines[-1])
    other = Branch(value("mode == 'a'"), body=(parsed("z = 4"),))
    assert branch == Branch(value("flag"), comment="y is", body=(parsed("y = 2"), inner), other=(other,))
    assert names_of([branch]) == {"flag", "mode", "y", "z"}


@pytest.mark.parametrize("text", ["(a & b) | c", "(a & (b < 2)) | (c & ~d)", "a | b | (c & d)", "f((a & b) | c) & d"])
def test_what_is_joined_by_or_has_parentheses(text: str) -> None:
    assert Expr(parse(text)).text == text
