"""Random attention, beside a float64 oracle: see tests/random_attention.py, by which CI tries more."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_attention import DrawnAttention, check


# 8: an image, some of whose probabilities are dropped, and one of no pixels. 99: pages. 92: keys and values of fewer
# bytes. 2789: a norm of what a rotation has taken, without a softmax. 3100: a bias and a table of the same gradient.
@pytest.mark.parametrize("seed", [8, 92, 99, 2789, 3100])
def test_values(seed: int, tmp_path: Path) -> None:
    check(DrawnAttention(seed), tmp_path)
