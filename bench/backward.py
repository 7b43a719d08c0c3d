"""Rates of the backward of generated operators, in GB/s of the bytes that have to move, beside torch's.

    python bench/backward.py [--elements N] [--markdown FILE]

bfloat16. Minimal bytes: every tensor that a gradient reads and every gradient, once. Medians of
`triton.testing.do_bench` over `torch.autograd.grad` of a graph that is kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from runner import operator

F: Any = torch.nn.functional
LENGTHS = (256, 1024, 4096, 16384, 65536)
Case = tuple[str, str, Callable[..., Any], list[torch.Tensor], float]


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16, device="cuda", requires_grad=True)


def cases(elements: int) -> Iterator[Case]:
    """Name, our operator, torch's function, the inputs, and how often the elements move at least."""
    for n in LENGTHS:
        x, weight, bias = draw(elements // n, n), draw(n), draw(n)
        yield f"rms_norm, rows of {n}", "rms_norm", lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6), [x, weight], 3
        names = [x, weight, bias]
        yield f"layer_norm, rows of {n}", "layer_norm", lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), names, 3
    for n in (1024, 4096, 16384):
        yield f"softmax, rows of {n}", "softmax", lambda x: torch.softmax(x, -1), [draw(elements // n, n)], 3
    yield "gelu", "gelu", F.gelu, [draw(elements)], 3
    yield "swiglu", "swiglu", lambda a, b: F.silu(a) * b, [draw(elements), draw(elements)], 5


def milliseconds(run: Callable[[], Any]) -> float:
    return float(triton.testing.do_bench(run, warmup=10, rep=40, return_mode="median"))


def backward_milliseconds(function: Callable[..., Any], tensors: list[torch.Tensor]) -> float:
    y = function(*tensors)
    dy = torch.randn_like(y)
    return milliseconds(lambda: torch.autograd.grad(y, tensors, dy, retain_graph=True))


class Made(torch.autograd.Function):
    """Logits as a layer gives them, which a loss may overwrite: no leaf, yet in a leaf's memory, for no copy's time.

    They are the gradient of the run before from then on; how long a run takes does not depend on values.
    """

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        return leaf.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def losses() -> Iterator[tuple[int, list[float]]]:
    """Columns, and the milliseconds of cross_entropy forward and backward on 4,096 rows, as LOSSES has them."""
    from generated.cross_entropy import cross_entropy
    from generated.cross_entropy_in_place import cross_entropy_in_place
    from generated.cross_entropy_in_place import op as in_place

    made: Any = Made
    for columns in (32768, 131072, 262144):
        leaf, target = draw(4096, columns), torch.randint(columns, (4096,), device="cuda")
        logits, ones = leaf.detach(), torch.ones(4096, dtype=torch.bfloat16, device="cuda")

        def both(function: Callable[..., Any], leaf: torch.Tensor = leaf, target: torch.Tensor = target) -> Any:
            logits = made.apply(leaf)
            return torch.autograd.grad(function(logits, target).sum(), logits)

        def launches(
            outgoing: torch.Tensor, logits: torch.Tensor = logits, target: torch.Tensor = target
        ) -> torch.Tensor:
            _, gradient = in_place._cross_entropy_in_place_with_gradient(logits, target, -100, 0.0, in_place=True)
            return in_place._cross_entropy_in_place_backward(outgoing, gradient)

        runs: list[Callable[[], Any]] = [
            partial(both, cross_entropy),
            partial(both, partial(F.cross_entropy, reduction="none")),
            partial(both, cross_entropy_in_place),
            partial(launches, ones),
            partial(launches, ones / 2),
        ]
        yield columns, [milliseconds(run) for run in runs]


LOSSES = ("ours", "torch", "in place", "in place, launches alone", "the same of a mean")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=2**28)
    parser.add_argument("--markdown", type=Path, help="write the tables there")
    options = parser.parse_args()
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    ceiling = 2 * source.numel() / milliseconds(source.clone) * 1e-6
    lines = [f"Copy ceiling {ceiling:,.0f} GB/s.", "", "| backward of | ours | torch |", "|---|--:|--:|"]
    for name, op, torchs, tensors, moves in cases(options.elements):
        shares = []
        for function in (operator(op), torchs):
            shares.append(moves * options.elements * 2 / backward_milliseconds(function, tensors) * 1e-6 / ceiling)
        lines.append(f"| {name} | {shares[0]:.0%} | {shares[1]:.0%} |")
        print(lines[-1], flush=True)
    lines += ["", f"| cross_entropy, ms, columns | {' | '.join(LOSSES)} |", f"|---|{'--:|' * len(LOSSES)}"]
    for columns, times in losses():
        lines.append(f"| {columns:,} | {' | '.join(f'{time:.2f}' for time in times)} |")
        print(lines[-1], flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
