"""Regions of torch.autocast cast what torch casts, for the device that they name, and nothing behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importing.test_values import printed
from tritongen.importing.checking import check
from tritongen.importing.run import imported

SOURCE = """
import torch


def mixed(x, w):
    with torch.autocast("{device}", dtype=torch.{dtype}):
        y = x @ w.T
        p = torch.softmax(y, -1)
        with torch.autocast("{device}", enabled=False):
            z = x @ w.T
    return p, y + z, x @ w.T
"""


@pytest.mark.parametrize(("device", "dtype"), [("cuda", "float16"), ("cpu", "bfloat16")])
def test_operands_of_matmuls_are_cast(device: str, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(SOURCE.format(device=device, dtype=dtype))
    result = imported(f"{path}:mixed", [], "x=f32[4,8] w=f32[6,8]")
    lines = result.imported.text.splitlines()
    assert f'y = "sum(cast(x, {dtype}) * cast(w, {dtype}), K)"' in lines
    assert 'z = "sum(x * w, K)"' in lines
    softmax = {"cuda": "float32", "cpu": "auto"}[device]  # On a GPU it is in float32, on a CPU in the region's dtype.
    assert any(line.startswith(f'p = "{softmax}') for line in lines)
    rows, is_right = check(result, printed)
    assert is_right, rows
