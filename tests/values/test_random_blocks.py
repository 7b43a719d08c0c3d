"""Random specs of blocks that people fuse, beside a float64 oracle: see tests/random/blocks.py, which tries more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.random.blocks import check, drawn


# Each was wrong or refused once. 20: a neighbour's position in a gradient.
# 115: gradients between inputs of dtypes of their own. 158: terms with one number. 284: a step that casts to the
# dtype of an input that it does not read. 318: a convolution along an axis shorter than its taps. 4063: what a step
# stores in the dtype of what another one does, in a gradient.
@pytest.mark.parametrize("seed", [20, 115, 158, 284, 318, 4063])
def test_values(seed: int, tmp_path: Path) -> None:
    check(drawn(seed), tmp_path)
