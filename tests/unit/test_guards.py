"""Elements that a condition chooses: one masked load if it bounds their positions, else a load and a `where`."""

from __future__ import annotations

import re

import pytest

from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

HEAD = '[op]\nname = "chosen"\nsummary = "Chosen."\n[types]\nT = "float"\n[inputs]\nx = "T[B, S]"\nn = "int32[B]"\n'
BOUNDS = {
    "both_sides": '"where((at >= 0) & (at < size(S)), take(x, at, S), 0)"',
    "by_name": '"where(inside, take(x, at, S), 0)"',
    "and_more": '"where((at >= 0) & (x > 0) & (at < size(S)) & (n > 2), take(x, at, S), 1)"',
}
OPEN = {
    "one_side": '"where(at >= 0, take(x, at, S), 0)"',
    "either_side": '"where((at >= 0) | (at < size(S)), take(x, at, S), 0)"',
    "another_number": '"where(inside, take(x, at, S), 0.1)"',
    "no_number": '"where(inside, take(x, at, S), x)"',
    "another_axis": '"where((at >= 0) & (at < size(B)), take(x, at, S), 0)"',
}


def kernel(line: str) -> str:
    inside = 'inside = "(at >= 0) & (at < size(S))"\n' if "inside" in line else ""
    lines = f'at = "index(S) - n"\n{inside}y = {line}\n'
    spec = read_spec("chosen.toml", f'{HEAD}[compute]\n{lines}[outputs]\ny = "auto"\n')
    files = {name.rpartition("/")[2]: text for name, text in generate(spec).items()}
    return re.sub(r"\s+", " ", str(files["kernels.py"]))


@pytest.mark.parametrize("name", BOUNDS)
def test_is_read_where_the_condition_holds(name: str) -> None:
    text = kernel(BOUNDS[name])
    assert "tl.where" not in text
    assert "float('nan')" not in text
    assert f"other={1 if name == 'and_more' else 0}" in text


@pytest.mark.parametrize("name", OPEN)
def test_is_chosen_where_the_condition_does_not_bound_it(name: str) -> None:
    text = kernel(OPEN[name])
    assert "tl.where" in text
    assert "other=float('nan')" in text


def test_conditions_of_rows_and_of_columns_are_combined_apart() -> None:
    assert "mask = tile_mask & ((at >= 0) & (x > 0) & (at < n_cols)) & (n > 2)" in kernel(BOUNDS["and_more"])
