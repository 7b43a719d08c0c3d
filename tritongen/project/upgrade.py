"""Kernels under another version of Triton: how they compile, and whether they compute their math."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..compiling.lock import FACTS, Kernel, kernel_of, worse
from ..diagnostics.report import Unavailable

# Runs the command `tritongen` in another Python. Its own packages, above all torch and triton, take precedence.
_MAIN = """\
import sys
sys.path += sys.argv.pop(1).split({separator!r})
from tritongen.cli import main
sys.argv[0] = "tritongen"
sys.exit(main())
"""
CLEAN, FINDINGS, MISSING = 0, 1, 4  # exit codes
_VERSION = "import importlib.metadata as found; print(found.version('triton'))"


@dataclass(frozen=True)
class Move:
    """A kernel compiled by another Triton, and its facts with the installed one."""

    kernel: Kernel
    before: Mapping[str, int]

    @property
    def changes(self) -> str:
        after = self.kernel.facts
        return ", ".join(f"{one} {self.before[one]} to {after[one]}" for one in FACTS if self.before[one] != after[one])

    @property
    def worse(self) -> tuple[str, ...]:
        return (*worse(self.before, self.kernel.facts),)


@dataclass(frozen=True)
class Upgrade:
    """The kernels that another Triton compiles, and the diagnostics of `compile` and `formula` with it."""

    triton: str
    kernels: tuple[Kernel, ...]
    diagnostics: tuple[Mapping[str, Any], ...]  # as `--format json` has them

    def both(self, before: Iterable[Kernel]) -> list[tuple[Mapping[str, int], Kernel]]:
        """The kernels that both versions compile, each with its facts before."""
        known = {one.identity: one.facts for one in before}
        return [(known[one.identity], one) for one in sorted(self.kernels) if one.identity in known]

    def moves(self, before: Iterable[Kernel]) -> Iterator[Move]:
        """The kernels that both versions compile with different facts, except for code size."""
        for facts, kernel in self.both(before):
            if any(facts[name] != kernel.facts[name] for name in FACTS if name != "code"):
                yield Move(kernel, facts)


def triton_of(python: str) -> str:
    """The version of Triton in another Python. Raises `Unavailable` if that Python lacks packages that kernels need."""
    version = _run(python, "-c", _VERSION).strip()
    _run(python, *_main(), "doctor")
    return version


def upgrade(python: str, triton: str, paths: Sequence[str], targets: Sequence[str]) -> Upgrade:
    """Compile and check specs, which must be correct, with the torch and the triton of another Python.

    Raises `Unavailable` if it cannot run them.
    """
    wanted = [option for target in targets for option in ("--target", target)]
    compiled = _command(python, "compile", *paths, *wanted)
    checked = _command(python, "formula", *paths)
    return Upgrade(triton, (*map(kernel_of, compiled["kernels"]),), (*compiled["diagnostics"], *checked["diagnostics"]))


def _command(python: str, *args: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(_run(python, *_main(), *args, "--format", "json"))
    return data


def _main() -> tuple[str, ...]:
    """Arguments that run `tritongen` in another Python, with the copies of it, click, jinja2 and black found here."""
    found = [importlib.util.find_spec(name) for name in ("tritongen", "click", "jinja2", "black")]
    homes = [os.path.dirname(os.path.dirname(one.origin)) for one in found if one and one.origin]
    return "-c", _MAIN.format(separator=os.pathsep), os.pathsep.join(dict.fromkeys(homes))


def _run(python: str, *args: str) -> str:
    """The output of another Python. The exit code for findings is no failure."""
    try:
        done = subprocess.run([python, *args], capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable(f"{python} does not run: {error.strerror}") from None
    if done.returncode == MISSING:
        raise Unavailable(f"{python} lacks what generated code needs:\n{(done.stdout or done.stderr).rstrip()}")
    if done.returncode not in (CLEAN, FINDINGS) or not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise Unavailable(f"{python} cannot check kernels: {last}")
    return done.stdout
