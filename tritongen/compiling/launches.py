"""Launches that only compile: operators called on a GPU that is not there, in the sizes of their benchmarks.

Emitted rules ask the runtime for properties of the device, which here are those of a target; tensors are on the CPU and
never written. Triton compiles what a launch would run, and is given no device to run it on.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from .facts import facts_of
from .lock import EVERY, Kernel
from .targets import TARGETS, Target

_OPTIONS = ("num_warps", "num_stages", "maxnreg")


@dataclass
class Compiled:
    """What became of the launches of an operator: kernels, and those that were refused, with the reason."""

    op: str
    target: str
    kernels: list[Kernel] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)


class Compiler:
    """Takes the launches of this process, and compiles them for a target: one for a process, since emitted modules and
    Triton look at the target when they are imported.
    """

    def __init__(self, target: Target) -> None:
        os.environ["TRITON_INTERPRET"] = "0"
        os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # The same code in the same kernel, wherever its file is.
        import torch
        from triton.runtime import driver
        from triton.runtime.jit import JITFunction

        self.target = target
        self.result = Compiled("", target.name)
        self._seen: set[int] = set()
        torch.version.cuda = "13.0" if target.backend == "cuda" else None
        torch.version.hip = "7.0" if target.backend == "hip" else None
        driver.set_active(NoDevice(target.name))
        JITFunction.__getitem__ = lambda kernel, grid: functools.partial(self._compile, kernel)

    def compile_all(self, package: str, op: str, sizes: str) -> Compiled:
        """Compile what an operator of a package of emitted ones launches."""
        self.result = Compiled(op, self.target.name)
        self._seen.clear()  # Kernels of the runtime are several operators'.
        try:
            benchmark = importlib.import_module(f"{package}.{op}.bench_{op}").BENCHMARK
            _have_properties_of(self.target, package)
            for arguments in _arguments(benchmark, sizes):
                _call(benchmark, arguments)
        except Exception as error:
            self.result.refused.append((op, _said(error)))
        return self.result

    def _compile(self, kernel: Any, *args: Any, **named: Any) -> None:
        name = kernel.__name__
        try:
            compiled = kernel.run(*args, grid=(1,), warmup=True, **named)
            if id(compiled) in self._seen:
                return
            self._seen.add(id(compiled))
            facts = facts_of(compiled)
        except Exception as error:
            self.result.refused.append((name, _said(error)))
            return
        if facts["shared"] > self.target.shared:
            most = f"{facts['shared']:,} bytes of shared memory, and {self.target.name} has {self.target.shared:,}"
            self.result.refused.append((name, f"needs {most}"))
        self._add(name, _variant(kernel, compiled, named), facts)

    def _add(self, name: str, variant: str, facts: Mapping[str, int]) -> None:
        kernels = self.result.kernels
        alike = sum(one.name == name and one.variant.partition(" #")[0] == variant for one in kernels)
        numbered = f"{variant} #{alike + 1}" if alike else variant  # What differs is not in the variant.
        kernels.append(Kernel(self.result.op, name, self.target.name, numbered, facts))


def _said(error: Exception) -> str:
    """The first lines of an error: Triton's may hold a whole module."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


class NoDevice:
    """What a launch asks of Triton's driver before it compiles; the name of a target stands for a device."""

    def __init__(self, target: str) -> None:
        self.target = target

    def get_current_device(self) -> str:
        return self.target

    def get_current_stream(self, _: str) -> int:
        return 0

    def get_current_target(self) -> Any:
        return TARGETS[self.target].for_triton()


def _have_properties_of(target: Target, package: str) -> None:
    """Have the modules of a runtime, which import them from each other by name, see a target's properties."""
    answers = {
        "sm_count": target.sms,
        "shared_memory": target.shared,
        "persistent_programs": target.sms,
        "is_nvidia": target.backend == "cuda",
        "capability": target.capability,
        "is_replayed": False,
    }
    for name, module in [*sys.modules.items()]:
        if name.startswith(f"{package}._runtime."):
            for asked in answers.keys() & vars(module).keys():
                setattr(module, asked, lambda *_, answer=answers[asked]: answer)


def _arguments(benchmark: Any, sizes: str) -> Iterator[Mapping[str, Any]]:
    """What `make` of a benchmark takes, for the sizes that it measures, largest first."""
    import torch

    reports = [
        (one.x_names[0], sorted(one.x_vals, reverse=True), one.args) for one in benchmark.reports(benchmark.sizes)
    ]
    if sizes != EVERY:
        reports = [(name, lengths[:1], others) for name, lengths, others in reports[:1]]
    several = benchmark.dtypes.split()
    dtypes = [{}, *({"dtype": torch.float32} for one in several if sizes == EVERY and one == "float32")]
    for dtype in dtypes:
        for name, lengths, others in reports:
            yield from ({name: length, **others, **dtype} for length in lengths)


def _call(benchmark: Any, arguments: Mapping[str, Any]) -> None:
    """A call of a benchmark's operator, with its gradient, on tensors that nobody writes."""
    import torch

    _empty_draws(sys.modules[benchmark.make.__module__])
    tensors = benchmark.make(**arguments)
    for place in benchmark.wrt:
        tensors[place].requires_grad_(tensors[place].is_floating_point())
    results = benchmark.op(*tensors, **benchmark.params)
    smooth = [one for one in (results if isinstance(results, tuple) else (results,)) if one.requires_grad]
    if smooth:
        torch.autograd.backward(smooth, [torch.empty_like(one) for one in smooth])


def _empty_draws(module: ModuleType) -> None:
    """Have a benchmark draw nothing: its inputs are as they are allocated, on the CPU."""
    import torch

    harness = vars(module)["benchmarking"]
    harness.DEVICE = "cpu"
    harness.draw = lambda shape, dtype, *_: torch.empty(shape, dtype=dtype)


def _variant(kernel: Any, compiled: Any, named: Mapping[str, Any]) -> str:
    """What distinguishes a compiled kernel from others of its source: the dtypes of its tensors, constexprs and options
    of the compiler, and for each argument whether it is divisible by 16 (d), 1, or neither (-).
    """
    signature: Mapping[str, Any] = compiled.src.signature
    tensors = [_tensor(kind) for kind in map(str, signature.values()) if kind.startswith(("*", "tensordesc"))]
    options = [name for name in named if (name.isupper() and name != "INDEX") or name in _OPTIONS]
    divisible = {kernel.arg_names[path[0]] for path, attrs in compiled.src.attrs.items() if attrs}
    kinds = [
        "d" if name in divisible else "1" if kind == "constexpr" else "-"
        for name, kind in signature.items()
        if not name.isupper()
    ]
    return " ".join(
        [",".join(tensors), *(f"{name}={_plain(named[name])}" for name in options), f"args={''.join(kinds)}"]
    )


def _tensor(kind: str) -> str:
    """The dtype of a pointer, and of a descriptor its block too: `bf16[128,64]`."""
    block = re.match(r"tensordesc<(\w+)(\[[^\]]*\])", kind)
    return f"{block[1]}{block[2]}".replace(" ", "") if block else kind.removeprefix("*")


def _plain(value: Any) -> str:
    return str(getattr(value, "name", value)).replace(" ", "")
