"""The sample of tests that runs by default: a part of each long table of cases, another one at each turn.

An emitted test runs on a quarter of the operators that have it, and at least on one, since operators of a family
inherit the same tests and share templates of kernels, so that a test that fails for one fails for most. The quarter
differs from test to test, so that every operator runs about a quarter of its tests.

A test of tests/values runs on an eighth of its cases; of the tests there without cases, a quarter run. A test marked
`sampled(n)` runs on every nth case; of the tests with this mark but without cases, every nth runs. `--long` runs all,
and so does a file by itself; `--turn N` runs other samples.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

SHARE = 4


class Emitted(NamedTuple):
    """An emitted test: the harness that its class inherits from, the test's name, the index of its case, and its op."""

    harness: str
    test: str
    case: int
    op: str


def chosen(tests: Iterable[Emitted], turn: int = 0) -> frozenset[Emitted]:
    """The emitted tests to run, independent of their order."""
    ops = defaultdict[tuple[str, str, int], list[str]](list)
    for harness, test, case, op in tests:
        ops[harness, test, case].append(op)
    return frozenset(Emitted(*key, op) for key, found in ops.items() for op in _part(sorted(found), key, SHARE, turn))


def sampled(test: str, cases: Iterable[str], share: int, turn: int = 0) -> frozenset[str]:
    """One in `share` of the cases, shuffled so that steps through a product of values do not meet one value only."""
    return frozenset(_part(sorted(cases, key=lambda case: zlib.crc32(case.encode())), test, share, turn))


def _part(cases: Sequence[str], key: object, share: int, turn: int) -> Sequence[str]:
    """One in `share` of the cases, starting at an index among the first that `key` and `turn` determine."""
    return cases[(zlib.crc32(repr(key).encode()) + turn) % min(share, len(cases)) :: share]
