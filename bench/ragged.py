"""One ragged case for each kind of kernel that templates/ gives, to be run under compute-sanitizer:

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python bench/ragged.py

No size is a multiple of what a program takes, so that every mask is needed. Each case runs twice, the second time with
rows that do not follow one another. Without torch's cache, each tensor is an
allocation of its own, and what lies beside it is none. Ends with the kernels of these operators that no case launched.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import runner
import torch
from runner import operator
from triton.runtime.jit import JITFunction

Shapes = tuple[tuple[int, ...], ...]

# By operator, the shapes of its inputs: for each a call, and a backward where the operator has gradients.
CASES: dict[str, tuple[Shapes, ...]] = {
    "gelu": (((1001,),), ((37, 131),)),
    "add_bias": (((37, 131), (131,)), ((3, 70001), (70001,)), ((270001, 5), (5,))),
    "tril": (((3, 67, 131),),),
    "softmax": (((5, 1001),), ((3, 70001),)),
    "layer_norm": (
        ((37, 1001), (1001,), (1001,)),
        ((37, 9001), (9001,), (9001,)),
        ((37, 70001), (70001,), (70001,)),
        ((3, 270001), (270001,), (270001,)),
    ),
    "rms_norm": (((37, 1001), (1001,)), ((37, 20001), (20001,)), ((5, 270001), (270001,))),
    "cross_entropy": (((37, 1001), (37,)), ((37, 70001), (37,)), ((3, 270001), (3,)), ((301, 40001), (301,))),
    "argmax": (((5, 1001),), ((5, 70001),), ((3, 270001),), ((301, 40001),)),
    "sum": (((5, 1001),), ((3, 270001),)),
    "matvec": (((37, 1001), (1001,)), ((3, 270001), (270001,))),
    "outer": (((1001,), (131,)), ((5,), (270001,)), ((270001,), (5,))),
    "matmul": (
        ((129, 67), (67, 131)),
        ((4100, 1032), (1032, 4104)),
        ((4095, 1029), (1029, 4097)),
        ((1028, 16392), (16392, 1032)),
        ((17, 4099), (4099, 1031)),
        ((1, 4099), (4099, 1031)),
        ((17, 131), (131, 8209)),
    ),
    "batched_matmul": (
        ((3, 129, 67), (3, 67, 131)),
        ((3, 17, 8209), (3, 8209, 67)),
        ((3, 17, 67), (3, 67, 8209)),
        ((4, 2052, 1032), (4, 1032, 2056)),
        ((4, 516, 16392), (4, 16392, 520)),
        ((4, 16392, 516), (4, 516, 520)),
    ),
    "linear_gelu": (
        ((129, 67), (131, 67), (131,)),
        ((4100, 1032), (4104, 1032), (4104,)),
        ((1028, 16392), (1032, 16392), (1032,)),
        ((17, 4099), (1031, 4099), (1031,)),
        ((17, 131), (8209, 131), (8209,)),
    ),
    "linear_silu_mul": (
        ((129, 67), (131, 67), (131, 67)),
        ((4100, 1032), (4104, 1032), (4104, 1032)),
        ((1028, 16392), (1032, 16392), (1032, 16392)),
        ((17, 8209), (131, 8209), (131, 8209)),
        ((17, 131), (8209, 131), (8209, 131)),
        ((8209, 17), (131, 17), (131, 17)),
    ),
    # By TMA in Gluon where rows follow one another, with few rows past many, and of odd widths.
    "attention": (
        ((2, 3, 300, 128), (2, 3, 431, 128), (2, 3, 431, 128)),
        ((2, 130, 64), (2, 77, 64), (2, 77, 64)),
        ((3, 5, 64), (3, 4099, 64), (3, 4099, 64)),
        ((2, 333, 67), (2, 333, 67), (2, 333, 35)),
    ),
    "router": (
        ((129, 67), (64, 67)),
        ((65540, 4104), (64, 4104)),
        ((17, 8209), (64, 8209)),
        ((8209, 17), (64, 17)),
    ),
    "tril_matmul": (
        ((3, 129, 131), (3, 131, 67)),
        ((3, 17, 8209), (3, 8209, 67)),
        ((3, 17, 67), (3, 67, 8209)),
        ((4, 2052, 1032), (4, 1032, 2056)),
        ((4, 16392, 516), (4, 516, 520)),
    ),
    "int8_matmul_dequant": (
        ((129, 67), (131, 67), (129,), (131,)),
        ((17, 8209), (131, 8209), (17,), (131,)),
        ((4100, 1040), (4112, 1040), (4100,), (4112,)),
        ((1028, 16400), (1040, 16400), (1028,), (1040,)),
    ),
    "fp8_matmul_scaled": (
        ((1029, 67), (1031, 67), (1029,), (1031,)),
        ((129, 1040), (131, 1040), (129,), (131,)),
        ((4100, 1040), (4112, 1040), (4100,), (4112,)),
    ),
    "fp8_matmul_blocks": (
        ((129, 128), (256, 128), (129, 1), (2, 1)),
        ((17, 8192), (256, 8192), (17, 64), (2, 64)),
        ((4100, 1152), (4224, 1152), (4100, 9), (33, 9)),
        ((1028, 16512), (1152, 16512), (1028, 129), (9, 129)),
    ),
}
# By Gluon kernels where TMA reads rows of a bias, and by plain ones where it does not; documents have bounds of tiles.
FORMS: dict[str, tuple[Shapes, ...]] = {
    "attention_bias": (
        ((2, 3, 304, 128), (2, 3, 432, 128), (2, 3, 432, 128), (3, 304, 432)),
        ((2, 3, 130, 128), (2, 3, 431, 128), (2, 3, 431, 128), (3, 130, 431)),
    ),
    "attention_documents": (
        ((2, 3, 300, 128), (2, 3, 431, 128), (2, 3, 431, 128), (2, 300), (2, 431)),
        ((2, 3, 333, 67), (2, 3, 333, 67), (2, 3, 333, 35), (2, 333), (2, 333)),
    ),
}
PARAMS = {op: {"scale": 0.125} for op in ("attention", *FORMS)}
# What only float64 takes: rows beside sums that do not fit in registers and are not shared by programs.
FLOAT64: dict[str, tuple[Shapes, ...]] = {
    "layer_norm": (((37, 20001), (20001,), (20001,)), ((3, 270001), (270001,), (270001,))),
    "rms_norm": (((37, 20001), (20001,)), ((3, 270001), (270001,))),
}


def inputs(op: str, shapes: Shapes, dtype: torch.dtype, apart: bool) -> list[torch.Tensor]:
    def draw(index: int, shape: tuple[int, ...]) -> torch.Tensor:
        if op == "cross_entropy" and index == 1:
            return torch.randint(shapes[0][1], shape, device="cuda")
        if op == "attention_documents" and index > 2:
            return (torch.arange(shape[1], dtype=torch.int32, device="cuda") // 90).expand(shape)
        if op.startswith("fp8"):
            values = torch.randn(shape, device="cuda")
            return values.to(torch.float8_e4m3fn) if index < 2 else values
        if op.startswith("int8"):
            values = torch.randint(-128, 128, shape, device="cuda")
            return values.to(torch.int8) if index < 2 else values.float()
        values = torch.randn((*shape[:-1], shape[-1] + 3 * apart), dtype=dtype, device="cuda")
        return values[..., 3 * apart :].requires_grad_()

    return [draw(index, shape) for index, shape in enumerate(shapes)]


def main() -> None:
    options = runner.given(runner.parser(__doc__, "operators"), "examples/specs")
    launched: set[str] = set()
    run = JITFunction.run

    def noting(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        launched.add(kernel.__name__)
        return run(kernel, *args, **kwargs)

    JITFunction.run = noting
    there: set[str] = set()
    cases = [
        (op, shapes, dtype, apart)
        for dtype, table in ((torch.bfloat16, CASES | FORMS), (torch.float64, FLOAT64))
        for op, several in table.items()
        for shapes in several
        for apart in (False, True)
        if options.only in op
    ]
    for op, shapes, dtype, apart in cases:
        package = "ops" if op in FORMS else "generated"
        for module in pkgutil.iter_modules(importlib.import_module(f"{package}.{op}").__path__):
            if module.name in ("kernels", "gluon_kernels"):
                kernels = importlib.import_module(f"{package}.{op}.{module.name}")
                there |= {name for name in vars(kernels) if name.endswith("_kernel")}
        arguments = inputs(op, shapes, dtype, apart)
        results = operator(op, package)(*arguments, **PARAMS.get(op, {}))
        results = [result for result in torch.utils._pytree.tree_leaves(results) if result.requires_grad]
        torch.autograd.backward(results, [torch.randn_like(result) for result in results])
        torch.cuda.synchronize()
        print(op, *("x".join(map(str, shape)) for shape in shapes), "with rows apart" if apart else "", flush=True)
    print(f"{len(there & launched)} of {len(there)} kernels launched; not: {', '.join(sorted(there - launched))}")


if __name__ == "__main__":
    main()
