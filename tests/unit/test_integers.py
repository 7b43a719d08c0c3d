"""Where a kernel must take integers as int64, and where int32 will do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.importing import written
from tritongen.lang.integers import Integers
from tritongen.lang.typecheck import typecheck
from tritongen.spec.read import read_spec

SPEC = """
[op]
name = "it"
summary = "An operator."

[inputs]
x = "float[N, M, F=8]"
byte = "uint8[N]"
at = "int32[M]"

[params]
diagonal = 0
slope = 0.5
near = {{ type = "int", default = 1, min = -100, max = 100 }}

[compute]
used = "x + byte + at + diagonal + near + slope"
y = "used + ({expression})"

[outputs]
y = "auto"
"""


def integers(expression: str) -> Integers:
    return Integers(typecheck(read_spec("masked.toml", SPEC.format(expression=expression))))


@pytest.mark.parametrize(
    "expression",
    [
        "where(index(N) - index(M) <= diagonal, 1, 0)",
        "where(index(N) + near > size(N), 1, 0)",
        "size(N) - 1 - index(N)",
        "index(N) + byte",
        "index(F) * 100000",
        "(index(N) % 1000) * 1000",
        "-index(N)",
        "take(x, 2 * index(N) + 1, N)",
        "take(x, size(N) - 1 - index(N), N)",
        "index(N) * slope",
        "where(slope > 3000000000, 1, 0)",
        "at * 1000000000",
        "where(diagonal > 3, 1, 0)",
        "minimum(index(N), 7) * 1000",
        "(index(N) // 1000) * 1000",
    ],
)
def test_int32_will_do(expression: str) -> None:
    found = integers(expression)
    assert not found.widened
    assert not found.wide


@pytest.mark.parametrize(
    ("expression", "params"),
    [
        ("index(N) * 2", set()),
        ("index(N) * size(M)", set()),
        ("2 ** index(N)", set()),
        ("1 << index(N)", set()),
        ("index(N) + at", set()),
        ("size(N) * 1000", set()),
        ("where(index(N) < 3000000000, 1, 0)", set()),
        ("take(x, 2 * index(N) // 2, N)", set()),
        ("take(x, index(N) * 5, N)", set()),
        ("argmax(x, F) * 1000000000", set()),
        ("index(N) + diagonal", {"diagonal"}),
        ("diagonal * diagonal", {"diagonal"}),
        ("where(index(N) <= index(M) + diagonal, 1, 0)", {"diagonal"}),
        ("near * 100000000", {"near"}),
        ("maximum(index(N), 7) * 1000", set()),
        ("(index(N) // 1000) * 1001", set()),
        ("take(x, (index(N) + diagonal) % size(N), N)", {"diagonal"}),
    ],
)
def test_int32_is_too_narrow(expression: str, params: set[str]) -> None:
    found = integers(expression)
    assert found.wide == params
    assert bool(found.widened) == (not params)


@pytest.mark.parametrize(
    ("expression", "past"),
    [
        ("index(N)", (0, 0)),
        ("index(N) - 1", (-1, -1)),
        ("3 + index(N) + near", (-97, 103)),
        ("index(N) + index(F) - 7", (-7, 0)),
        ("index(F) + (index(N) - 2)", (-2, 5)),
        ("7 - index(N)", None),  # The other way.
        ("2 * index(N)", None),
        ("index(M) + 1", None),
        ("near + 1", None),
    ],
)
def test_past_a_position(expression: str, past: tuple[int, int] | None) -> None:
    """What is known of a sum of a position along N and others, without the length of N."""
    found = integers(f"x * ({expression})")
    node = found.op.value("y").node.args[1].args[1]  # type: ignore[union-attr]
    assert found.known.past(node, "N") == past


@pytest.mark.parametrize(
    ("expression", "ends"),
    [
        ("clamp(at, 0, 7)", (False, False)),
        ("clamp(at, near, 7)", (True, False)),
        ("clamp(at, 0, near)", (True, True)),
        ("minimum(at, 7)", (True, False)),
        ("cast(byte, int64) // 32", (False, False)),
        ("cast(byte, int64) - 255", (True, False)),
        ("byte - 255", (True, True)),  # It wraps.
        ("index(N) % 8", (False, False)),
        ("7 - index(F)", (False, False)),
        ("cast(at, int8) + 120", (True, True)),
    ],
)
def test_ends_of_an_axis(expression: str, ends: tuple[bool, bool]) -> None:
    """Whether positions may lie before the 8 of F, and whether behind them."""
    found = integers(f"x * ({expression})")
    node = found.op.value("y").node.args[1].args[1]  # type: ignore[union-attr]
    assert found.known.may_be_outside(node, "F") == ends


@pytest.mark.parametrize(
    ("at", "mask"),
    [
        ("index(N) - 1", "tile_mask & (y_at >= 0)"),
        ("index(N) + 1", "tile_mask & (y_at < n_cols)"),
        ("index(N) + near", "tile_mask & (y_at >= 0) & (y_at < n_cols)"),
        ("index(N) + size(N) - index(N) - 1", "tile_mask & (y_at >= 0) & (y_at < n_cols)"),
    ],
)
def test_reads_compare_with_open_bounds(at: str, mask: str, tmp_path: Path) -> None:
    """A position that is surely at least 0, or below the length, is not compared with that."""
    text = '[op]\nname = "moved"\n[inputs]\nx = "float[M, N]"\n[params]\nnear = { type = "int", default = 1 }\n'
    text += f'[compute]\ny = "x + take(x, {at}, N)" \n[outputs]\ny = "x"\n'
    text = text.replace('[params]\nnear = { type = "int", default = 1 }\n', "") if "near" not in at else text
    folder = written(read_spec("moved.toml", text), tmp_path)
    kernels = (folder / "kernels.py").read_text(encoding="utf-8")
    assert f"_mask = {mask} " in " ".join(kernels.split())
