"""Compiles all kernels of the runtime's gemm for a GPU that is not there: `python -m tests.compiling.gemm TARGET`.

Prints what tests/compiling/operators.py prints: what Triton refuses, what tensor cores of Hopper multiply, and how many
kernels it took. Each configuration of each table is compiled.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import torch
import triton.language as tl

from tests.compiling.operators import TARGETS, Launches
from tests.harness.importing import runtime_module

MULTIPLY = {"tf32": re.compile(r"\.tf32"), "bf16": re.compile(r"mma\S*\.bf16|tcgen05\.mma")}
COPIES = re.compile(r"cp\.async\.\w+\.shared\.global \[[^]]*\], \[[^]]*\], (\w+)")


def main(target: str) -> None:
    launches = Launches()
    launches.driver.target = target
    split = runtime_module("split_gemm")
    gemm = split.gemm
    has_tma = target in ("sm_90", "sm_100")
    # Tensor cores multiply tf32 from the second on, and bfloat16 from the third.
    for precision, kind in (("ieee", "tf32"), ("tf32", "tf32"), ("bf16x6", "bf16"), ("bf16x3", "bf16")):
        for dtype in (torch.float16, torch.float32, torch.float64):
            if precision == "ieee" or dtype == torch.float32:
                for ndim in (2, 3):
                    call(gemm, split, dtype, ndim, precision, has_tma)
        found = any(MULTIPLY[kind].search(one.asm.get("ptx", "")) for one in launches.compiled.values())
        print(f"{precision} multiplies {'' if found else 'no '}{kind}")
    known = set(launches.compiled)
    gemm.matmul_heuristics.use_tma = lambda *_: False
    gemm.gemm(*(torch.empty(2, 192, 128, dtype=torch.bfloat16) for _ in range(2)), sums_batch=True)
    made = [launches.compiled[key].asm.get("ptx", "") for key in set(launches.compiled) - known]
    print("a batch is summed by copies of", *sorted(set(COPIES.findall("".join(made)))), "bytes")
    index_dtype, gemm.contraction.tensors.index_dtype = gemm.contraction.tensors.index_dtype, lambda *_: tl.int64
    call(gemm, split, torch.float16, 3, "ieee", has_tma)
    gemm.contraction.tensors.index_dtype = index_dtype
    # Blocks of each configuration have to fit into shared memory.
    gemm.matmul_heuristics.choose_split_k = lambda *_: 1
    for config in split.TMA.configs if has_tma else ():
        split.splits = lambda *_: True
        split.TMA.choose = lambda *_, config=config: config
        split.multiply(torch.empty(256, 128), torch.empty(256, 128), "bf16x6")
    for config in gemm.SPLIT.single:
        gemm.SPLIT.choose = lambda *_, config=config: config
        for precision in ("tf32x3", "bf16x3", "bf16x6") if target.startswith("sm_") else ("bf16x3", "bf16x6"):
            gemm.gemm(torch.empty(256, 128), torch.empty(256, 128), precision)
    for way, dtype, table in (
        ("TMA", torch.float16, gemm.TMA.configs if has_tma else ()),
        ("STRIDED", torch.float16, gemm.STRIDED.half),
        ("STRIDED", torch.float32, gemm.STRIDED.single),
        ("STRIDED", torch.float64, gemm.STRIDED.double),
    ):
        gemm.matmul_heuristics.use_tma = lambda *_, way=way: way == "TMA"
        for config in table:
            getattr(gemm, way).choose = lambda *_, config=config: config
            gemm.gemm(torch.empty(256, 128, dtype=dtype), torch.empty(256, 128, dtype=dtype))
    for name in {name for name in vars(gemm.kernels) if name.startswith("gemm_")} - launches.launched:
        if has_tma or name not in ("gemm_tma_kernel", "gemm_stream_k_kernel"):
            launches.refuse(f"{name} was not launched")
    for kernel, dtypes in sorted(launches.multiplied):
        print(f"{kernel} multiplies {dtypes}")
    print(f"compiled {len(launches.compiled)} of {len(launches.compiled) + launches.refused}")


def is_half(_: torch.device, dtype: torch.dtype, *others: object) -> bool:
    """Whether TMA copies tiles of a dtype: those of wider ones do not fit into shared memory."""
    return dtype.itemsize <= 2


def call(gemm: Any, split: Any, dtype: torch.dtype, ndim: int, precision: str, has_tma: bool) -> None:
    """Launch each of the kernels."""
    left, right = (torch.empty([2, rows, 128][-ndim:], dtype=dtype) for rows in (192, 256))
    heuristics = gemm.matmul_heuristics
    for n_splits in (1, 3):
        heuristics.use_tma, heuristics.choose_split_k = (lambda *_: False), (lambda *_, n=n_splits: n)
        gemm.gemm(left, right[..., ::2, :], precision)
    if has_tma and dtype.itemsize <= 2:
        heuristics.use_tma = is_half
        heuristics.choose_stream_k = lambda tiles, *_: (1, 2, tiles - 2, 3)
        gemm.gemm(left, right, precision)
        gemm.gemm(*(matrix.mT.contiguous().mT for matrix in (left, right)), precision)
    if ndim == 3 and precision == "ieee":
        gemm.gemm(left, right, precision, sums_batch=True)
    if has_tma and precision in ("bf16x3", "bf16x6"):
        heuristics.use_tma = is_half
        for one, other in ((left, right), (left.mT.contiguous().mT, right), (left, right[..., ::2, :])):
            split.multiply(one, other, precision)


if __name__ == "__main__":
    assert sys.argv[1] in TARGETS
    main(*sys.argv[1:])
