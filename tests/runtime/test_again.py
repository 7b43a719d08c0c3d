"""What launches a compiled kernel again: Triton's launcher itself, unless something has set hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
from triton.compiler import CompiledKernel

from tests.harness.importing import runtime_module

if torch.cuda.is_available():
    pytest.skip("a kernel that is none stands for a compiled one", allow_module_level=True)
LAUNCH: Any = runtime_module("launch")
GRID = (7, 2, 1)


class Compiled(CompiledKernel):  # type: ignore[misc]
    """Has what Triton 3.6 to 3.9 read of a compiled kernel."""

    def __init__(self, calls: list[Any]) -> None:
        self._run, self.function, self.packed_metadata = lambda *args: calls.append(args), "function", "packed"

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *args: self._run("by Triton", grid, *args)

    def __del__(self) -> None:
        """Nothing was loaded."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: f"stream of {device}", raising=False)
    return []


def test_directly(calls: list[Any]) -> None:
    LAUNCH.again(Compiled(calls), GRID, ("x", 5), [64])("x", 5)
    assert calls == [(*GRID, "stream of 3", "function", "packed", None, None, None, "x", 5, 64)]


@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
@pytest.mark.parametrize("chained", [False, True])
def test_hooks(name: str, chained: bool, calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What profilers set, before a launch is known or after."""
    launch = LAUNCH.again(Compiled(calls), GRID, ("x", 5), [64])
    if chained:
        chain = type(getattr(triton.knobs.runtime, name))()
        chain.add(print)
        monkeypatch.setattr(triton.knobs.runtime, name, chain)
    else:
        monkeypatch.setattr(triton.knobs.runtime, name, print)
    launch("x", 5)
    assert calls == [("by Triton", GRID, "x", 5, 64)]
