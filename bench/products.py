"""Rates of the matrix products of generated/, beside torch's: TFLOP/s, and ours as a ratio to the best of torch's.

    tritongen build bench/plans/specs; python bench/products.py [--only NAME] [--markdown FILE]

Random data. Matmuls of float32 are of bench/plans, one for each precision; the others of the gallery. Each figure is
the median of `triton.testing.do_bench`; ours and torch's alternate in an order that is drawn for each round, since a
GPU slows down as it warms up, and the medians of the rounds are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import runner
import torch
import triton
from runner import operator, rates

F: Any = torch.nn.functional


@dataclass(frozen=True)
class Case:
    """A call of an operator, how many operations it takes, and what of torch's does the same."""

    operator: str
    what: str
    operations: float
    inputs: tuple[torch.Tensor, ...]
    peers: Mapping[str, Callable[[], Any]]

    @property
    def name(self) -> str:
        return f"{self.operator} {self.what}"


def draw(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, device="cuda")


def matrices(m: int, n: int, k: int, layout: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """[M, K] and [K, N]; a "t" in the layout is a matrix that lies transposed in memory."""
    a = draw(k, m, dtype=dtype).T if layout[0] == "t" else draw(m, k, dtype=dtype)
    b = draw(n, k, dtype=dtype).T if layout[1] == "t" else draw(k, n, dtype=dtype)
    return a, b


def product(m: int, n: int, k: int, layout: str, dtype: torch.dtype = torch.bfloat16, name: str = "matmul") -> Case:
    a, b = matrices(m, n, k, layout, dtype)
    what = f"{layout} {m}x{n}x{k} {str(dtype)[6:]}"
    return Case(name, what, 2 * m * n * k, (a, b), {"cuBLAS": partial(torch.matmul, a, b)})


def products() -> Iterator[Case]:
    for dtype in (torch.bfloat16, torch.float16):
        for m, n, k in ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 28672, 4096)):
            for layout in ("nn", "nt", "tn", "tt"):
                yield product(m, n, k, layout, dtype)
    shapes = ((4095, 4097, 4093), (16, 4096, 4096), (1, 4096, 4096), (64, 14336, 4096))
    for m, n, k in shapes:
        for layout in ("nn", "nt"):
            yield product(m, n, k, layout)
    # Rows that are not a multiple of 128 bytes.
    for m, n, k, layout in ((5000, 5000, 5000, "nn"), (4096, 4104, 4104, "nt")):
        yield product(m, n, k, layout)
    # Few tiles and a long sum, as of the gradient by a weight; short last rounds.
    shapes = ((768, 768, 65536), (1024, 1024, 16384), (768, 2304, 32768), (1536, 1536, 65536), (768, 3072, 32768))
    shapes += ((1536, 1536, 8192), (2048, 2304, 16384), (2560, 2560, 32768), (4096, 11008, 16384))
    for m, n, k in shapes:
        yield product(m, n, k, "tn")
    for m, n, k in ((2304, 4608, 4096), (2560, 5120, 4096), (8192, 8192, 16384)):
        yield product(m, n, k, "nn")


def single() -> Iterator[Case]:
    cases = [(size, size, size, layout) for size in (1024, 2048, 3072, 4096, 8192) for layout in ("nn", "nt")]
    cases += [(4096, 4096, 4096, "tn"), (4095, 4097, 4093, "nn"), (256, 4096, 4096, "nt")]
    for m, n, k, layout in cases:
        for precision in ("ieee", "bf16x6", "bf16x3", "tf32x3"):
            yield product(m, n, k, layout, torch.float32, f"matmul_{precision}")


def batches() -> Iterator[Case]:
    for batch, m, n, k in ((64, 1024, 1024, 128), (32, 2048, 2048, 2048)):
        a, b = draw(batch, m, k), draw(batch, k, n)
        peers = {"cuBLAS": partial(torch.matmul, a, b)}
        yield Case("batched_matmul", f"{batch}x{m}x{n}x{k} bfloat16", 2 * batch * m * n * k, (a, b), peers)


def layers() -> Iterator[Case]:
    m, n, k = 4096, 16384, 4096
    x, weight, bias = draw(m, k), draw(n, k) / 64, draw(n)
    peers = {
        "cuBLASLt with its epilogue": lambda: torch.ops.aten._addmm_activation(bias, x, weight.T, use_gelu=True),
        "F.gelu(F.linear)": lambda: F.gelu(F.linear(x, weight, bias)),
    }
    yield Case("linear_gelu", f"{m}x{n}x{k} bfloat16", 2 * m * n * k, (x, weight, bias), peers)
    gate, up = draw(n, k) / 64, draw(n, k) / 64
    compiled = torch.compile(lambda x, gate, up: F.silu(x @ gate.T) * (x @ up.T), mode="max-autotune-no-cudagraphs")
    peers = {
        "torch": lambda: F.silu(x @ gate.T) * (x @ up.T),
        "torch.compile max-autotune": lambda: compiled(x, gate, up),
    }
    yield Case("linear_silu_mul", f"{m}x{n}x{k} bfloat16", 4 * m * n * k, (x, gate, up), peers)


def scaled() -> Iterator[Case]:
    """Of float8: with a scale for each row and column, and with one for 128 elements of a row and for 128 by 128."""
    for size in (4096, 8192):
        a, b = (draw(size, size).to(torch.float8_e4m3fn) for _ in range(2))
        a_scale, b_scale = (torch.rand(size, device="cuda") for _ in range(2))
        torchs = partial(torch._scaled_mm, a, b.T, a_scale[:, None], b_scale[None, :], out_dtype=torch.bfloat16)
        fast = {"torch._scaled_mm, fast sums": partial(torchs, use_fast_accum=True)}
        peers = {"torch._scaled_mm": torchs, **fast}
        what = f"{size}x{size}x{size} float8_e4m3fn"
        yield Case("fp8_matmul_scaled", what, 2 * size**3, (a, b, a_scale, b_scale), peers)
        a_scale, b_scale = (torch.rand(rows, size // 128, device="cuda") for rows in (size, size // 128))
        x = (a.float() * a_scale.repeat_interleave(128, 1)).bfloat16()
        w = (b.float() * b_scale.repeat_interleave(128, 0).repeat_interleave(128, 1)).bfloat16()
        peers = {"cuBLAS of the same in bfloat16": partial(torch.matmul, x, w.T), **fast}
        yield Case("fp8_matmul_blocks", what, 2 * size**3, (a, b, a_scale, b_scale), peers)


def cases(only: str) -> Iterator[Case]:
    """The cases whose name has a text in it."""
    for kind in (products, single, batches, layers, scaled):
        yield from (case for case in kind() if only in case.name)


def main() -> None:
    parser = runner.parser(__doc__, "cases")
    parser.add_argument("--markdown", type=Path, help="write the table there")
    options = runner.given(parser)
    rows = ["| case | ours, TFLOP/s | torch's | ratio |", "|---|--:|--:|--:|"]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}")
    for case in cases(options.only):
        name, peers, ours = case.name, case.peers, partial(operator(case.operator), *case.inputs)
        got, want = ours(), next(iter(peers.values()))()
        error = float((got.float() - want.float()).abs().max() / want.float().abs().max())
        assert error < 2e-2, f"{name}: off by {error}"
        rate = rates({"": ours, **peers}, case.operations)
        text = ", ".join(f"{peer} {rate[peer]:,.0f}" for peer in peers)
        ratios = ", ".join(f"{rate[''] / rate[peer]:.2f}" for peer in peers)
        rows.append(f"| {name} | {rate['']:,.0f} | {text} | {ratios} |")
        print(rows[-1], flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
