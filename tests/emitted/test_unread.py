"""What emitted functions are passed and assign is read: in the trees here, and in all that tests write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.importing import defined_twice, unread
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("tree", ["generated", "examples/ops"])
def test_everything_is_read_in(tree: str) -> None:
    files = [path for name in ("op.py", "kernels.py") for path in (ROOT / tree).glob(f"*/{name}")]
    assert files
    assert {path: found for path in files if (found := [*unread(path.name, path.read_text(encoding="utf-8"))])} == {}


def test_what_is_not_read_is_found() -> None:
    text = "def kernel(x, y):\n    a = x\n    b = a\n    for c in a:\n        c = 1\n"
    assert [*unread("op.py", text)] == ["b of kernel", "c of kernel", "y of kernel"]
    assert [*unread("kernels.py", text)] == ["b of kernel", "c of kernel"]


@pytest.mark.sampled(4)
def test_tables_of_several_parts_of_a_backward_have_names_of_their_own() -> None:
    """Parts of several steps each, whose results were made again once it was known that no flag decides about them."""
    text = """[op]
name = "attend"
[types]
T = "float"
[inputs]
q = "T[M, D]"
k = "T[N, D]"
v = "T[N, E]"
l = "T[L, D]"
w = "T[L, E]"
[compute]
a = "sum(q * k, D)"
b = "sum(q * l, D)"
z = "logaddexp(logsumexp(a, N), logsumexp(b, L))"
o = "sum(exp(a - z) * v, N) + sum(exp(b - z) * w, L)"
[outputs]
o = "q[M, E]"
[grad]
wrt = ["k", "l"]
"""
    assert defined_twice(generate(read_spec("attend.toml", text))["configs.py"]) == []
