"""Compiles every kernel of generated folders for GPUs that are not there.

    python tests/compiling.py SPEC FOLDER [SPEC FOLDER ...]

Prints a line for each kernel, configuration and target that Triton refuses, and how many it took.
Run as a program of its own: `TRITON_INTERPRET` must not be set when a kernel is defined.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tritongen.compile import program_of
from tritongen.families.rows import plan_rows
from tritongen.ir import Op
from tritongen.read import read_spec
from tritongen.structure import Program

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
POINTERS = {
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float32": "*fp32",
    "float64": "*fp64",
    "uint8": "*u8",
    "int8": "*i8",
    "int16": "*i16",
    "int32": "*i32",
    "int64": "*i64",
    "bool": "*i1",
}
PREFERRED = ("bfloat16", "float16", "float32", "float64", "int32", "int64", "bool")


def main() -> None:
    sources, refused = 0, 0
    pairs = list(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    for spec, folder in pairs:
        program = program_of(read_spec(spec, Path(spec).read_text()))
        sys.path.insert(0, str(Path(folder).parent))
        module = importlib.import_module(f"{Path(folder).name}.kernel")
        sys.path.pop(0)
        for name, source, warps, targets in kernels(program, module):
            for target in targets:
                sources += 1
                try:
                    triton.compile(source(), target=TARGETS[target], options={"num_warps": warps})
                except Exception as error:
                    refused += 1
                    print(f"{name} for {target}: {type(error).__name__}: {error}"[:2000])
    print(f"compiled {sources - refused} of {sources}")


def kernels(program: Program, module: ModuleType) -> Iterator[tuple[str, Any, int, tuple[str, ...]]]:
    """Name, source, warps and targets of each kernel of a module, in its smallest configuration.

    Offsets are 32 bits wide for all targets and 64 for one; both spell the same operations.
    """
    configs = module.configs
    tiles: dict[str, list[tuple[dict[str, int], int]]] = {"tile": [], "loop": [], "flat": [], "registers": []}
    for kind in ("FLAT", "TILE", "LOOP"):
        found = [(config.kwargs, config.num_warps) for config in getattr(configs, kind, ())]
        tiles[kind.lower()] = sorted(found, key=lambda config: math.prod(config[0].values()))[:1]
    for elements, warps in getattr(configs, "REGISTERS", ())[:1]:
        tiles["registers"] = [({"BLOCK_M": 2, "BLOCK_N": elements // 8}, warps)]
    name = program.op.name
    kinds = {
        f"_{name}_kernel": "registers" if program.over else "flat",
        f"_{name}_strided_kernel": "tile",
        f"_{name}_loop_kernel": "loop",
        f"_{name}_partial_kernel": "loop",
        f"_{name}_combine_kernel": "loop",
    }
    for kernel, kind in kinds.items():
        function = getattr(module, kernel, None)
        for tile, warps in tiles[kind] if function is not None else ():
            for index, targets in ((tl.int32, tuple(TARGETS)), (tl.int64, ("sm_90",))):
                source = _source(program, function, {**tile, "INDEX": index})
                yield f"{kernel} {tile} {index}", source, warps, targets


def _source(program: Program, function: Any, constants: dict[str, Any]) -> Any:
    op = program.op
    signature: dict[str, str] = {}
    constants = {**constants, **_words(op)}
    states = dict(plan_rows(program).states) if program.over else {}
    compute = _compute(op)
    for argument in function.params:
        name = argument.name
        if name == "COMPUTE":
            constants[name] = getattr(tl, compute)
        if argument.is_constexpr:
            signature[name] = "constexpr"
        elif name.endswith("_part_ptr"):
            state = states[name.removesuffix("_part_ptr")]
            signature[name] = POINTERS[_state(state, compute)]
        elif name.endswith("_ptr"):
            signature[name] = POINTERS[_dtype(op, name.removesuffix("_ptr"))]
        elif argument.annotation_type:
            signature[name] = argument.annotation_type
        else:
            signature[name] = "fp32" if any(p.name == name and p.kind == "float" for p in op.params) else "i32"
    constexprs = {(function.arg_names.index(n),): v for n, v in constants.items() if n in signature}
    divisible: list[list[object]] = [["tt.divisibility", 16]]
    attrs = {(i,): divisible for i, n in enumerate(function.arg_names) if n.endswith("_ptr")}
    return lambda: ASTSource(fn=function, signature=signature, constexprs=constexprs, attrs=attrs)


def _words(op: Op) -> dict[str, Any]:
    """Flags and words, which a kernel is compiled for."""
    return {p.name: p.choices[0] if p.choices else True for p in op.params if p.kind in ("bool", "enum")}


def _dtype(op: Op, name: str) -> str:
    for tensor in op.inputs:
        if tensor.name == name:
            return next(dtype for dtype in (*PREFERRED, *tensor.type.dtypes) if dtype in tensor.type.dtypes)
    of = next(result.dtype.of for result in op.results if result.output.name == name)
    return of[0] if of and of[0] in POINTERS else _dtype(op, of[0]) if of else "float32"


def _compute(op: Op) -> str:
    dtypes = {_dtype(op, tensor.name) for tensor in op.inputs}
    return "float32" if dtypes & {"bfloat16", "float16", "float32"} else "int64"


def _state(dtype: str, compute: str) -> str:
    return {"COMPUTE": compute, "INDEX": "int64"}.get(dtype, dtype.removeprefix("tl."))


if __name__ == "__main__":
    main()
