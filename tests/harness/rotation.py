"""Which of the emitted tests of many operators run where time is short: each on a third of the operators that have it.

Operators of one family inherit the same tests, and share the kernels' templates, so that a test that fails for one
fails for most. Which third it is differs from test to test: every operator runs a third of its tests, every test runs
on a third of the operators, and on one at least.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

SHARE = 3


class Emitted(NamedTuple):
    """An emitted test: the harness that its class inherits from, the test, which of its cases it is, the operator."""

    harness: str
    test: str
    case: int
    op: str


def chosen(tests: Iterable[Emitted]) -> frozenset[Emitted]:
    """The tests to run, the same whatever their order."""
    ops = defaultdict[tuple[str, str, int], list[str]](list)
    for harness, test, case, op in tests:
        ops[harness, test, case].append(op)
    return frozenset(Emitted(*key, op) for key, found in ops.items() for op in _third(sorted(found), key))


def _third(ops: Sequence[str], key: tuple[str, str, int]) -> Sequence[str]:
    """Every third operator, from one of the first three on that follows from the test."""
    return ops[zlib.crc32(repr(key).encode()) % min(SHARE, len(ops)) :: SHARE]
