"""The GPUs that kernels are compiled for, with the properties that rules of emitted code query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..diagnostics.report import BadOption, did_you_mean

THREADS = 1024  # the most that a program can have, on all targets


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU: Triton's name of its architecture, and the properties by which emitted rules choose a launch."""

    name: str
    sms: int  # streaming multiprocessors, or compute units
    shared: int  # bytes of shared memory that a program can have
    warp: int = 32  # threads

    @property
    def backend(self) -> str:
        return "cuda" if self.name.startswith("sm_") else "hip"

    @property
    def arch(self) -> int | str:
        return int(self.name.removeprefix("sm_")) if self.backend == "cuda" else self.name

    @property
    def capability(self) -> tuple[int, int]:
        """CUDA's compute capability, (0, 0) elsewhere, as emitted code has it."""
        return divmod(int(self.arch), 10) if self.backend == "cuda" else (0, 0)

    def for_triton(self) -> Any:
        """The target as Triton's `GPUTarget`; this imports Triton."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget(self.backend, self.arch, self.warp)


# A100, H100, B200, RTX PRO 6000, MI300X and MI350X.
TARGETS = {
    one.name: one
    for one in (
        Target("sm_80", 108, 166_912),
        Target("sm_90", 132, 232_448),
        Target("sm_100", 148, 232_448),
        Target("sm_120", 188, 101_376),
        Target("gfx942", 304, 65_536, 64),
        Target("gfx950", 256, 163_840, 64),
    )
}


class BadTarget(BadOption):
    """An unknown target."""

    option = "--target"


def targets_of(names: Iterable[str]) -> tuple[Target, ...]:
    """Targets by name, in the order of `TARGETS`. Raises `BadTarget`."""
    wanted = set(names)
    for name in sorted(wanted - TARGETS.keys()):
        raise BadTarget(f"there is no target {name!r}; {did_you_mean(name, TARGETS, f'known are {known()}')}")
    return tuple(target for name, target in TARGETS.items() if name in wanted)


def known() -> str:
    return ", ".join(TARGETS)
