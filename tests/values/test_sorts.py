"""What is sorted in registers, forward and backward, beside torch's own in float64."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests.cases.step_case import Case
from tests.cases.step_sorts import CASES
from tests.harness.importing import built
from tests.harness.oracles import compare, on_device
from tritongen.spec.read import read_spec


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    module = built(case.spec(), tmp_path)
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        given = case.tensors(dtype)
        by = [place for place, one in enumerate(given) if one.is_floating_point()] if case.wrt != "-" else []
        compare(module.steps, case.torch, given, [1] if case.wrt == "z" else by, tolerance)


def test_order(tmp_path: Path) -> None:
    """Of equal numbers the first is first; zeros are equal; NaN is the largest, in any dtype and length."""
    lines = "i = argsort(x, N)\nj = argsort(x, N, descending=True)"
    steps = on_device(built(Case("x:M, N", lines, lambda x: x, "i j", "-").spec(), tmp_path).steps)
    generator = torch.Generator().manual_seed(0)
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0**-30])
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for shape in ((3, 37), (1, 1), (2, 2), (0, 5), (5, 0), (1, 130)):
            x = special[torch.randint(0, 8, shape, generator=generator)].to(dtype)
            i, j = steps(x)
            torch.testing.assert_close(i, x.argsort(dim=1, stable=True))
            torch.testing.assert_close(j, x.argsort(dim=1, descending=True, stable=True))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool"])
def test_integers(dtype: str, tmp_path: Path) -> None:
    """To the ends of a dtype."""
    text = Case("x:M, N", "y = sort(x, N)\ni = argsort(x, N)", lambda x: x, "y i", "-").text()
    steps = on_device(built(read_spec("steps.toml", text.replace('T = "float"', f'T = "{dtype}"')), tmp_path).steps)
    own = getattr(torch, dtype)
    low, high = (0, 1) if dtype == "bool" else (torch.iinfo(own).min, torch.iinfo(own).max)
    ends = torch.tensor([low, high, 0, 1, high - 1, (high + low) // 3], dtype=torch.int64)
    x = ends[torch.randint(0, 6, (3, 21), generator=torch.Generator().manual_seed(0))].to(own)
    y, i = steps(x)
    torch.testing.assert_close(y, x.sort(1).values)
    torch.testing.assert_close(i, x.argsort(dim=1, stable=True))


def test_fewer_than_wanted(tmp_path: Path) -> None:
    """Behind the last there is nothing: NaN at -1."""
    case = Case(
        "x:M, N; r:K", "v = topk(x, K, N) + 0 * r\ni = argtopk(x, K, N) + 0 * index(K)", lambda x: x, "v i", "x"
    )
    v, i = on_device(built(case.spec(), tmp_path).steps)(torch.tensor([[1.0, 3.0, 2.0]]), torch.zeros(5))
    assert i.tolist() == [[1, 2, 0, -1, -1]]
    assert v[0, :3].tolist() == [3, 2, 1]
    assert v[0, 3:].isnan().all()


def test_long_rows_are_refused(tmp_path: Path) -> None:
    steps = on_device(built(CASES["positions"].spec(), tmp_path).steps)
    with pytest.raises(ValueError, match="a row of 4097 elements is not sorted in registers"):
        steps(torch.zeros(1, 4097))
