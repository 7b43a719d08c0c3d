"""What emitted functions are passed and assign is read: in the trees here, and in all that tests write."""

from __future__ import annotations

from pathlib import Path

import pytest
from importing import unread

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
