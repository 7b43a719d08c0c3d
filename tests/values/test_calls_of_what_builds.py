"""Specs that built, and failed at each call: of numbers, schedules and names that are rare."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.importing import written
from tests.harness.written import HEAD, Written
from tritongen.spec.read import read_spec


@pytest.mark.parametrize("number", ["1e20", "-3e10", "2147483648.0", "1e300", "inf"])
def test_large_numbers_in_gradients(number: str, tmp_path: Path) -> None:
    text = f"""[inputs]
x = "float[M, N]"
[compute]
y = "x * {number}"
[outputs]
y = "auto[M, N]"
[grad]
wrt = ["x"]
"""
    spec, lengths = Written(text, tmp_path), {"M": 2, "N": 3}
    spec.compare(lengths, spec.drawn(lengths))


@pytest.mark.parametrize("listed", ["block_k = 32", "block_k = 64", "num_stages = 3", "block_m = 64", "num_warps = 8"])
def test_tiles_of_scaled_blocks_that_are_listed(listed: str, tmp_path: Path) -> None:
    """Two sums at once leave no room for the usual tile, which a list completes."""
    text = f"""{HEAD}[inputs]
a = "float8[M, (G J=64)]"
b = "float8[N, (G J=64)]"
a_scale = "float32[M, G]"
b_scale = "float32[N, G]"
[compute]
y = "sum(a * a_scale * b * b_scale, G, J)"
[outputs]
y = "bfloat16[M, N]"
[schedule]
{listed}
"""
    written(read_spec("written.toml", text), tmp_path)


@pytest.mark.parametrize("page", ["P", "B, P"])
def test_pages_along_an_axis_that_rows_have(page: str, tmp_path: Path) -> None:
    text = f"""[inputs]
q = "float[B, M, D]"
k = "float[B, N, D]"
v = "float[B, N, D]"
page = "int64[{page}]"
[compute]
s = "sum(q * take(k, page, B), D)"
o = "sum(softmax(s, P, N) * take(v, page, B), P, N)"
[outputs]
o = "auto[B, M, D]"
"""
    lengths = {"B": 4, "M": 3, "N": 16, "D": 16, "P": 3}
    spec = Written(text, tmp_path)
    spec.compare(lengths, spec.drawn(lengths))
