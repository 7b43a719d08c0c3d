"""Jobs on all cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def cores() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_processes(
    work: Callable[..., T],
    jobs: Sequence[tuple[Any, ...]],
    start: Callable[..., object] = tuple,
    given: tuple[Any, ...] = (),
    can_fork: bool = True,
) -> Iterator[T]:
    """What becomes of each job, as it ends, in fresh processes that begin by `start`.

    A fork has imported what this process has; systems other than Linux cannot fork safely.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    context = multiprocessing.get_context("fork" if can_fork and sys.platform == "linux" else "spawn")
    pool = ProcessPoolExecutor(min(cores(), len(jobs)), context, _begin, (start, given))
    try:
        yield from (one.result() for one in as_completed([pool.submit(work, *job) for job in jobs]))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(start: Callable[..., object], given: tuple[Any, ...]) -> None:
    """Leaves Ctrl-C to the parent, and does not outlive it: it inherits the lock."""
    import gc
    import multiprocessing
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    # black's trees are garbage a file at a time; looking for it oftener takes a fifth of the time.
    gc.freeze()
    gc.set_threshold(200_000)
    start(*given)
