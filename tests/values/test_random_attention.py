"""Random attention, beside a float64 oracle: see tests/random/attention.py, by which CI tries more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.importing import written
from tests.random.attention import DrawnAttention, check
from tritongen.spec.read import read_spec


# 8: an image, some of whose probabilities are dropped, and one of no pixels. 99: pages. 92: keys and values of fewer
# bytes. 2789: a norm of what a rotation has taken, without a softmax. 3100: a bias and a table of the same gradient.
# 3742: those of exponentials below no largest, which differ over the batch. 5002: documents of one table, in order.
@pytest.mark.parametrize("seed", [8, 92, 99, 2789, 3100, 3742, 5002])
def test_values(seed: int, tmp_path: Path) -> None:
    check(DrawnAttention(seed), tmp_path)


def test_tables_of_several_steps_that_are_several(tmp_path: Path) -> None:
    """Each has a name of its own."""
    written(read_spec("drawn.toml", DrawnAttention(3655).text()), tmp_path)
