"""`pytest --sanitize`: a plugin of pytest that runs tests of emitted operators on a GPU under sanitizers.

For each sanitizer, pytest runs again in a process of its own with the same arguments. The exit code is the first
nonzero one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

OPTION, CHOICE = "--sanitize", "--sanitizer"
WITHIN = "TRITONGEN_SANITIZER"  # set in the process that a sanitizer runs in
TOOLS = Path("/usr/local/cuda/bin")


@dataclass(frozen=True)
class Sanitizer:
    """A command in front of Python's, variables of the environment, and tests that cannot run under it."""

    finds: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    without: str = ""  # for pytest's -k


# Each tensor has its own allocation, so that out-of-bounds accesses hit no other tensor; it prevents graph capture.
MEMORY = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
CHECKED = "--error-exitcode", "1", "--report-api-errors", "no"  # not API errors: torch handles some, as out of memory
CHILDREN = "--target-processes", "all"  # only if tests run in workers, since it slows down ptxas, too
SANITIZERS = {
    "memcheck": Sanitizer(
        "accesses out of bounds or misaligned, by NVIDIA's compute-sanitizer",
        ("compute-sanitizer", "--tool", "memcheck", *CHECKED),
        MEMORY,
        "not graph_capture",
    ),
    "consan": Sanitizer(
        "races on shared memory and barriers that nothing waits for, by Triton's ConSan",
        environment={"TRITON_INSTRUMENTATION_MODE": "consan"},
    ),
}


def path_of(tool: str) -> str | None:
    return shutil.which(tool) or shutil.which(tool, path=str(TOOLS))


def is_installed(sanitizer: Sanitizer) -> bool:
    if sanitizer.command:
        return path_of(sanitizer.command[0]) is not None
    import triton

    return hasattr(triton.knobs.compilation, "instrumentation_mode")


def command_of(sanitizer: Sanitizer, arguments: Sequence[str], words: str, has_workers: bool) -> list[str]:
    """The command that runs pytest under a sanitizer with the arguments of this run; `words` is the value of its -k."""
    values = {place + 1 for place, one in enumerate(arguments) if one == CHOICE}
    own = [one for place, one in enumerate(arguments) if one not in (OPTION, CHOICE) and place not in values]
    if sanitizer.without:
        own += ["-k", f"({words}) and {sanitizer.without}" if words else sanitizer.without]
    tool: list[str] = []
    if sanitizer.command:
        first, *rest = sanitizer.command
        tool = [path_of(first) or first, *rest, *(CHILDREN if has_workers else ())]
    return [*tool, sys.executable, "-m", "pytest", *own]


def has_gpu() -> bool:
    if find_spec("torch") is None or find_spec("triton") is None:
        return False
    import torch

    return torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET", "0") == "0"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tritongen")
    group.addoption(OPTION, action="store_true", help="run the tests on a GPU under each sanitizer that is installed")
    group.addoption(CHOICE, action="append", choices=sorted(SANITIZERS), help="under this one alone (repeatable)")


def pytest_sessionstart() -> None:
    """Set the allocator for ConSan's scratch memory, and run backward passes on this thread, so that it holds there."""
    if os.environ.get(WITHIN) == "consan":
        import torch
        import triton

        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
        torch.autograd.set_multithreading_enabled(False)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    chosen: list[str] = config.getoption(CHOICE) or (list(SANITIZERS) if config.getoption(OPTION) else [])
    if not chosen or WITHIN in os.environ:
        return None
    if not has_gpu():
        raise pytest.UsageError(f"{OPTION} needs torch, triton and a GPU: without it, pytest runs Triton's interpreter")
    ready = [name for name in chosen if is_installed(SANITIZERS[name])]
    if not ready:
        raise pytest.UsageError(f"{', '.join(chosen)} is not installed: compute-sanitizer comes with CUDA's toolkit")
    codes = []
    for name in ready:
        one = SANITIZERS[name]
        print(f"{name}: {one.finds}", flush=True)
        has_workers = bool(config.getoption("numprocesses", None))
        command = command_of(one, config.invocation_params.args, config.getoption("keyword"), has_workers)
        codes.append(subprocess.run(command, env={**os.environ, **one.environment, WITHIN: name}).returncode)
        print(f"{name}: {'nothing found' if codes[-1] == 0 else f'exit code {codes[-1]}'}", flush=True)
    return next((code for code in codes if code), 0)
