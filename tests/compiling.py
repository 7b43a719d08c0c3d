"""Compiles every kernel of generated folders for GPUs that are not there.

    python tests/compiling.py [--largest] SPEC FOLDER [SPEC FOLDER ...]

Calls each operator so that it launches each of its kernels, on a driver without a device, where a
launch only compiles. Prints what Triton refuses, what tensor cores of Hopper multiply, and how many
kernels it took; with --largest, those of matrix products in their largest tiles and not in the smallest,
for two GPUs. Run as a program of its own: `TRITON_INTERPRET` must not be set when a kernel is defined.
"""

from __future__ import annotations

import importlib
import itertools
import math
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from tritongen.read import read_spec
from tritongen.spec import Input, Param, Spec

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
# Bad layouts move whole tiles through shared memory or replicate them in every thread: hundreds of stores and 20,000
# lines of PTX, where a reduction is a store or two. Exponentials in float64, spelled out, are 6,000, and the error
# function for a whole tile is 13,000.
SHARED, LONGEST = 100, 15_000
NARROW = ("bfloat16", "float16", "float32", "float64", "int32", "int64", "bool")
OLD = (*NARROW, "float8_e5m2")  # Triton has no other float8 for GPUs before NVIDIA's Ada.
# Bytes of shared memory that a program can have: on sm_80 as little as later GPUs of its kind, with 89, have.
MEMORY = {"sm_80": 101_376, "sm_90": 232_448, "sm_100": 232_448}
WIDE = ("float64", "float32", "int64", "int32", "bool")


class Driver:
    """What a launch asks of Triton's driver before it compiles; a target stands for a device."""

    target = "sm_90"

    def get_current_device(self) -> str:
        return self.target

    def get_current_stream(self, _: str) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return TARGETS[self.target]


class Launches:
    """Takes launches, and compiles what they would run."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.compiled: dict[int, Any] = {}  # By identity: the same launch gives the same kernel.
        self.launched: set[str] = set()
        self.multiplied: set[tuple[str, str]] = (
            set()
        )  # kernels, and dtypes that tensor cores of Hopper multiply in them
        self.refused = 0
        self.largest = False
        driver.set_active(self.driver)
        JITFunction.__getitem__ = lambda kernel, grid: partial(self.compile, kernel)

    def compile(self, kernel: Any, *arguments: Any, **named: Any) -> None:
        self.launched.add(kernel.__name__)
        try:
            result = kernel.run(*arguments, grid=(1,), warmup=True, **named)
            self.compiled[id(result)] = result
            most = MEMORY.get(self.driver.target, result.metadata.shared)
            if result.metadata.shared > most:
                self.refuse(f"{kernel.__name__} for {self.driver.target} takes {result.metadata.shared} bytes: {named}")
            ptx = result.asm.get("ptx", "")
            self.multiplied |= {
                (kernel.__name__, found) for found in re.findall(r"wgmma\.mma_async\S*\.(\w+\.\w+) ", ptx)
            }
            length, shared = ptx.count("\n"), ptx.count("st.shared")
            product = "tl.dot(" in kernel.src  # Its tiles go through shared memory.
            if length > LONGEST or (shared > SHARED and not product):
                found = f"{length} lines of PTX with {shared} stores to shared memory"
                self.refuse(f"{kernel.__name__} for {self.driver.target} is {found}: its layouts are bad")
        except Exception as error:
            self.refuse(f"{kernel.__name__} for {self.driver.target}: {type(error).__name__}: {error}")

    def refuse(self, text: str) -> None:
        self.refused += 1
        print(text[:2000])


def main() -> None:
    launches = Launches()
    launches.largest = sys.argv[1] == "--largest"
    paths = sys.argv[1 + launches.largest :]
    specs = [read_spec(path, Path(path).read_text()) for path in paths[::2]]
    modules = [imported(Path(folder)) for folder in paths[1::2]]
    # One target after another: what Triton 3.6 rounds to float8 by, it keeps from the first that it compiles for.
    for target in ("sm_80", "sm_90") if launches.largest else TARGETS:
        launches.driver.target = target
        for spec, module in zip(specs, modules, strict=True):
            dtypes = [*(one.type.dtypes for one in spec.inputs), *((one.dtype,) for one in spec.outputs)]
            if target == "sm_80" and ("float8_e4m3fn",) in dtypes:
                continue
            call(launches, spec, module, OLD if target == "sm_80" else NARROW)
    launches.driver.target = "sm_90"
    for spec, module in zip(specs, modules, strict=True):
        if not launches.largest:
            module._index_dtype = lambda *_: tl.int64
            call(launches, spec, module, WIDE, other=True)
        for name in kernels(module) - launches.launched:
            launches.refuse(f"{name} was not launched")
    for kernel, dtypes in sorted(launches.multiplied):
        print(f"{kernel} multiplies {dtypes}")
    print(f"compiled {len(launches.compiled)} of {len(launches.compiled) + launches.refused}")


def imported(folder: Path) -> Any:
    sys.path.insert(0, str(folder.parent))
    try:
        return importlib.import_module(f"{folder.name}.kernel")
    finally:
        sys.path.pop(0)


def kernels(module: ModuleType) -> set[str]:
    return {name for name in vars(module) if name.endswith("_kernel")}


def call(launches: Launches, spec: Spec, module: Any, dtypes: tuple[str, ...], other: bool = False) -> None:
    """Launch each kernel; with `other` without the optional inputs, and with the params' other values."""
    params = {param.name: value(param, other) for param in spec.params}
    configs, backward = module.configs, getattr(module, "configs_backward", None)
    layouts = ["sliced" if other else "contiguous"]
    if not hasattr(configs, "LOOP") or (backward and hasattr(backward, "TILE")):
        flat = hasattr(configs, "FLAT") or (backward and hasattr(backward, "FLAT"))
        layouts = ["sliced", "line" if flat else "contiguous"]
    for layout in layouts:
        tensors = [draw(one, spec, dtypes, layout) for one in spec.inputs]
        absent = [other and one.default is not None for one in spec.inputs]
        arguments = [None if out else tensor for out, tensor in zip(absent, tensors, strict=True)]
        for choices in ways(configs, launches, dtypes is not WIDE):
            vars(configs).update(choices)
            results = getattr(module, spec.name)(*arguments, **params)
        many = hasattr(backward, "POINTERS") and spec.name != "linear_gelu"
        usual = launches.driver.target == "sm_90" and not other
        # Gradients of products are many kernels of the same few templates, and take minutes: one spec's are for all.
        if backward is None or (many and not usual):
            continue
        # What a product saves is in kernels of their own.
        first = 0 if hasattr(configs, "POINTERS") else -1
        pairs = [ways(one, launches, dtypes is not WIDE) for one in (configs, backward)]
        for choices, backward_choices in itertools.zip_longest(pairs[0][first:], pairs[1], fillvalue={}):
            vars(configs).update(choices)
            vars(backward).update(backward_choices)
            results = getattr(module, spec.name)(*map(leaf, spec.inputs, itertools.repeat(spec), arguments), **params)
            results = results if isinstance(results, tuple) else (results,)
            smooth = [result for result in results if result.requires_grad]
            torch.autograd.backward(smooth, [arranged(result.shape, result.dtype, layout) for result in smooth])


def leaf(one: Input, spec: Spec, tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A tensor that requires a gradient, if the operator has one by it."""
    if tensor is None or spec.grad is None or one.name not in spec.grad.wrt:
        return tensor
    found = tensor.detach().requires_grad_(tensor.is_floating_point())
    made: Any = Made
    return made.apply(found) if spec.grad.write == "in_place" else found


class Made(torch.autograd.Function):
    """A tensor that is no leaf, and so may be overwritten, as it is laid out."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def value(param: Param, other: bool) -> Any:
    if param.kind == "bool":
        return not other
    if param.kind == "enum":
        return param.choices[-1 if other else 0]
    return 2 if param.default is None else param.default


def draw(tensor: Input, spec: Spec, dtypes: tuple[str, ...], layout: str) -> torch.Tensor:
    """A tensor of no particular values; 96 is divisible by 16, which makes a kernel of its own.

    A "line" is long in one dimension alone, and so one run of elements in whatever order.
    """
    named = list(axes(spec))
    lengths = dict(zip(named, itertools.cycle((96, 3, 5))))
    if layout == "line":
        lengths = dict.fromkeys(named, 1) | {named[-1]: 96}
    shape = [
        math.prod(size or lengths[name] for name, size in zip(term.names, term.sizes, strict=True))
        for term in tensor.type.shape
    ]
    dtype = next(dtype for dtype in (*dtypes, *tensor.type.dtypes) if dtype in tensor.type.dtypes)
    return arranged(shape, getattr(torch, dtype), layout)


def arranged(shape: Sequence[int], dtype: torch.dtype, layout: str) -> torch.Tensor:
    step = 2 if layout == "sliced" else 1
    room = torch.empty([step * size for size in shape], dtype=dtype)
    return room[(slice(None, None, step),) * len(shape)]


def axes(spec: Spec) -> Iterator[str]:
    """The axes of a spec, the innermost of an input first."""
    terms = [term for tensor in spec.inputs for term in reversed(tensor.type.shape)]
    yield from dict.fromkeys(name for term in terms for name in reversed(term.names))


def tiles(configs: Any, name: str, place: int) -> Any:
    """A choice of the first or the last of a table, or of that of some kernels."""
    table = getattr(configs, name, ())
    return lambda *args: (table[args[-1]] if isinstance(table, dict) else table)[place]


def by_pointers(configs: Any, place: int) -> Any:
    tables = {wide: tiles(configs, f"POINTERS{wide}", place) for wide in ("", "_WIDE")}
    return lambda n_rows, n_cols, dtype, *kernels: tables["_WIDE" if dtype.itemsize > 2 else ""](*kernels)


def ways(configs: Any, launches: Launches, half: bool) -> list[dict[str, Any]]:
    """What to put in place of a module's choices, so that each of its kernels runs in one of its tiles."""
    target, place = launches.driver.target, 0 if launches.largest else -1

    def always(result: Any) -> Any:
        return lambda *_: result

    def whole_row(_: int, n_cols: int, contiguous: bool) -> triton.Config:
        return triton.Config({"BLOCK_M": 2, "BLOCK_N": triton.next_power_of_2(n_cols)}, num_warps=4)

    products: list[dict[str, Any]] = [{}]
    if hasattr(configs, "POINTERS"):
        # Descriptors copy nothing that is wider than half precision.
        described = {"use_descriptors": lambda device, dtype, *_: dtype.itemsize <= 2}
        described |= {"choose_descriptors": tiles(configs, "DESCRIPTORS", place)}
        described["warps_specialize"] = always(target == "sm_90")
        pointed = {"use_descriptors": always(False), "choose_pointers": by_pointers(configs, place)}
        products = [pointed | {"choose_parts": always(count)} for count in (1, 3)]
        has_descriptors = hasattr(configs, "DESCRIPTORS") and half and target in ("sm_90", "sm_100")
        products += [described] if has_descriptors else []
        shared = described | {"choose_shares": lambda tiles, *_: (1, 2, tiles - 1, 3)}
        products += [shared] if has_descriptors and hasattr(configs, "choose_shares") else []

    def whole_step(n_rows: int, n_cols: int, *_: Any) -> triton.Config:
        return triton.Config({"STAGES": 3, **whole_row(n_rows, n_cols, True).kwargs}, num_warps=4)

    def shared(*_: int) -> triton.Config:
        return triton.Config({"MEMBERS": 8, "BLOCK_M": 1, "BLOCK_N": 64}, num_warps=4, maxnreg=128)

    fixed: dict[str, Any] = {"choose_registers": whole_row, "choose_whole": whole_step, "choose_shared": shared}
    fixed |= {"choose_groups": always(2), "use_shared": always(False)}
    for name in ("FLAT", "TILE", "LOOP", "SUMS"):
        found = sorted(getattr(configs, name, ()), key=lambda config: math.prod(config.kwargs.values()))
        fixed |= {f"choose_{name.lower()}": always(config) for config in found[:1]}
    if hasattr(configs, "SUMS"):
        splits = (1, 3) if hasattr(configs, "LOOP") else (1,)
        long = [fixed | {"is_whole": always(False), "choose_splits": always(n)} for n in splits]
        if target.startswith("sm_"):
            long.append(fixed | {"is_whole": always(False), "use_shared": always(True)})
        others = [fixed | {"is_whole": always(True)}, *long]
    elif not hasattr(configs, "LOOP"):
        others = [fixed]
    else:
        others = [
            fixed | {"in_registers": always(in_registers), "choose_splits": always(splits)}
            for in_registers, splits in ((True, 1), (False, 1), (False, 3))
        ]
    return [one | other for one, other in itertools.product(others, products)]


if __name__ == "__main__":
    main()
