"""Rates of float8 matmuls on Hopper: the operators of generated/, cuBLAS, and Gluon kernels that no operator has yet.

    python bench/float8.py [--only NAME] [--rounds COUNT]

A Markdown table in TFLOP/s, and the greatest error of each size relative to the greatest result. Random data. Scales
are by row of both matrices, or by block: 1 x 128 of the left and 128 x 128 of the right one. Bursts of calls as CUDA
graphs alternate in an order that is drawn for each round, and the medians of the rounds are compared.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import float8_kernels
import runner
import torch
import triton
import triton.experimental.gluon.language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

F: Any = torch.nn.functional
SIZES = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 7168, 2048))  # of rows, columns and terms
Call = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Tile:
    """A Gluon kernel: warp groups with 64 rows each, blocks of 128 columns, stages of 128 terms, rows of tiles that are
    one group, and products between two waits for all: where they are several, two are in flight.
    """

    groups: int
    cols: int
    stages: int
    swizzle: int = 8
    unroll: int = 1

    def launch(self, a: torch.Tensor, b: torch.Tensor, scales: tuple[torch.Tensor, ...], y: torch.Tensor) -> Any:
        """Arguments and options of a launch."""
        (n_rows, n_inner), n_cols = a.shape, len(b)
        assert n_inner % (128 * self.unroll) == 0
        assert n_cols % (128 * self.cols) == 0, "scales of columns are read without a mask"
        # With a shorter tile the first group could be two tiles ahead of one that waits for it.
        assert self.cols == 1 or n_inner >= 128 * self.stages
        args = [described(a, 64), described(b, 128), described(y, 64), n_rows, n_cols, n_inner]
        for scale in scales:
            args += [scale, *(*scale.stride(), 0)[:2]]
        options = {"GROUPS": self.groups, "COLS": self.cols, "STAGES": self.stages, "SWIZZLE": self.swizzle}
        options |= {"UNROLL": self.unroll, "BY_BLOCK": scales[0].ndim == 2, "num_warps": 4}
        # Registers of a thread as the launch begins; then the groups that multiply have 160 or 240.
        return args, {**options, "maxnreg": 128 if self.groups == 3 else 168}

    def call(self, a: torch.Tensor, b: torch.Tensor, *scales: torch.Tensor) -> Call:
        y = torch.empty(len(a), len(b), device=a.device, dtype=torch.bfloat16)
        tiles = triton.cdiv(len(a), 64 * self.groups) * (len(b) // (128 * self.cols))
        programs = min(tiles, torch.cuda.get_device_properties(a.device).multi_processor_count)
        args, options = self.launch(a, b, scales, y)

        def run() -> torch.Tensor:
            float8_kernels.kernel[programs,](*args, **options)
            return y

        return run


PAIRS = Tile(groups=2, cols=1, stages=6, swizzle=16, unroll=4)
THREE, WIDE = Tile(groups=3, cols=1, stages=4), Tile(groups=2, cols=2, stages=4)
# Those that were fastest at one of the sizes.
TILES = {
    "rows": {"Gluon, 128 x 128": PAIRS, "Gluon, 192 x 128": THREE},
    "blocks": {"Gluon, 192 x 128": THREE, "Gluon, 128 x 256": WIDE},
}


def described(matrix: torch.Tensor, rows: int) -> TensorDescriptor:
    """A descriptor of a contiguous matrix, in blocks of so many rows of 128."""
    dtype = gl.bfloat16 if matrix.dtype == torch.bfloat16 else gl.float8e4nv
    layout = gl.NVMMASharedLayout.get_default_for([rows, 128], dtype)
    return TensorDescriptor(matrix, [*matrix.shape], [*matrix.stride()], [rows, 128], layout)


def draw(m: int, n: int, k: int) -> Iterator[tuple[str, Mapping[str, Call], torch.Tensor]]:
    """Each kind of scales, with calls that take them, and their result in float32."""
    a, b = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
    product = a.float() @ b.float().T
    yield "none", {"cuBLAS, bfloat16": partial(torch.matmul, a.bfloat16(), b.bfloat16().T)}, product

    of_a, of_b = torch.rand(m, device="cuda"), torch.rand(n, device="cuda")
    torchs = partial(torch._scaled_mm, a, b.T, of_a[:, None], of_b[None, :], out_dtype=torch.bfloat16)
    calls: dict[str, Call] = {"generated": partial(runner.operator("fp8_matmul_scaled"), a, b, of_a, of_b)}
    calls |= {name: tile.call(a, b, of_a, of_b) for name, tile in TILES["rows"].items()}
    calls |= {"torch._scaled_mm": torchs, "torch._scaled_mm, fast sums": partial(torchs, use_fast_accum=True)}
    yield "rows", calls, product * of_a[:, None] * of_b

    of_a, of_b = (torch.rand(rows, k // 128, device="cuda") for rows in (m, n // 128))
    across = of_a.T.contiguous().T  # as cuBLAS wants them
    given = across, F.ScalingType.BlockWise1x128, of_b.T, F.ScalingType.BlockWise128x128
    calls = {"generated": partial(runner.operator("fp8_matmul_blocks"), a, b, of_a, of_b)}
    calls |= {name: tile.call(a, b, of_a, of_b) for name, tile in TILES["blocks"].items()}
    calls |= {"F.scaled_mm": partial(F.scaled_mm, a, b.T, *given, output_dtype=torch.bfloat16)}
    x, w = of_a.repeat_interleave(128, 1), of_b.repeat_interleave(128, 0).repeat_interleave(128, 1)
    yield "blocks", calls, (a.float() * x) @ (b.float() * w).T


def repeat(call: Call, times: int) -> None:
    for _ in range(times):
        call()


def milliseconds(replay: Callable[[], Any]) -> float:
    """The second of two bursts: the clock has settled by then."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    replay()
    first.record()
    replay()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last))


def measure(size: tuple[int, int, int], only: str, rounds: int) -> dict[tuple[str, str], tuple[float, float]]:
    """TFLOP/s and the error of each kind of scales and each name."""
    operations = 2 * size[0] * size[1] * size[2]
    times = min(64, max(4, int(4e12 / operations)))  # A burst takes about 4 ms.
    bursts, errors = {}, {}
    for kind, calls, want in draw(*size):
        for name, call in calls.items():
            if only in f"{kind} {name}":
                error = float((call().float() - want).abs().max() / want.abs().max())
                assert error < 2e-2, f"{kind}, {name}: off by {error}"
                bursts[kind, name], errors[kind, name] = runner.graph(partial(repeat, call, times)), error
    taken: dict[tuple[str, str], list[float]] = {one: [] for one in bursts}
    for _ in range(rounds):
        for one in random.sample(sorted(bursts), len(bursts)):
            taken[one].append(milliseconds(bursts[one]))
    return {one: (operations * times / statistics.median(taken[one]) * 1e-9, errors[one]) for one in bursts}


def main() -> None:
    parser = runner.parser(__doc__, "kinds of scales and kernels")
    parser.add_argument("--rounds", type=int, default=20)
    options = runner.given(parser)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}\n")
    found = [measure(size, options.only, options.rounds) for size in SIZES]
    print(f"| scales by | | {' | '.join('x'.join(map(str, size)) for size in SIZES)} | errors |")
    print(f"|---|---|{'--:|' * len(SIZES)}---|")
    for kind, name in found[0]:
        rates, errors = zip(*(one[kind, name] for one in found), strict=True)
        cells = *(f"{rate:,.0f}" for rate in rates), ", ".join(f"{error:.1e}" for error in errors)
        print(f"| {kind} | {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
