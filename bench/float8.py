"""Rates of float8 matmuls on Hopper: the operators of generated/, their Gluon kernels and plain ones, and cuBLAS.

    python bench/float8.py [--only NAME] [--rounds COUNT] [--sizes ROWSxCOLUMNSxTERMS ...]

A Markdown table in TFLOP/s, and the greatest error of each size relative to the greatest result. Random data. Scales
are by row of both matrices, or by block: 1 x 128 of the left and 128 x 128 of the right one. Bursts of calls as CUDA
graphs alternate in an order that is drawn for each round, and the medians of the rounds are compared. Behind all of
them results have to be what they were.
"""

from __future__ import annotations

import importlib
import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import runner
import torch
import triton

F: Any = torch.nn.functional
Size = tuple[int, ...]  # rows, columns and terms
SIZES = "4096x4096x4096", "8192x8192x8192", "4096x7168x2048"
Call = Callable[[], torch.Tensor]


def generated(name: str, *given: torch.Tensor) -> dict[str, Call]:
    """An operator as it chooses its kernel, and in each that it has: calls that are captured once."""
    runtime = "generated._runtime"
    rules: Any = importlib.import_module(f"{runtime}.matmul_heuristics")
    launch: Any = importlib.import_module(f"{runtime}.launch")
    operator, choose = runner.operator(name), rules.gluon_tile
    tiles = rules.OF_GROUPS if given[-1].ndim == 2 else rules.OF_ALL
    kernels = {f"generated, {one.block_m} x {one.block_n}": one for one in tiles} | {"generated, plain": None}

    def forced(tile: Any) -> torch.Tensor:
        launch.LAUNCHES.clear()
        rules.gluon_tile = lambda *_: tile
        result: torch.Tensor = operator(*given)
        rules.gluon_tile = choose
        launch.LAUNCHES.clear()
        return result

    calls: dict[str, Call] = {"generated": partial(operator, *given)}
    return calls | {name: partial(forced, tile) for name, tile in kernels.items()}


def draw(m: int, n: int, k: int) -> Iterator[tuple[str, Mapping[str, Call], torch.Tensor]]:
    """Each kind of scales, with calls that take them, and their result in float32."""
    a, b = (torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn) for rows in (m, n))
    product = a.float() @ b.float().T
    yield "none", {"cuBLAS, bfloat16": partial(torch.matmul, a.bfloat16(), b.bfloat16().T)}, product

    of_a, of_b = torch.rand(m, device="cuda"), torch.rand(n, device="cuda")
    torchs = partial(torch._scaled_mm, a, b.T, of_a[:, None], of_b[None, :], out_dtype=torch.bfloat16)
    calls = generated("fp8_matmul_scaled", a, b, of_a, of_b)
    calls |= {"torch._scaled_mm": torchs, "torch._scaled_mm, fast sums": partial(torchs, use_fast_accum=True)}
    yield "rows", calls, product * of_a[:, None] * of_b

    of_a, of_b = (torch.rand(rows, k // 128, device="cuda") for rows in (m, n // 128))
    across = of_a.T.contiguous().T  # as cuBLAS wants them
    given = across, F.ScalingType.BlockWise1x128, of_b.T, F.ScalingType.BlockWise128x128
    calls = generated("fp8_matmul_blocks", a, b, of_a, of_b)
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


def measure(size: Size, only: str, rounds: int) -> dict[tuple[str, str], tuple[float, float]]:
    """TFLOP/s and the error of each kind of scales and each name."""
    operations = 2 * size[0] * size[1] * size[2]
    times = min(64, max(4, int(4e12 / operations)))  # A burst takes about 4 ms.
    bursts, errors, before = {}, {}, {}
    for kind, calls, want in draw(*size):
        for name, call in calls.items():
            if only in f"{kind} {name}":
                result = call()
                error = float((result.float() - want).abs().max() / want.abs().max())
                assert error < 2e-2, f"{kind}, {name}: off by {error}"
                bursts[kind, name], errors[kind, name] = runner.graph(partial(repeat, call, times)), error
                before[kind, name] = call, result
    taken: dict[tuple[str, str], list[float]] = {one: [] for one in bursts}
    for _ in range(rounds):
        for one in random.sample(sorted(bursts), len(bursts)):
            taken[one].append(milliseconds(bursts[one]))
    for one, (call, result) in before.items():
        assert torch.equal(call(), result), f"{one} gives another result than before"
    return {one: (operations * times / statistics.median(taken[one]) * 1e-9, errors[one]) for one in bursts}


def main() -> None:
    parser = runner.parser(__doc__, "kinds of scales and kernels")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    options = runner.given(parser)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}\n")
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes]
    found = [measure(size, options.only, options.rounds) for size in sizes]
    print(f"| scales by | | {' | '.join(options.sizes)} | errors |")
    print(f"|---|---|{'--:|' * len(sizes)}---|")
    for kind, name in found[0]:
        rates, errors = zip(*(one[kind, name] for one in found), strict=True)
        cells = *(f"{rate:,.0f}" for rate in rates), ", ".join(f"{error:.1e}" for error in errors)
        print(f"| {kind} | {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
