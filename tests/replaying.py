"""Launches of calls like earlier ones, on the CPU: a launch in the interpreter stands for one of a compiled kernel.

Imported once TRITON_INTERPRET is set.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction

INTERPRET: Any = InterpretedFunction.__getitem__


class Rerun:
    """Stands for the compiled kernel of a launch in the interpreter: it interprets the kernel anew."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *args: INTERPRET(self.kernel, grid)(*args)


def launching(kernel: Any, grid: tuple[int, ...]) -> Any:
    def launch(*args: Any, **options: Any) -> Rerun:
        INTERPRET(kernel, grid)(*args, **options)
        return Rerun(kernel)

    return launch


def replay_on_the_cpu(launch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the CPU stand for those of a GPU; what a test makes known, no other test launches."""
    monkeypatch.setattr(launch.Launches, "known", {})
    monkeypatch.setattr(launch, "is_replayed", lambda _: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # The index of the CPU.


def replay_interpreted(launch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides, kernels of the interpreter are launched again."""
    replay_on_the_cpu(launch, monkeypatch)
    monkeypatch.setattr(InterpretedFunction, "__getitem__", launching)
