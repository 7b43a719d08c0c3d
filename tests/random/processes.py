"""Run a task for many seeds in processes that are reused until a seed fails, crashes or hangs."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import multiprocessing as mp
import os
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

SPAWN = mp.get_context("spawn")  # Each has its own CUDA context, and memory that no kernel of others has written to.
SEEDS = 200  # per process, because a process retains the modules of all that it has built
RIGHT, REFUSED, LATE = "right", "refused", "HANG"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a seed: a kind, a message, and the text of its spec."""

    kind: str
    message: str = ""
    text: str = ""

    @property
    def is_wrong(self) -> bool:
        return self.kind not in (RIGHT, REFUSED)


@dataclass(frozen=True)
class Task:
    """The work of a process: `prepare` once, and `run` for each seed.

    The last outcome that `run` yields counts; the text of earlier ones is used if the process ends before.
    """

    run: Callable[[int], Iterator[Outcome]]
    prepare: Callable[[], None]


@dataclass
class Worker:
    """A process that runs a task."""

    task: Task
    folder: str
    left: int = SEEDS
    seed: int = -1
    since: float = 0.0
    text: str = ""
    pipe: Connection = field(init=False)
    process: Any = field(init=False)

    def __post_init__(self) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.stacks = Path(self.folder, f"{id(self)}.txt")
        self.process = SPAWN.Process(target=serve, args=(self.task, theirs, self.stacks), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, seed: int) -> None:
        self.seed, self.since, self.left, self.text = seed, time.monotonic(), self.left - 1, ""
        with contextlib.suppress(OSError):  # The process has ended: `outcome` reports it for this seed.
            self.pipe.send(seed)

    def outcome(self) -> Outcome | None:
        """The outcome of the seed, or of the process if it has ended; None if it still runs."""
        try:
            found, is_last = self.pipe.recv()
        except (EOFError, OSError):  # OSError if it was killed while writing
            self.process.join()
            found, is_last = Outcome(f"CRASH {self.process.exitcode}", self.stack(), self.text), True
        self.text = found.text
        if is_last and (found.is_wrong or not self.left):
            self.end()
        return found if is_last else None

    def stopped(self) -> Outcome:
        """End a process that takes too long, and return an outcome with its stack."""
        os.kill(self.process.pid, signal.SIGUSR1)
        time.sleep(0.5)
        self.end()
        return Outcome(LATE, f"after {time.monotonic() - self.since:.0f} s, {self.stack()}", self.text)

    def end(self) -> None:
        self.left = 0
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def stack(self) -> str:
        """The stack that the process has dumped, innermost frame first."""
        if not self.stacks.exists():  # It has not started.
            return ""
        lines = [line.strip() for line in self.stacks.read_text().splitlines() if line.strip().startswith("File ")]
        return " < ".join(lines[:6])


def serve(task: Task, pipe: Connection, stacks: Path) -> None:
    tempfile.tempdir = str(stacks.parent)
    first = os.getppid()
    task.prepare()
    with stacks.open("w") as file:
        faulthandler.enable(file)
        faulthandler.register(signal.SIGUSR1, file)
        while os.getppid() == first:
            if pipe.poll(2):
                for one in task.run(pipe.recv()):
                    pipe.send((one, False))
                pipe.send((one, True))


def outcomes(task: Task, seeds: range, jobs: int, limit: float, until: float) -> Iterator[tuple[int, Outcome]]:
    """The outcomes of seeds as they complete; no seed starts after the time `until`, and each may take `limit`."""
    coming = iter(seeds)
    with tempfile.TemporaryDirectory() as folder:
        workers: list[Worker] = []
        is_over = False
        try:
            while True:
                while not is_over and sum(one.seed >= 0 for one in workers) < jobs:
                    seed = next(coming, None) if time.monotonic() < until else None
                    if seed is None:
                        is_over = True
                        break
                    free = next((one for one in workers if one.seed < 0), None)
                    if free is None:
                        workers.append(free := Worker(task, folder))
                    free.begin(seed)
                busy = [one for one in workers if one.seed >= 0]
                if not busy:
                    return
                ready = wait([one.pipe for one in busy], timeout=1)
                for one in busy:
                    late = time.monotonic() - one.since > limit
                    found = one.outcome() if one.pipe in ready else one.stopped() if late else None
                    if found is not None:
                        yield one.seed, found
                        one.seed = -1
                workers = [one for one in workers if one.left or one.seed >= 0]
        finally:
            for one in workers:
                one.end()


def arguments(about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("count", type=int, help="how many seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no seed begins")
    parser.add_argument("--limit", type=float, default=120, help="seconds of one seed, after which it hangs")
    return parser.parse_args()


def main(task: Task, given: argparse.Namespace) -> int:
    """Print a line for each seed that is not right, and the counts of right, refused, wrong and timed-out ones.

    Returns the number of seeds that were neither right nor refused.
    """
    start = time.monotonic()
    kinds = Counter[str]()
    seeds = range(given.first, given.first + given.count)
    wrong = 0
    for done, (seed, one) in enumerate(outcomes(task, seeds, given.jobs, given.limit, start + given.seconds), 1):
        kinds[one.kind] += 1
        wrong += one.is_wrong
        if one.kind != RIGHT:
            print(f"{seed} {one.kind}: {' '.join(one.message.split())[:600]} | {one.text!r}", flush=True)
        if done % 500 == 0:
            print(f"=== {done} in {time.monotonic() - start:.0f} s: {dict(kinds)}", flush=True)
    run = kinds.total()
    used = sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    rest = {kind: count for kind, count in kinds.items() if kind not in (RIGHT, REFUSED, LATE)}
    print(
        f"{run} of {given.count} run in {time.monotonic() - start:.0f} s, {used / max(1, run):.2f} s of CPU each:"
        f" {kinds[RIGHT]} right, {kinds[REFUSED]} refused, {wrong - kinds[LATE]} wrong, {kinds[LATE]} timed out {rest}"
    )
    return wrong
