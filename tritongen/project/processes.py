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


def in_processes(work: Callable[..., T], jobs: Sequence[tuple[Any, ...]], can_fork: bool = True) -> Iterator[T]:
    """Yield `work(*job)` for each job as it completes, in fresh processes.

    On Linux they are forks if `can_fork`, with this process's imports; other systems cannot fork safely.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    context = multiprocessing.get_context("fork" if can_fork and sys.platform == "linux" else "spawn")
    pool = ProcessPoolExecutor(min(cores(), len(jobs)), context, _begin)
    try:
        yield from (one.result() for one in as_completed([pool.submit(work, *job) for job in jobs]))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Leave Ctrl-C to the parent, and exit with the parent, whose lock is inherited."""
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
    # black's trees become garbage file by file; collecting more often takes a fifth of the time.
    gc.freeze()
    gc.set_threshold(200_000)
