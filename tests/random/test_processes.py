"""Each seed has an outcome, even if the process that runs it crashes or hangs."""

import os
import time
from collections import Counter
from collections.abc import Iterator

from tests.random.processes import LATE, REFUSED, RIGHT, SEEDS, Outcome, Task, outcomes

CRASHES, WAITS, REFUSES, LAST = 40, 41, 42, 2 * SEEDS + 50


def prepare() -> None:
    pass


def run(seed: int) -> Iterator[Outcome]:
    yield Outcome(RIGHT, text=f"text {seed}")
    if seed == CRASHES:
        os._exit(3)
    if seed == WAITS:
        time.sleep(60)
    time.sleep(0.001 * (seed % 3))
    yield Outcome(REFUSED if seed == REFUSES else RIGHT)


def test_seeds_of_processes_that_end_are_counted() -> None:
    found = list(outcomes(Task(run, prepare), range(LAST), jobs=3, limit=10, until=float("inf")))
    assert sorted(seed for seed, _ in found) == list(range(LAST))
    kinds = Counter(one.kind for _, one in found)
    assert kinds == {RIGHT: LAST - 3, "CRASH 3": 1, LATE: 1, REFUSED: 1}
    assert {one.text for seed, one in found if seed in (CRASHES, WAITS)} == {f"text {CRASHES}", f"text {WAITS}"}
