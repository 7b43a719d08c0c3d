"""Launches that only compile: operators are called for a GPU that is absent.

Emitted rules ask the runtime for properties of the device and get the target's. Tensors are on the CPU and never
written. Triton compiles the kernels of a launch by `warmup`, which runs nothing.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .calls import calls_of
from .facts import facts_of
from .lock import EVERY, Kernel
from .targets import TARGETS, THREADS, Target

_OPTIONS = ("num_warps", "num_stages", "maxnreg")


@dataclass
class Compiled:
    """The kernels that the launches of an operator compile to, and names that were refused, with the reason."""

    op: str
    target: str
    kernels: list[Kernel] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)


def compile_operator(package: str, op: str, target: Target, sizes: str) -> Compiled:
    """Compile an operator in this process, which compiles for no other target."""
    return _compiler(target).compile_all(package, op, sizes)


@functools.cache
def _compiler(target: Target) -> Compiler:
    atexit.register(os._exit, 0)  # Skips the list of leaks that Triton's bindings print.
    return Compiler(target)


class Compiler:
    """Compiles the launches of this process for a target. A process can have one target only, because emitted modules
    and Triton read it when they are imported.
    """

    def __init__(self, target: Target) -> None:
        os.environ["TRITON_INTERPRET"] = "0"
        os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # A kernel's code must not depend on the path of its file.
        import torch
        from triton.runtime import driver
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        self.target = target
        self.result = Compiled("", target.name)
        self._seen: set[int] = set()
        self._once = False  # whether one kernel of each function is enough
        torch.version.cuda = "13.0" if target.backend == "cuda" else None
        torch.version.hip = "7.0" if target.backend == "hip" else None
        driver.set_active(NoDevice(target.name))
        JITFunction.__getitem__ = lambda kernel, grid: functools.partial(self._compile, kernel)
        Autotuner.__getitem__ = lambda kernel, grid: functools.partial(self._tuned, kernel)

    def compile_all(self, package: str, op: str, sizes: str) -> Compiled:
        """Compile the kernels that an emitted operator of `package` launches. After the largest call, functions that
        are already compiled are skipped, unless `sizes` is `EVERY`.
        """
        self.result = Compiled(op, self.target.name)
        self._seen.clear()  # Several operators share kernels of the runtime.
        self._once = False
        try:
            benchmark = importlib.import_module(f"{package}.{op}.bench_{op}").BENCHMARK
            _replace(package, {**_properties_of(self.target), "fastest": self._fastest(package)})
            for call in calls_of(package, benchmark):
                call()
                self._once = sizes != EVERY
        except Exception as error:
            self.result.refused.append((op, _said(error)))
        return self.result

    def _fastest(self, package: str) -> Callable[..., Any]:
        """A replacement of the search that times calls of several launches: it compiles candidates."""

        def fastest(_: Any, configs: Sequence[Any], stages: Callable[[Any], Sequence[Any]], *__: Any) -> Any:
            run = sys.modules[f"{package}._runtime.launch"].run_stages
            return self._first_that_fits(configs, lambda config: run(None, {}, stages(config)))

        return fastest

    def _tuned(self, tuned: Any, *args: Any, **named: Any) -> None:
        """A replacement of a launch by @triton.autotune: it compiles the candidates."""
        self._first_that_fits(tuned.configs, lambda one: self._compile(tuned.fn, *args, **named, **one.all_kwargs()))

    def _first_that_fits(self, configs: Sequence[Any], launch: Callable[[Any], None]) -> Any:
        """Compile all candidates; the first that fits. Others may be refused, since they would lose the search."""
        refused = len(self.result.refused)
        found = []
        for config in configs:
            before = len(self.result.refused)
            launch(config)
            found += [config] if len(self.result.refused) == before else []
        if found:
            del self.result.refused[refused:]
        return (found or configs)[0]

    def _compile(self, kernel: Any, *args: Any, **named: Any) -> None:
        name = kernel.__name__
        if self._once and any(one.name == name for one in self.result.kernels):
            return
        try:
            compiled = kernel.run(*args, grid=(1,), warmup=True, **named)
            if id(compiled) in self._seen:
                return
            self._seen.add(id(compiled))
            facts = facts_of(compiled)
        except Exception as error:
            self.result.refused.append((name, _said(error)))
            return
        self._add(name, _variant(kernel, compiled, named), facts)
        threads = self.target.warp * compiled.metadata.num_warps
        used = {"bytes of shared memory": (facts["shared"], self.target.shared), "threads": (threads, THREADS)}
        for what, (needed, there_are) in used.items():
            if needed > there_are:
                why = f"needs {needed:,} {what}, and {self.target.name} has {there_are:,}"
                self.result.refused.append((name, f"{why} for a program" if what == "threads" else why))

    def _add(self, name: str, variant: str, facts: Mapping[str, int]) -> None:
        kernels = self.result.kernels
        n_same = sum(one.name == name and one.variant.partition(" #")[0] == variant for one in kernels)
        numbered = f"{variant} #{n_same + 1}" if n_same else variant  # They differ elsewhere.
        kernels.append(Kernel(self.result.op, name, self.target.name, numbered, facts))


def _said(error: Exception) -> str:
    """An error cut to 300 characters, since Triton's may contain a full module."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


class NoDevice:
    """The driver that Triton asks before it compiles a launch; the device is the name of a target."""

    def __init__(self, target: str) -> None:
        self.target = target

    def get_current_device(self) -> str:
        return self.target

    def get_current_stream(self, _: str) -> int:
        return 0

    def get_current_target(self) -> Any:
        return TARGETS[self.target].for_triton()


def _properties_of(target: Target) -> dict[str, Callable[..., Any]]:
    """Functions of the runtime by which emitted rules query a device, with the answers of a target."""
    answers = {
        "sm_count": target.sms,
        "shared_memory": target.shared,
        "persistent_programs": target.sms,
        "is_nvidia": target.backend == "cuda",
        "capability": target.capability,
        "is_replayed": False,
    }
    return {asked: lambda *_, answer=answer: answer for asked, answer in answers.items()}


def _replace(package: str, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Replace functions in every module of a runtime, because modules import functions from each other by name."""
    for name, module in [*sys.modules.items()]:
        if name.startswith(f"{package}._runtime."):
            for one in functions.keys() & vars(module).keys():
                setattr(module, one, functions[one])


def _variant(kernel: Any, compiled: Any, named: Mapping[str, Any]) -> str:
    """The specialization of a compiled kernel: dtypes of tensors, constexprs, options of the compiler, and for each
    argument whether it is divisible by 16 (d), 1, or neither (-).
    """
    signature: Mapping[str, Any] = compiled.src.signature
    tensors = [_tensor(kind) for kind in map(str, signature.values()) if kind.startswith(("*", "tensordesc"))]
    usual = "INDEX" if _plain(named.get("INDEX")) == "int32" else ""
    options = [name for name in named if (name.isupper() and name != usual) or name in _OPTIONS]
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
    """The dtype of a pointer; the dtype and block of a descriptor: `bf16[128,64]`."""
    block = re.match(r"tensordesc<(\w+)(\[[^\]]*\])", kind)
    return f"{block[1]}{block[2]}".replace(" ", "") if block else kind.removeprefix("*")


def _plain(value: Any) -> str:
    return str(getattr(value, "name", value)).replace(" ", "")
