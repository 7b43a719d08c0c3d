"""`bracketed` gives what black gives."""

import pytest

from tritongen.format import format_python
from tritongen.layout import bracketed


@pytest.mark.parametrize("count", [*range(1, 14), 20, 40])
@pytest.mark.parametrize("length", [1, 5, 11])
@pytest.mark.parametrize(
    ("before", "head", "tail", "after", "indent"),
    [
        ("", "def kernel(", "):", "    pass\n", 0),
        ("", "def wrapper(x, *, ", ") -> torch.Tensor:", "    pass\n", 0),
        ("", "NAMES = (", ")", "", 0),
        ("", "NAMES = [", "]", "", 0),
        ("", "result = function(", ")", "", 0),
        ("def f():\n    ", "kernel[grid](", ")", "", 4),
        ("def f():\n    if x:\n        ", "y = tl.load(", ")", "", 8),
    ],
)
def test_black_agrees(
    count: int, length: int, before: str, head: str, tail: str, after: str, indent: int
) -> None:
    if head.endswith("*, "):
        head, first = "def wrapper(", ["x", "*"]
    else:
        first = []
    items = first + [f"{'argument'[:length]}_{number}" for number in range(count)]
    if head.endswith("= (") and len(items) == 1:
        return  # (x) is no tuple
    text = before + bracketed(head, items, tail, indent) + "\n" + after
    assert text == format_python(text)
