# mypy: allow-untyped-defs, allow-untyped-decorators
"""Page numbers are read ahead: for the block behind the last, none, though the table may end there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

if torch.cuda.is_available():
    pytest.skip("the check is of Triton's interpreter", allow_module_level=True)
import triton
import triton.language as tl

from tests.harness.importing import runtime_module

page_numbers = runtime_module("blocks").page_numbers


@triton.jit
def _read_kernel(table_ptr, y_ptr, start, first, last, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    found = page_numbers(table_ptr, start, first, last, 1, SIZE, BLOCK, tl.int64)
    tl.store(y_ptr + tl.arange(0, BLOCK), tl.zeros([BLOCK], tl.int64) + found)


@pytest.mark.parametrize(
    ("start", "size", "first", "wanted"),
    [
        (8, 8, 0, [6] * 4),
        (20, 8, 0, [7] * 4),
        (24, 8, 0, [-1] * 4),  # Behind the last, and behind the table.
        (0, 6, 2, [-1, -1, 5, 5]),
        (4, 6, 0, [5, 5, 6, 6]),
        (16, 6, 0, [7, 7, -1, -1]),
        (20, 6, 0, [-1] * 4),
    ],
)
def test_pages_of_a_full_table(
    start: int, size: int, first: int, wanted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of blocks of four positions; three pages are full."""
    harness: Any = runtime_module("testing.launches")
    harness.check_bounds(monkeypatch)
    memory, y = torch.arange(16), torch.zeros(4, dtype=torch.int64)
    _read_kernel[(1,)](memory[5:8], y, start, first, 3 * size, size, 4)
    assert y.tolist() == wanted
