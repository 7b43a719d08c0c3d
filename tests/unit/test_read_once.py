"""Masks and dtypes that one line alone reads."""

from __future__ import annotations

import textwrap

import pytest

from tritongen.emit.read_once import with_single_reads_in_place

LONG = "constants={'COMPUTE': compute, 'ALIGN': tensors.alignment(one, another, third)}"
CASES = {
    "masks of one line": (
        "row_mask = rows < n_rows\ncol_mask = cols < n_cols\ntile_mask = row_mask & col_mask",
        "tile_mask = (rows < n_rows) & (cols < n_cols)",
    ),
    "each in its loop": (
        "for a in b:\n    col_mask = cols < n\n    f(col_mask)\nfor a in b:\n    col_mask = cols < n\n    g(col_mask)",
        "for a in b:\n    f(cols < n)\nfor a in b:\n    g(cols < n)",
    ),
    "read twice": ("row_mask = rows < n\nf(row_mask)\ng(row_mask)", None),
    "read in a loop": ("row_mask = rows < n\nfor a in b:\n    f(row_mask)", None),
    "what it reads has changed": ("row_mask = rows < n\nrows += 1\nf(row_mask)", None),
    "given once more": ("row_mask = rows < n\nrow_mask = row_mask & other\nf(row_mask)\ng(row_mask)", None),
    "another name": ("mask = rows < n\nf(mask)", None),
    "longer than a line": (f"row_mask = {'rows' * 15} < n_rows\ntile_mask = row_mask & {'cols' * 5}", None),
    "a dtype": ("compute = widest(x)\nf(constants={'COMPUTE': compute})", "f(constants={'COMPUTE': widest(x)})"),
    "a dtype in a long argument": (f"compute = tensors.widest(one, another)\nf({LONG})", None),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_read_once(case: str) -> None:
    before, after = (text and f"def f(x):\n{textwrap.indent(text, '    ')}\n" for text in CASES[case])
    assert before
    assert with_single_reads_in_place(before) == (after or before)
