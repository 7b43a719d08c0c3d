"""What a kernel takes and declares is read off the names in its lines."""

import pytest

from tritongen.lang.trees import parse
from tritongen.lowering.lines import Line, after_and, mentions

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


def test_mentions() -> None:
    lines = [Line("rows = first + x"), Line("y = f(rows=2)"), Line("z = 'x' + x.rows")]
    assert mentions(lines, "rows")
    assert not mentions(lines, "rows", 2)
    assert mentions(lines, "x", 2)


def test_a_condition_after_an_and() -> None:
    """An `or` binds less tightly."""
    told = {text: after_and(parse(text)) for text in ("a or b", "a and b", "y_ptr is not None", "not a")}
    assert told == {"a or b": "(a or b)"} | {text: text for text in told if text != "a or b"}
