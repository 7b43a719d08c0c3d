"""How many scores benchmarks count of a mask, against all of them, position by position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tritongen.families.registry import families_of_steps, step_of
from tritongen.families.streaming.sizes import StreamingSizes, visible_range
from tritongen.lang.typecheck import typecheck
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

SPEC = """
[op]
name = "masked"
[types]
T = "float"
[inputs]
q = "T[..., M, D]"
k = "T[..., N, D=64]"
v = "T[..., N, E=32]"
{inputs}
[params]
{params}
[compute]
s = "where({condition}, sum(q * k, D), -inf)"
o = "sum(softmax(s, N) * v, N)"
[outputs]
o = "q[..., M, E]"
"""
INPUTS = {"last": '"int64[...]"', "seen": '"bool[M, N]"'}
PARAMS = {"prefix": "70", "needed": '{ type = "int" }', "flag": "false", "share": "0.5"}
SIZE = 200


def spec_of(condition: str) -> Spec:
    """Attention under a mask, with the inputs and params that it names."""
    inputs, params = (
        "\n".join(f"{name} = {text}" for name, text in table.items() if name in condition) for table in (INPUTS, PARAMS)
    )
    return read_spec("masked.toml", SPEC.format(inputs=inputs, params=params, condition=condition))


def program_of(condition: str) -> Any:
    return step_of(typecheck(spec_of(condition)), (), families_of_steps(False)).program


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("index(N) <= index(M)", "n <= m"),
        ("index(N) < index(M)", "n < m"),
        ("(index(M) - index(N) >= 0) & (index(M) - index(N) < prefix)", "(m >= n) & (m - n < 70)"),
        ("(index(N) < prefix) | (index(N) <= index(M))", "(n < 70) | (n <= m)"),
        ("index(N) // 64 == index(M) // 64", "n // 64 == m // 64"),
        ("index(N) >= index(M) + size(N) - size(M)", "n >= m"),
        ("index(N) < needed", "n < 1"),  # 1 is what benchmarks give to the first param that has no default.
        ("index(N) <= index(M) if flag else index(N) >= 3", "n >= 3"),
    ],
)
def test_ranges_count_what_is_left(condition: str, expected: str) -> None:
    ends = visible_range(program_of(condition), "size", "size")
    counts = [len(eval(f"range({ends})", {"size": SIZE, "row": row})) for row in range(SIZE)]
    m, n = np.arange(SIZE)[:, None], np.arange(SIZE)[None, :]
    left = np.broadcast_to(eval(expected, {"m": m, "n": n}), (SIZE, SIZE))
    assert counts == left.sum(1).tolist()


@pytest.mark.parametrize(
    "condition",
    [
        "index(N) < last",  # A call tells.
        "seen",
        "(index(N) < 4) | (index(M) - index(N) < 16) & (index(N) <= index(M))",  # There is a hole.
        "index(N) % 2 == 0",
        "index(N) < share * index(M)",
    ],
)
def test_what_is_not_known_is_counted_whole(condition: str) -> None:
    program = program_of(condition)
    assert not visible_range(program, "size", "size")
    view = StreamingSizes(program, spec_of(condition)).view()
    assert (view["pairs"], view["masked"]) == ("size * size", False)


def test_operations_are_of_the_widths_of_each_matmul() -> None:
    condition = "index(N) <= index(M)"
    view = StreamingSizes(program_of(condition), spec_of(condition)).view()
    assert view["counted"] == "2 * 4 * 32 * pairs * (64 + 32)"
    assert float(view["times_backward"]) == pytest.approx((3 * 64 + 2 * 32) / (64 + 32), rel=1e-3)
