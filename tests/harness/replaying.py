"""Replay of launches on the CPU: launches in the interpreter replace launches of compiled kernels.

Import it after TRITON_INTERPRET is set.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction

INTERPRET: Any = InterpretedFunction.__getitem__


class Rerun:
    """Replaces the compiled kernel of a launch: it interprets the kernel again, and reads memory in the dtypes of the
    first launch.
    """

    def __init__(self, kernel: Any, args: tuple[Any, ...]) -> None:
        self.kernel = kernel
        self.dtypes = [getattr(arg, "dtype", None) for arg in args]

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*args: Any) -> None:
            dtypes = (*self.dtypes, *[None] * (len(args) - len(self.dtypes)))
            INTERPRET(self.kernel, grid)(*map(read_as, args, dtypes))

        return launch


def read_as(arg: Any, dtype: torch.dtype | None) -> Any:
    """A tensor's memory viewed in a dtype; other arguments are unchanged."""
    if not isinstance(arg, torch.Tensor) or arg.dtype == dtype:
        return arg
    assert dtype is not None
    start = arg.storage_offset() * arg.itemsize // dtype.itemsize
    return torch.empty(0, dtype=dtype).set_(arg.untyped_storage(), start, (1,))  # type: ignore[call-overload]


def launching(kernel: Any, grid: tuple[int, ...]) -> Any:
    def launch(*args: Any, **options: Any) -> Rerun:
        INTERPRET(kernel, grid)(*args, **options)
        return Rerun(kernel, args)

    return launch


def replay_on_the_cpu(launch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have launches with CPU tensors be cached and replayed, as on a GPU, in a cache of this test's own."""
    monkeypatch.setattr(launch, "LAUNCHES", {})
    monkeypatch.setattr(launch, "is_replayed", lambda _: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # The index of the CPU device.


def replay_interpreted(launch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `replay_on_the_cpu`, with replayed launches interpreted again."""
    replay_on_the_cpu(launch, monkeypatch)
    monkeypatch.setattr(InterpretedFunction, "__getitem__", launching)
