"""What a kernel takes and declares is read off the names in its lines."""

import pytest

from tritongen.lang.trees import parse
from tritongen.lowering.lines import Line, after_and, names_of, without_unread

LINES = {
    "x_row = x_ptr + rows * stride_x": ("x_row", {"x_row", "x_ptr", "rows", "stride_x"}),
    "    y = tl.load(x_row, mask=row_mask, other=0.0)": ("y", {"y", "tl", "x_row", "row_mask"}),
    "m, n = merge(m, n)": ("", {"m", "n", "merge"}),
    "total += x": ("", {"total", "x"}),
    "tl.store(y_ptr, x.to(y_ptr.dtype.element_ty))": ("", {"tl", "y_ptr", "x"}),
    "if mode == 'rows':": ("", {"mode"}),
    "elif flag and not other:": ("", {"flag", "other"}),
    "else:": ("", set()),
}


@pytest.mark.parametrize("text", LINES)
def test_names(text: str) -> None:
    line = Line(text)
    assert (line.assigned, line.names) == LINES[text]


def test_names_of_lines_are_variables() -> None:
    lines = [Line("rows = first + x"), Line("y = f(cols=2)"), Line("z = 'word' + x.field")]
    assert names_of(lines) == {"rows", "first", "x", "y", "f", "z"}


def test_values_that_nothing_reads_are_left_out() -> None:
    lines = [*map(Line, ("a = stride_a", "b = a + stride_b", "c = 1", "i, j = unravel(rows)", "tl.debug_barrier()"))]
    names = {"b", "j"}
    assert [line.text for line in without_unread(lines, names)] == [line.text for line in lines if line.text != "c = 1"]
    assert {"stride_a", "stride_b", "rows"} < names
    assert without_unread(lines, set()) == lines[-1:]


def test_a_condition_after_an_and() -> None:
    """An `or` binds less tightly."""
    told = {text: after_and(parse(text)) for text in ("a or b", "a and b", "y_ptr is not None", "not a")}
    assert told == {"a or b": "(a or b)"} | {text: text for text in told if text != "a or b"}
