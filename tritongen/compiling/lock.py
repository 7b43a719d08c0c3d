"""`kernels.lock`: a line for each compiled kernel, with its use of the GPU, and what a later compilation made worse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LOCK = "kernels.lock"
LARGEST, EVERY = "largest", "every"  # sizes of each benchmark
# What is in a line, in this order: registers of a thread; its bytes of local memory, where registers are spilled and
# arrays lie; bytes of shared memory of a program; bytes of its widest load and store, where a tile of TMA counts as
# 128; instructions of tensor cores; bytes of machine code.
FACTS = ("registers", "local", "shared", "load", "store", "tensor", "code")
KEYS = ("op", "kernel", "target", "variant")  # what a kernel as data has before these
_HEADER = """\
# Written by `tritongen compile --update`: the kernels of benchmarks in their {sizes} sizes, with Triton {triton}.
# Registers and bytes of local memory of a thread, bytes of shared memory of a program, bytes of the widest load and
# store, instructions of tensor cores, bytes of code.
"""


class BadLock(ValueError):
    """A text that is no lock, with the number of its first wrong line."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} is not of a lock")
        self.line = line


@dataclass(frozen=True, order=True)
class Kernel:
    """A compiled kernel: its operator, name and target; its dtypes, constexprs and arguments; its use of the GPU."""

    op: str
    name: str
    target: str
    variant: str
    facts: Mapping[str, int] = field(compare=False)

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return self.op, self.name, self.target, self.variant

    def data(self) -> dict[str, Any]:
        return {**dict(zip(KEYS, self.identity, strict=True)), **self.facts}

    @property
    def shown(self) -> str:
        return f"{self.op}/{self.name} {self.target} {self.variant}"

    def line(self) -> str:
        return f"{self.shown} : {' '.join(f'{name}={self.facts[name]}' for name in FACTS)}"


def kernel_of(data: Mapping[str, Any]) -> Kernel:
    op, name, target, variant = (data[key] for key in KEYS)
    return Kernel(op, name, target, variant, {fact: data[fact] for fact in FACTS})


@dataclass(frozen=True)
class Lock:
    kernels: tuple[Kernel, ...]
    triton: str
    sizes: str = LARGEST

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.target for one in self.kernels))

    def text(self) -> str:
        lines = [one.line() for one in sorted(self.kernels)]
        return _HEADER.format(sizes=self.sizes, triton=self.triton) + "".join(f"{line}\n" for line in lines)

    def updated(self, new: Lock, ops: Iterable[str]) -> Lock:
        """With what was compiled now in place of what is locked of these operators, for the targets of now."""
        ops, targets = set(ops), set(new.targets)
        others = [one for one in self.kernels if one.op not in ops or one.target not in targets]
        return Lock((*others, *new.kernels), new.triton, new.sizes)


def read_lock(text: str) -> Lock:
    """The lock that a text is. Raises `BadLock`."""
    first, *lines = text.splitlines() or [""]
    before, _, triton = first.rpartition(" with Triton ")
    sizes = next((one for one in (LARGEST, EVERY) if f"their {one} sizes," in before), "")
    if not triton or not sizes:
        raise BadLock(1)
    kernels = [_kernel(line, place) for place, line in enumerate(lines, 2) if line and line[0] != "#"]
    return Lock(tuple(kernels), triton.rstrip("."), sizes)


def _kernel(line: str, place: int) -> Kernel:
    try:
        shown, _, recorded = line.partition(" : ")
        path, target, variant = shown.split(" ", 2)
        op, name = path.split("/")
        facts = {name: int(value) for name, value in (one.split("=") for one in recorded.split())}
    except ValueError:
        raise BadLock(place) from None
    if (*facts,) != FACTS:
        raise BadLock(place)
    return Kernel(op, name, target, variant, facts)


def regressions(locked: Lock, now: Sequence[Kernel], ops: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """A kernel, a code and a message, for each that got worse than it is locked, came, or is no longer launched."""
    before = {one.identity: one for one in locked.kernels if one.op in set(ops)}
    after = {one.identity: one for one in now}
    for identity, kernel in after.items():
        old = before.pop(identity, None)
        if old is None:
            yield kernel.shown, "TG713", "is not locked"
        else:
            yield from ((kernel.shown, "TG712", what) for what in worse(old.facts, kernel.facts))
    targets = {one.target for one in now}
    yield from ((one.shown, "TG713", "is not launched any more") for one in before.values() if one.target in targets)


def worse(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[str]:
    """What a compiled kernel has lost."""
    if new["local"] > old["local"]:
        yield f"has {new['local']} bytes of local memory in a thread, locked are {old['local']}"
    for name in ("load", "store"):
        if new[name] < old[name]:
            yield f"has {name}s of at most {new[name]} bytes, locked are {old[name]}"
    if old["tensor"] and not new["tensor"]:
        yield "does not use tensor cores, as it is locked"
