"""`kernels.lock`: a line for each compiled kernel with its use of the GPU, and regressions of later compilations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LOCK = "kernels.lock"
LARGEST, EVERY = "largest", "every"  # sizes of each benchmark
# The values of a line, in this order: registers per thread; bytes of local memory per thread (spilled registers and
# arrays); bytes of shared memory per program; bytes of the widest load and store, where a TMA tile counts as 128;
# number of tensor core instructions; bytes of machine code.
FACTS = ("registers", "local", "shared", "load", "store", "tensor", "code")
KEYS = ("op", "kernel", "target", "variant")  # the keys of `Kernel.data` before `FACTS`
_HEADER = """\
# Written by `tritongen compile --update`: the kernels of benchmarks in their {sizes} sizes, with Triton {triton}.
# Registers and bytes of local memory of a thread, bytes of shared memory of a program, bytes of the widest load and
# store, instructions of tensor cores, bytes of code.
"""


class BadLock(ValueError):
    """A text that is no lock; `line` is the number of its first wrong line."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} is not of a lock")
        self.line = line


@dataclass(frozen=True, order=True)
class Kernel:
    """A compiled kernel: operator, name, target, variant (dtypes, constexprs, arguments), and its use of the GPU."""

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
        """This lock with the kernels of `new` in place of those of `ops` for the targets of `new`."""
        ops, targets = set(ops), set(new.targets)
        others = [one for one in self.kernels if one.op not in ops or one.target not in targets]
        return Lock((*others, *new.kernels), new.triton, new.sizes)


def read_lock(text: str) -> Lock:
    """Parse the text of a lock. Raises `BadLock`."""
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
    """A kernel, a code and a message for each kernel that is worse than locked, not locked, or no longer launched."""
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
    """Regressions of a kernel: more local memory, narrower loads or stores, or no tensor cores any more."""
    if new["local"] > old["local"]:
        yield f"has {new['local']} bytes of local memory in a thread, locked are {old['local']}"
    for name in ("load", "store"):
        if new[name] < old[name]:
            yield f"has {name}s of at most {new[name]} bytes, locked are {old[name]}"
    if old["tensor"] and not new["tensor"]:
        yield "does not use tensor cores, as it is locked"
