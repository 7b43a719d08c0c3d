"""Tuning at the first call of a size, for calls of more than one launch."""

import functools
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
import triton
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.errors import OutOfResources, PTXASError

from . import launch
from .launch import INTERPRETED


class Searches:
    """The fastest configurations, by the key of their search."""

    known: ClassVar[dict[launch.Key, triton.Config]] = {}


def fastest(
    key: launch.Key,
    configs: Sequence[triton.Config],
    stages: Callable[[triton.Config], Sequence[launch.Stage]],
    device: torch.device,
) -> triton.Config | None:
    """The configuration whose launches take the least time, which is cached for the key.

    None if nothing can be timed: in the interpreter, under a trace, while a CUDA graph is captured.
    """
    if len(configs) == 1:
        return configs[0]
    if (
        INTERPRETED
        or device.type != "cuda"
        or launch.is_traced()
        or torch.cuda.is_current_stream_capturing()
    ):
        return None
    if key not in Searches.known:
        times = [_median(stages, config) for config in configs]
        Searches.known[key] = configs[times.index(min(times))]
    return Searches.known[key]


def _median(
    stages: Callable[[triton.Config], Sequence[launch.Stage]], config: triton.Config
) -> float:
    """The median in milliseconds; infinite for a tile that does not fit."""
    call = functools.partial(launch.run_stages, None, {}, stages(config))
    try:
        found: float = triton.testing.do_bench(
            call, warmup=10, rep=40, return_mode="median"
        )
    except (OutOfResources, PTXASError, CompileTimeAssertionFailure):
        return float("inf")
    return found
