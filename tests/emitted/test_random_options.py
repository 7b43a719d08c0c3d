"""Emitted tests of specs of the gallery with other options: see tests/random/options.py, by which CI tries more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.random.options import DrawnOptions, check


# Each failed once. 8: a registered operator whose results have NaN. 61: a line of params that is a step of its own,
# beside float64.
@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [8, 61])
def test_emitted_tests_pass(seed: int, tmp_path: Path) -> None:
    check(DrawnOptions(seed, "attention"), tmp_path)
