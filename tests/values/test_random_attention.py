"""Random attention, beside a float64 oracle: see tests/random_attention.py, by which CI tries more."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_attention import DrawnAttention, check


# 14: pages. 32: an image, some of whose probabilities are dropped. 1038: a norm of what a rotation has taken, without a
# softmax. 1075: an image of no pixels.
@pytest.mark.parametrize("seed", [14, 32, 1038, 1075])
def test_values(seed: int, tmp_path: Path) -> None:
    check(DrawnAttention(seed), tmp_path)
