"""Times at shapes that were slow once, on a GPU, beside torch and torch.compile.

    tritongen build bench/plans/specs; python bench/cliffs.py [--only NAME] [--steps]

Two Markdown tables for docs/performance.md. The first is that of bench/steps.py: kernels alone, as CUDA graphs. The
second has short ones as a model calls them, host time included: a forward, and a forward and backward under autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import runner
import steps
import torch
import torch.nn.functional as F
from steps import Call, draw

LINEAR = partial(draw, scale=0.02)
HEADS = (16, 2048, 1024)
IMAGE = (32, 64, 112 * 112)


def square_distance(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x * x).sum(1)[:, None] + (w * w).sum(1) - 2 * (x @ w.T)


def linear_batch_norm(x: torch.Tensor, w: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.relu(F.batch_norm(F.linear(x, w), None, None, weight, bias, True))


def linear_epilogue(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, scale: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    return F.gelu(F.linear(x, w, b)) * scale + residual


def mean_windows(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool2d(x, 16)


Make = Callable[[], list[torch.Tensor]]
KERNELS: dict[str, tuple[str, Make, Call]] = {
    "linear_mean": (
        "linear_mean",
        partial(LINEAR, (8192, 2048), (4096, 2048)),
        lambda x, w: F.linear(x, w).mean(1),
    ),
    "square_distance": ("square_distance", partial(draw, (4096, 512), (4096, 512)), square_distance),
    "attention, heads of 1,024": (
        "causal_attention",
        partial(draw, HEADS, HEADS, HEADS),
        lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, scale=0.125)[0],
    ),
    "matvec, a million columns": ("matvec", partial(draw, (2048, 1_000_000), (1_000_000,)), torch.mv),
    "argmax_middle": ("argmax_middle", partial(draw, (64, 1001, 4095)), lambda x: x.argmax(1)),
    "mean_windows": ("mean_windows", partial(draw, (32, 64, 512, 512)), mean_windows),
    "pointwise_conv": (
        "pointwise_conv",
        partial(draw, IMAGE, (64, 64)),
        lambda x, w: F.conv1d(x, w[:, :, None]),
    ),
    "narrow_linear": ("narrow_linear", partial(draw, (32, 64, 256, 512), (512, 16)), torch.matmul),
    "linear_batch_norm": (
        "linear_batch_norm",
        partial(LINEAR, (16384, 1024), (1024, 1024), (1024,), (1024,)),
        linear_batch_norm,
    ),
    "matmul 1000": ("matmul", partial(draw, (1000, 1000), (1000, 1000)), torch.matmul),
    "matmul 5000": ("matmul", partial(draw, (5000, 5000), (5000, 5000)), torch.matmul),
}
CALLS: dict[str, tuple[str, Make, Call]] = {
    "matmul 2048": ("matmul", partial(draw, (2048, 2048), (2048, 2048)), torch.matmul),
    "matmul 4096": ("matmul", partial(draw, (4096, 4096), (4096, 4096)), torch.matmul),
    "linear 2048": ("linear", partial(LINEAR, (2048, 2048), (2048, 2048), (2048,)), F.linear),
    "linear_epilogue": (
        "linear_epilogue",
        partial(LINEAR, (2048, 2048), (2048, 2048), (2048,), (2048,), (2048, 2048)),
        linear_epilogue,
    ),
    "tril_matmul 2048": ("tril_matmul", partial(draw, (2048, 2048), (2048, 2048)), lambda a, b: (a @ b).tril()),
}


def calls(name: str, make: Make, peer: Call) -> list[str]:
    """The cells of a call under autograd, host time included: a forward, and a forward and backward."""
    inputs = make()
    operator = steps.operator_of(name)
    times: dict[bool, list[float]] = {}
    for is_trained in (False, True):
        runs = {}
        for who, call in (("ours", operator), ("torch", peer), ("compile", torch.compile(peer, dynamic=False))):
            seed = torch.randn_like(call(*inputs))

            def run(call: Call = call, seed: torch.Tensor = seed, is_trained: bool = is_trained) -> None:
                y = call(*inputs)
                if is_trained:
                    torch.autograd.grad(y, inputs, seed)

            runs[who] = run
        found = runner.medians(runs, 5)
        times[is_trained] = [found[who] for who in runs]
    return [cell for found in times.values() for cell in runner.cells(found)]


def main() -> None:
    parser = runner.parser(__doc__, "cases")
    parser.add_argument("--steps", action="store_true", help="the kernels, each with its time")
    options = runner.given(parser, "bench/plans/specs")
    print("| operator | forward: ours, torch, compile | ratio | with backward | ratio | error, torch's |")
    print("|---|--:|--:|--:|--:|--:|")
    for title, (name, make, peer) in (KERNELS | CALLS).items():
        if options.only in title:
            steps.measure(name, make(), peer, options.steps, title)
            torch.cuda.empty_cache()
    print("\n| call, host time included | forward: ours, torch, compile | ratio | with backward | ratio |")
    print("|---|--:|--:|--:|--:|")
    for title, (name, make, peer) in CALLS.items():
        if options.only in title:
            print(f"| {title} | {' | '.join(calls(name, make, peer))} |", flush=True)


if __name__ == "__main__":
    main()
