"""A process that compiles operators for one target."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .launches import Compiled, Compiler
    from .targets import Target

_compilers: list[Compiler] = []


def start(home: str, target: Target) -> None:
    """Set up this process to compile operators in packages below `home` for a target."""
    from .launches import Compiler

    atexit.register(os._exit, 0)  # Skips the list of leaks that Triton's bindings print.
    sys.path.insert(0, home)
    _compilers.append(Compiler(target))


def work(package: str, op: str, sizes: str) -> Compiled:
    return _compilers[-1].compile_all(package, op, sizes)
