"""Power and clock while matrix products run, beside cuBLAS: how far the GPU slows down, and how busy tensor cores are.

    python bench/power.py

Each is called for two seconds, with random numbers and with zeros, which take less power. Power and clock are medians
of what nvidia-smi tells; the share is of what an H100's tensor cores multiply at that clock, 4,096 operations of half
precision on each of its multiprocessors in a cycle.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

SECONDS = 2.0
QUERY = "nvidia-smi --query-gpu=power.draw.instant,clocks.sm --format=csv,noheader,nounits -lms 50"


def watch(name: str, run: Callable[[], Any], operations: float, a_cycle: int) -> None:
    """Print the rate of a product, the watts and megahertz meanwhile, and the share of the tensor cores' rate."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    teller = subprocess.Popen(QUERY.split(), stdout=subprocess.PIPE, text=True)
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        for _ in range(20):
            run()
        calls += 20
        torch.cuda.synchronize()
    rate = operations * calls / (time.perf_counter() - start)
    teller.terminate()
    told = [line.split(",") for line in teller.communicate()[0].splitlines() if line.count(",") == 1]
    steady = told[len(told) // 3 : -1]
    watts, clock = (statistics.median(float(line[place]) for line in steady) for place in (0, 1))
    most = torch.cuda.get_device_properties(0).multi_processor_count * a_cycle * clock * 1e6
    print(f"| {name} | {rate / 1e12:,.0f} | {watts:,.0f} | {clock:,.0f} | {rate / most:.0%} |", flush=True)


def compare(kind: str, draw: Any) -> None:
    """Each product and cuBLAS's, with numbers of a kind."""
    from generated.fp8_matmul_scaled import fp8_matmul_scaled
    from generated.linear_gelu import linear_gelu
    from generated.matmul import matmul

    a, b = (draw(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    watch(f"matmul nt 8192^3, {kind}", lambda: matmul(a, b.T), 2 * 8192**3, 4096)
    watch(f"cuBLAS, {kind}", lambda: torch.matmul(a, b.T), 2 * 8192**3, 4096)
    x, weight, bias = a.view(-1, 4096)[:4096], b.view(16384, 4096), draw(16384, dtype=torch.bfloat16, device="cuda")
    epilogue = torch.ops.aten._addmm_activation
    watch(f"linear_gelu 4096x16384x4096, {kind}", lambda: linear_gelu(x, weight, bias), 2 * 4096**2 * 16384, 4096)
    watch(f"cuBLASLt, {kind}", lambda: epilogue(bias, x, weight.T, use_gelu=True), 2 * 4096**2 * 16384, 4096)
    q, r = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    scale = torch.ones(8192, device="cuda")
    scaled: Any = partial(torch._scaled_mm, scale_a=scale[:, None], scale_b=scale[None], out_dtype=torch.bfloat16)
    watch(f"fp8_matmul_scaled 8192^3, {kind}", lambda: fp8_matmul_scaled(q, r, scale, scale), 2 * 8192**3, 8192)
    watch(f"torch._scaled_mm, {kind}", lambda: scaled(q, r.T), 2 * 8192**3, 8192)


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print("| product | TFLOP/s | W | MHz | share |\n|---|--:|--:|--:|--:|")
    compare("random", torch.randn)
    compare("zeros", torch.zeros)


if __name__ == "__main__":
    main()
