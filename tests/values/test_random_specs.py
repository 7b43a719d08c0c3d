"""Random specs, beside a float64 oracle: see tests/random_specs.py, by which CI tries more."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_specs import Drawn, check


@pytest.mark.parametrize("seed", range(2500, 2502))
def test_values(seed: int, tmp_path: Path) -> None:
    check(Drawn(seed), tmp_path)
