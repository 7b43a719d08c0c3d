"""Compiles every kernel of generated folders for GPUs that are not there.

    python -m tests.compiling.operators [--largest] [--target NAME] SPEC FOLDER [SPEC FOLDER ...]

Calls each operator so that it launches each of its kernels, on a driver without a device, where a
launch only compiles. Prints what Triton refuses, what tensor cores of Hopper multiply, which kernels have
products that are fused with sums, and how many kernels it took. With --largest, kernels of matrix products
are compiled in their largest tiles and not in the last of their tables, and those of attention for wide
heads, for two GPUs. With --target, kernels are compiled for one GPU alone (of `wide` types for Hopper),
those of matrix products in tiles that compile fast, and none that the runtime has: tests/compiling/gemm.py
compiles them. Run as a program of its own: `TRITON_INTERPRET` must not be set when a kernel is defined.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import os
import re
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from tests.compiling.drawn_inputs import arranged, draw, leaf, value
from tests.compiling.sass import disassembled, mistakes
from tests.harness.importing import module_at, runtime_of
from tritongen.compiling.launches import NoDevice
from tritongen.compiling.targets import TARGETS as GPUS
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

TARGETS = {name: GPUS[name].for_triton() for name in ("sm_80", "sm_90", "sm_100", "gfx942")}
# Bad layouts move full tiles through shared memory or replicate them in every thread: hundreds of stores and 20,000
# lines of PTX, where a reduction is a store or two. The error function in float64, spelled out, is 13,000 for a whole
# tile, and what cross entropy and its gradient have of exponentials is 14,300. Bytes in pages of five positions, read
# element by element, are 15,000 where each thread has 64 rows of a block, as Triton 3.9 distributes them.
SHARED, LONGEST = 100, 15_500
LOOPS = ("LOOP", "PAIRS", "LOOKUP", "SCAN", "TAPS")  # tables of loops along rows
NARROW = ("bfloat16", "float16", "float32", "float64", "int32", "int64", "bool")
OLD = (*NARROW, "float8_e5m2")  # Triton has no other float8 for GPUs before NVIDIA's Ada.
# Bytes of shared memory that a program can have: on sm_80 as little as later GPUs of its kind, with 89, have.
MEMORY = {"sm_80": 101_376, "sm_90": 232_448, "sm_100": 232_448}
WIDE = ("float64", "float32", "int64", "int32", "bool")
# A product without a rounding of its own, a multiply-add that adds anything but zero, and a quotient, of which ptxas
# makes a product, to which anything but zero is added.
FUSED = (
    r"\bmul\.f(32|64)|\bfma\.rn\.f(32|64) [^;]*, (?!0[fd]0+;)\S+;"
    r"|\bdiv\.full\.f32\s+(?P<it>%\w+),(?s:.*)\badd\.f32\s+%\w+, (%\w+, (?P=it);|(?P=it), (?!0f0+;))"
)
# What --target chooses from.
PASSES = (*TARGETS, "wide")


class Launches:
    """Takes launches, and compiles what they would run."""

    def __init__(self) -> None:
        self.driver = NoDevice("sm_90")
        self.compiled: dict[int, Any] = {}  # By identity: the same launch gives the same kernel.
        self.launched: set[str] = set()
        self.multiplied: set[tuple[str, str]] = (
            set()
        )  # kernels, and dtypes that tensor cores of Hopper multiply in them
        self.described: set[str] = set()  # kernels that TMA copies tiles for
        self.fused: set[str] = set()  # kernels with a product that is fused with a sum, or that ptxas may fuse
        self.refused = 0
        self.largest = self.brief = self.disassembles = False
        os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # Nobody debugs what is compiled here.
        driver.set_active(self.driver)
        JITFunction.__getitem__ = lambda kernel, grid: partial(self.compile, kernel)

    def compile(self, kernel: Any, *arguments: Any, **named: Any) -> None:
        self.launched.add(kernel.__name__)
        if self.brief and kernel.fn.__module__.endswith((".gemm_kernels", ".split_kernels")):
            return
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
            if "cp.async.bulk.tensor" in ptx:
                self.described.add(kernel.__name__)
            if re.search(FUSED, ptx):
                self.fused.add(kernel.__name__)
            if self.disassembles and "wgmma" in ptx:
                for mistake in mistakes(disassembled(result.asm["cubin"])):
                    self.refuse(f"{kernel.__name__} for {self.driver.target}: {mistake}")
            length, shared = ptx.count("\n"), ptx.count("st.shared")
            # Tiles of a product go through shared memory, and what the threads of a scan end with.
            exchanges = any(text in kernel.src for text in ("tl.dot(", "block_dot(", "multiply_block(", "reverse="))
            if length > LONGEST or (shared > SHARED and not exchanges):
                found = f"{length} lines of PTX with {shared} stores to shared memory"
                self.refuse(f"{kernel.__name__} for {self.driver.target} is {found}: its layouts are bad")
        except Exception as error:
            self.refuse(f"{kernel.__name__} for {self.driver.target}: {type(error).__name__}: {error}")

    def tile(self, configs: Sequence[triton.Config]) -> triton.Config:
        """The one of a matmul's configurations to compile."""
        if not self.brief:
            return configs[0 if self.largest else -1]
        smallest = min(configs, key=lambda config: math.prod(config.kwargs.values()))
        return triton.Config(smallest.kwargs, num_warps=smallest.num_warps, num_stages=2)

    def refuse(self, text: str) -> None:
        self.refused += 1
        print(text[:2000])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", action="store_true")
    parser.add_argument("--target", choices=PASSES)
    parser.add_argument("--tma", action="store_true", help="what attention reads by TMA alone, and its machine code")
    parser.add_argument("paths", nargs="+", metavar="SPEC FOLDER")
    options = parser.parse_args()
    launches = Launches()
    launches.largest, launches.brief = options.largest, bool(options.target and not options.largest)
    launches.disassembles = options.tma
    paths = options.paths
    specs = [read_spec(path, Path(path).read_text()) for path in paths[::2]]
    # One target after another: what Triton 3.6 rounds to float8 by, it keeps from the first that it compiles for.
    targets = ("sm_80", "sm_90") if launches.largest else TARGETS
    for target in targets:
        if options.target not in (None, target):
            continue
        launches.driver.target = target
        modules = operators(paths[1::2], TARGETS[target].backend)
        for spec, module in zip(specs, modules, strict=True):
            dtypes = [*(one.type.dtypes for one in spec.inputs), *((one.dtype,) for one in spec.outputs)]
            if target == "sm_80" and ("float8_e4m3fn",) in dtypes:
                continue
            if options.tma:
                call_by_tma(spec, module, {param.name: value(param, False) for param in spec.params})
            else:
                call(launches, spec, module, OLD if target == "sm_80" else NARROW)
    if options.target in (None, "wide"):
        modules = operators(paths[1::2], "cuda")
        of_wide_types(launches, specs, modules)
    if options.target is None:
        for module in modules:
            for name in module.kernels(gluon=not launches.largest) - launches.launched:
                launches.refuse(f"{name} was not launched")
    for kernel, dtypes in sorted(launches.multiplied):
        print(f"{kernel} multiplies {dtypes}")
    for kernel in sorted(launches.described):
        print(f"{kernel} reads by TMA")
    for kernel in sorted(launches.fused):
        print(f"{kernel} fuses products")
    print(f"compiled {len(launches.compiled)} of {len(launches.compiled) + launches.refused}")


def of_wide_types(launches: Launches, specs: Sequence[Spec], modules: Sequence[Operator]) -> None:
    """Compile for Hopper what takes wide types and offsets."""
    launches.driver.target = "sm_90"
    for spec, module in zip(specs, modules, strict=True):
        if not launches.largest:
            module.runtime("tensors").index_dtype = lambda *_: tl.int64
            call(launches, spec, module, WIDE, other=True)


class Operator:
    """An operator's package, with its runtime inside or beside it."""

    def __init__(self, folder: Path) -> None:
        self.package = module_at(folder)
        self.function = getattr(self.package, folder.name)
        self.configs = importlib.import_module(f"{self.package.__name__}.configs")

    def runtime(self, name: str) -> ModuleType:
        return runtime_of(self.package, name)

    def kernels(self, gluon: bool) -> set[str]:
        modules = [
            importlib.import_module(f"{self.package.__name__}.kernels"),
            *([self.gluon_kernels] if gluon else []),
        ]
        return {name for module in modules if module for name in vars(module) if name.endswith("_kernel")}

    @cached_property
    def gluon_kernels(self) -> ModuleType | None:
        has_own = (Path(*self.package.__path__) / "gluon_kernels.py").exists()
        return importlib.import_module(f"{self.package.__name__}.gluon_kernels") if has_own else None

    @property
    def gluon_tiles(self) -> tuple[Any, ...]:
        """The tiles of a Gluon kernel that multiplies float8, if there is one."""
        kernel = getattr(self.gluon_kernels, f"{self.function.__name__}_gluon_kernel", None)
        if kernel is None or "GROUP" not in kernel.arg_names:
            return ()
        rules = self.runtime("matmul_heuristics")
        found: tuple[Any, ...] = rules.OF_ALL if "UNROLL" in kernel.arg_names else rules.OF_GROUPS
        return found

    def tables(self, backward: bool) -> dict[str, Any]:
        """The tables of the backward, whose names say more than their kind, or of the forward."""
        found = {name: value for name, value in vars(self.configs).items() if name.isupper()}
        return {name: value for name, value in found.items() if (_kind(name) != name) == backward}


def operators(folders: Sequence[str], backend: str) -> list[Operator]:
    """Imported as by the torch of a make of GPUs, whose instructions device functions use."""
    torch.version.cuda = "12.8" if backend == "cuda" else None
    return [Operator(Path(folder)) for folder in folders]


def _kind(name: str) -> str:
    return name.partition("_")[0]


def put(choices: Sequence[tuple[Any, str, Any]]) -> None:
    for owner, name, choice in choices:
        setattr(owner, name, choice)


def call(launches: Launches, spec: Spec, operator: Operator, dtypes: tuple[str, ...], other: bool = False) -> None:
    """Launch each kernel; with `other` without the optional inputs, and with the params' other values."""
    params = {param.name: value(param, other) for param in spec.params}
    forward, backward = operator.tables(False), operator.tables(True)
    if launches.largest:
        most = MEMORY[launches.driver.target]
        put([(operator.runtime("heuristics"), "shared_memory", lambda _: most)])
    streams = "STREAMED" in forward and dtypes is not WIDE
    if streams and launches.driver.target == "sm_90" and not other and not launches.largest:
        call_by_tma(spec, operator, params)
    kinds, backward_kinds = ({_kind(name) for name in tables} for tables in (forward, backward))
    layouts = ["sliced" if other else "contiguous"]
    if kinds.isdisjoint(LOOPS) or "TILE" in backward_kinds:
        flat = "FLAT" in kinds | backward_kinds
        layouts = ["sliced", "line" if flat else "contiguous"]
    if operator.gluon_tiles and launches.driver.target == "sm_90":
        layouts.append("even")  # TMA writes results whose rows begin at 16 bytes.
    for layout in layouts:
        tensors = [draw(one, spec, dtypes, layout, launches.largest) for one in spec.inputs]
        absent = [other and one.default is not None for one in spec.inputs]
        arguments = [None if out else tensor for out, tensor in zip(absent, tensors, strict=True)]
        for choices in ways(operator, forward, launches, dtypes is not WIDE):
            put(choices)
            results = operator.function(*arguments, **params)
        if spec.grad is None:
            continue
        products = "STRIDED" in kinds | backward_kinds
        usual = launches.driver.target == "sm_90" and not other
        # Gradients of products are many kernels of the same few templates, and take minutes: one spec's are for all.
        if products and spec.name != "linear_gelu" and not usual:
            continue
        # Each of these kernels loads by strides as forwards do, which are compiled for both layouts.
        if products and launches.brief and layout == "sliced":
            continue
        # What a product saves is in kernels of their own.
        first = 0 if "STRIDED" in kinds else -1
        pairs = [ways(operator, tables, launches, dtypes is not WIDE) for tables in (forward, backward)]
        for choices, backward_choices in itertools.zip_longest(pairs[0][first:], pairs[1], fillvalue=[]):
            put(choices)
            given = map(leaf, spec.inputs, itertools.repeat(spec), arguments)
            results = operator.function(*given, **params)
            results = results if isinstance(results, tuple) else (results,)
            smooth = [result for result in results if result.requires_grad]
            put(backward_choices)
            torch.autograd.backward(smooth, [arranged(result.shape, result.dtype, layout) for result in smooth])


def call_by_tma(spec: Spec, operator: Operator, params: dict[str, Any]) -> None:
    """Launch the kernels of attention that TMA copies blocks for: those in Gluon, with and without what a gradient
    needs, and plain ones of gradients.
    """
    streaming_heuristics = operator.runtime("streaming_heuristics")
    plain = streaming_heuristics.use_gluon, streaming_heuristics.use_descriptors
    put([(streaming_heuristics, name, lambda *_: True) for name in ("use_gluon", "use_descriptors")])
    put([(streaming_heuristics, "choose_stream_splits", lambda *_: 1)])
    tensors = [draw(one, spec, ("bfloat16",), "even") for one in spec.inputs]
    operator.function(*tensors, **params)
    for takes in (True, False) if spec.grad is not None else ():
        put([(streaming_heuristics, "use_gluon", lambda *_, takes=takes: takes)])
        results = operator.function(*map(leaf, spec.inputs, itertools.repeat(spec), tensors), **params)
        results = results if isinstance(results, tuple) else (results,)
        smooth = [result for result in results if result.requires_grad]
        torch.autograd.backward(smooth, [torch.empty_like(result) for result in smooth])
    put([(streaming_heuristics, "use_gluon", plain[0]), (streaming_heuristics, "use_descriptors", plain[1])])


def ways(
    operator: Operator, tables: dict[str, Any], launches: Launches, half: bool
) -> list[list[tuple[Any, str, Any]]]:
    """What to put in place of choices of tables and heuristics, so that each kernel runs in one of its tiles."""
    target = launches.driver.target
    heuristics, matmul_heuristics = operator.runtime("heuristics"), operator.runtime("matmul_heuristics")
    streaming_heuristics = operator.runtime("streaming_heuristics")

    def always(result: Any) -> Any:
        return lambda *_: result

    def whole_row(_: int, n_cols: int, contiguous: bool) -> triton.Config:
        return triton.Config({"BLOCK_M": 2, "BLOCK_N": triton.next_power_of_2(n_cols)}, num_warps=4)

    def whole_step(n_cols: int, *_: Any) -> triton.Config:
        return triton.Config({"STAGES": 3, **whole_row(0, n_cols, True).kwargs}, num_warps=4)

    def shared(*_: Any) -> triton.Config:
        return triton.Config({"CTAS_PER_ROW": 8, "BLOCK_M": 1, "BLOCK_N": 64}, num_warps=4, maxnreg=128)

    def strided(table: Any) -> Any:
        return lambda n_rows, n_cols, dtype, *_: launches.tile(table.candidates(dtype))

    def of(kind: str) -> list[Any]:
        return [table for name, table in tables.items() if _kind(name) == kind]

    products: list[list[tuple[Any, str, Any]]] = [[]]
    if "STREAMED" in tables:
        products = [
            [
                (streaming_heuristics, "choose_stream_splits", always(count)),
                (streaming_heuristics, "use_packed_heads", always(packs)),
            ]
            for count, packs in ((1, False), (3, True))
        ]
    if of("STRIDED"):
        # Descriptors copy nothing that is wider than half precision.
        described = [(matmul_heuristics, "use_tma", lambda device, dtype, *_: dtype.itemsize <= 2)]
        described += [(table, "choose", always(launches.tile(table.configs))) for table in of("TMA")]
        described.append((matmul_heuristics, "warps_specialize", always(target == "sm_90")))
        pointed = [(matmul_heuristics, "use_tma", always(False))]
        pointed += [(table, "choose", strided(table)) for table in of("STRIDED")]
        products = [[*pointed, (matmul_heuristics, "choose_split_k", always(count))] for count in (1, 3)]
        if of("TMA") and half and target in ("sm_90", "sm_100"):
            plain = (matmul_heuristics, "gluon_tile", always(None))
            for split in (always((0, 0, 0, 0)), lambda tiles, *_: (1, 2, tiles - 1, 3)):
                products.append([*described, plain, (matmul_heuristics, "choose_stream_k", split)])
        if half and target == "sm_90":
            products += [[*described, (matmul_heuristics, "gluon_tile", always(one))] for one in operator.gluon_tiles]
    fixed = [(table, "choose", whole_row) for table in of("REGISTERS")]
    fixed += [(table, "choose", whole_step) for table in of("WHOLE")]
    fixed.append((heuristics, "choose_groups", always(2)))
    for table in (table for kind in ("FLAT", "TILE", *LOOPS, "SUMS") for table in of(kind)):
        smallest = min(table, key=lambda config: math.prod(config.kwargs.values()))
        fixed.append((table, "choose", always(smallest)))

    def rows(kind: str, fits: bool, splits: int = 1, are_shared: bool = False) -> list[tuple[Any, str, Any]]:
        # A step may reduce rows beside another that has sums over them.
        chosen = [(table, "fits", always(fits)) for one in {kind, "REGISTERS"} for table in of(one)]
        others = [
            (heuristics, "choose_splits", always(splits)),
            (heuristics, "choose_mapped_splits", always(splits)),
            (heuristics, "choose_cooperative_sums", shared if are_shared else always(None)),
            (heuristics, "choose_cooperative_rows", shared if are_shared else always(None)),
        ]
        return [*fixed, *chosen, *others]

    if of("SUMS"):
        long = [rows("WHOLE", False, splits) for splits in ((1, 3) if any(map(of, LOOPS)) else (1,))]
        if target.startswith("sm_"):
            long.append(rows("WHOLE", False, are_shared=True))
        others = [rows("WHOLE", True), *long]
    elif any(map(of, LOOPS)):
        others = [rows("REGISTERS", fits, splits) for fits, splits in ((True, 1), (False, 1), (False, 3))]
        if target.startswith("sm_"):
            others.append(rows("REGISTERS", False, are_shared=True))
    else:
        others = [fixed]
    return [[*one, *other] for one, other in itertools.product(others, products)]


if __name__ == "__main__":
    main()
