"""An axis that is read twice has a second name, and lengths are one only where the program makes them so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.importing.test_values import printed
from tritongen.importing.checking import check
from tritongen.importing.run import imported

SOURCE = Path(__file__).parent / "same_axes.py"
EXAMPLES = re.findall(r"^(?:def|class) (\w+)\(.*\):  # (.*)$", SOURCE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_values(name: str, example: str) -> None:
    result = imported(f"{SOURCE}:{name}", [], example)
    rows, is_right = check(result, printed)
    assert is_right, "\n".join([result.imported.text, *rows])


def test_a_square_is_checked() -> None:
    """The lengths that the original compares are compared by the spec."""
    lines = imported(f"{SOURCE}:sym", [], "x=f32[6,6]").imported.text.splitlines()
    assert 'x = "float[M, N]"' in lines
    assert 'N = "M"' in lines
