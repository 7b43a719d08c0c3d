"""Times of operators of several steps, of unusual matmuls and of shapes that were slow once, on a GPU, beside torch and
torch.compile.

    tritongen build bench/plans/specs; python bench/steps.py [--only NAME] [--steps] [--calls]

The operators are of bench/plans/specs, and of the gallery and the examples, whose kernels are checked in.

Prints a Markdown table for docs/performance.md: bfloat16, medians of microseconds, forward and with the backward, as
CUDA graphs, so that host time is not counted, or as a model calls them, with --calls; the ratio to the faster of the
two peers; and the error of the forward beside torch's, both against torch in float64. With --steps, the kernels of a
forward and backward, each with its time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import runner
import torch
import torch.nn.functional as F
from products import matrices

Call = Callable[..., torch.Tensor]


def draw(*shapes: tuple[int, ...], scale: float = 1.0) -> list[torch.Tensor]:
    """Random inputs; all but the first, which are weights, times the scale."""
    scales = [1.0] + [scale] * (len(shapes) - 1)
    return [
        (torch.randn(shape, device="cuda") * by).bfloat16().requires_grad_()
        for shape, by in zip(shapes, scales, strict=True)
    ]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, scale=0.125)[0]


def batches() -> list[torch.Tensor]:
    """Inputs of batch_norm, with running statistics."""
    statistics = torch.zeros(320, device="cuda"), torch.ones(320, device="cuda")
    return [*draw((32, 320, 4096), (320,), (320,)), *statistics]


def batch_norm(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, mean: torch.Tensor, var: torch.Tensor
) -> torch.Tensor:
    """With statistics of the dtype of the weights, since torch's backward takes no other beside bfloat16 ones."""
    return F.batch_norm(x, mean.to(w.dtype), var.to(w.dtype), w, b, training=True)


def norm_linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.linear(F.rms_norm(x, (x.shape[1],), eps=1e-6), w)


def norm_of_all(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.float().square().mean() + 1e-6).to(x.dtype) * w


def at_distances(products: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
    """Of the products of queries with rows of all distances, those of each key."""
    return torch.gather(products, -1, distance.expand(*products.shape[:2], -1, -1))


def distances(q: torch.Tensor) -> torch.Tensor:
    """How far each key is behind each query."""
    positions = torch.arange(q.shape[2], device=q.device)
    return positions[:, None] - positions


def relative_positions(*tensors: torch.Tensor) -> torch.Tensor:
    q, k, v, u, w, rows = tensors
    distance = distances(q)
    of_distance = at_distances((q + w[:, None]) @ rows.permute(1, 2, 0), distance + q.shape[2])
    scores = ((q + u[:, None]) @ k.mT + of_distance) * 0.125
    return scores.masked_fill(distance < 0, -torch.inf).softmax(-1) @ v


def relative_keys(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    distance = (-distances(q)).clamp(-8, 8) + 8
    return ((q @ k.mT + at_distances(q @ rows.mT, distance)) * 0.125).softmax(-1) @ v


def chosen_blocks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    chosen = (q @ k.unflatten(2, (-1, 64)).mean(3).mT > 0).repeat_interleave(64, -1)
    return (q @ k.mT * 0.125).masked_fill(~chosen, -torch.inf).softmax(-1) @ v


def causal_conv(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    padded = F.pad(x, (0, 0, 3, 0))
    return sum(padded[:, tap : tap + x.shape[1]] * w[:, tap] for tap in range(4))  # type: ignore[return-value]


def square_distance(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x * x).sum(1)[:, None] + (w * w).sum(1) - 2 * (x @ w.T)


def linear_batch_norm(x: torch.Tensor, w: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.relu(F.batch_norm(F.linear(x, w), None, None, weight, bias, True))


def bags() -> list[torch.Tensor]:
    return [*draw((50_000, 128)), torch.randint(50_000, (16384, 64), device="cuda")]


BATCH = (4, 16, 2048, 64)
LINEAR = partial(draw, scale=0.02)
HEADS = (64, 2048, 64)
SQUARE = (2048, 2048)
Make = Callable[[], Sequence[torch.Tensor]]
# By operator, or by operator and shape: its inputs, and what torch has for it.
CASES: dict[str, tuple[Make, Call]] = {
    "linear_layer_norm": (
        partial(LINEAR, (8192, 4096), (4096, 4096), (4096,)),
        lambda x, w, b: F.layer_norm(F.linear(x, w, b), (w.shape[0],)),
    ),
    "linear_head_norm": (
        partial(LINEAR, (8192, 4096), (4096, 4096), (128,)),
        lambda x, w, g: F.rms_norm(F.linear(x, w).unflatten(1, (32, 128)), (128,), g, 1e-6).flatten(1),
    ),
    "mlp": (
        partial(LINEAR, (8192, 4096), (11008, 4096), (4096, 11008)),
        lambda x, w, v: F.linear(F.gelu(F.linear(x, w)), v),
    ),
    "lora_linear": (
        partial(LINEAR, (8192, 4096), (4096, 4096), (16, 4096), (4096, 16)),
        lambda x, w, a, b: F.linear(x, w) + 0.5 * F.linear(F.linear(x, a), b),
    ),
    "norm_linear": (partial(LINEAR, (8192, 4096), (4096, 4096)), norm_linear),
    "group_norm": (partial(draw, (32, 320, 4096), (320,), (320,)), lambda x, w, b: F.group_norm(x, 32, w, b)),
    "batch_norm": (batches, batch_norm),
    "both_sums": (partial(draw, (8192, 8192)), lambda x: x - x.sum(0) - x.sum(1, keepdim=True)),
    "two_softmaxes": (partial(draw, (8192, 8192)), lambda x: x.softmax(0) * x.softmax(1)),
    "scores": (partial(draw, (4096, 1024), (32000, 1024)), lambda a, b: F.linear(a, b).softmax(-1)),
    "causal_attention": (partial(draw, HEADS, HEADS, HEADS), attention),
    "relative_positions": (
        partial(draw, BATCH, BATCH, BATCH, (16, 64), (16, 64), (4097, 16, 64)),
        relative_positions,
    ),
    "relative_keys": (partial(draw, BATCH, BATCH, BATCH, (17, 64)), relative_keys),
    "chosen_blocks": (partial(draw, BATCH, BATCH, BATCH), chosen_blocks),
    "rms_norm_of_all": (partial(draw, (16384, 4096), (4096,)), norm_of_all),
    "scaled_gelu": (partial(draw, (16384, 4096), ()), lambda x, s: F.gelu(x) * s),
    "average_pool": (partial(draw, (32, 256, 112, 112)), lambda x: F.avg_pool2d(x, 2)),
    "max_pool": (partial(draw, (32, 256, 114, 114)), lambda x: F.max_pool2d(x, 3)),
    "cumsum": (partial(draw, (16384, 16384)), lambda x: x.cumsum(1)),
    "causal_conv": (partial(draw, (8, 4096, 2048), (2048, 4)), causal_conv),
    "depthwise": (
        partial(draw, (32, 256, 56, 56), (256, 3, 3)),
        lambda x, w: F.conv2d(x, w[:, None], padding=1, groups=w.shape[0]),
    ),
    "embedding_bag": (bags, lambda w, i: F.embedding_bag(i, w, mode="sum")),
    "distances": (partial(draw, (2048, 256), (2048, 256)), lambda x, z: (x[:, None] - z).abs().sum(-1)),
    "temperature": (partial(draw, (8192, 8192), ()), lambda x, t: (x * t).softmax(-1)),
    "linear_mean": (partial(LINEAR, (8192, 2048), (4096, 2048)), lambda x, w: F.linear(x, w).mean(1)),
    "square_distance": (partial(draw, (4096, 512), (4096, 512)), square_distance),
    "causal_attention, heads of 1,024": (partial(draw, *3 * [(16, 2048, 1024)]), attention),
    "matvec, a million columns": (partial(draw, (2048, 1_000_000), (1_000_000,)), torch.mv),
    "argmax_middle": (partial(draw, (64, 1001, 4095)), lambda x: x.argmax(1)),
    "mean_windows": (partial(draw, (32, 64, 512, 512)), lambda x: F.avg_pool2d(x, 16)),
    "pointwise_conv": (partial(draw, (32, 64, 112 * 112), (64, 64)), lambda x, w: F.conv1d(x, w[:, :, None])),
    "narrow_linear": (partial(draw, (32, 64, 256, 512), (512, 16)), torch.matmul),
    "linear_batch_norm": (partial(LINEAR, (16384, 1024), (1024, 1024), (1024,), (1024,)), linear_batch_norm),
    "linear, short": (partial(LINEAR, SQUARE, SQUARE, (2048,)), F.linear),
    "linear_epilogue": (
        partial(LINEAR, SQUARE, SQUARE, (2048,), (2048,), SQUARE),
        lambda x, w, b, scale, residual: F.gelu(F.linear(x, w, b)) * scale + residual,
    ),
    "tril_matmul": (partial(draw, SQUARE, SQUARE), lambda a, b: (a @ b).tril()),
    "around": (partial(draw, (64, 2048, 128), (2048, 1024)), partial(torch.einsum, "akb,kn->abn")),
    "between": (partial(draw, (32, 8, 64, 1024), (2048, 32, 64)), partial(torch.einsum, "kbjm,nkj->bmn")),
}
for batch, c, side, o in ((32, 256, 56, 256), (32, 512, 28, 512), (64, 1024, 14, 1024), (32, 2048, 7, 512)):
    images = partial(draw, (batch, c, side, side), (o, c))
    CASES[f"conv1x1, {c} x {side} x {side} to {o}"] = (images, lambda x, w: F.conv2d(x, w[:, :, None, None]))
for m, n, k, layout in (
    *((size, size, size, "nn") for size in (1000, 2048, 4096, 5000)),
    *((m, m + 2, m - 2, layout) for m in (1023, 2047, 3001, 4095) for layout in ("nn", "nt")),
    (1536, 1536, 8192, "tn"),
):
    CASES[f"matmul, {layout} {m}x{n}x{k}"] = (partial(matrices, m, n, k, layout, torch.bfloat16), torch.matmul)
FROZEN = {"lora_linear": (1,), "batch_norm": (3, 4), "embedding_bag": (1,)}  # inputs that are not learned


def timed(call: Callable[[], Any], is_called: bool) -> float:
    """Milliseconds of a call, or of its kernels alone."""
    return runner.milliseconds(call if is_called else runner.graph(call), rep=60)


def gradients(call: Call, inputs: Sequence[torch.Tensor], learned: Sequence[torch.Tensor], seed: torch.Tensor) -> Any:
    return torch.autograd.grad(call(*inputs), learned, seed)


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.double() - exact).norm() / exact.norm()).item()


def main() -> None:
    parser = runner.parser(__doc__, "operators")
    parser.add_argument("--steps", action="store_true", help="the kernels, each with its time")
    parser.add_argument("--calls", action="store_true", help="with host time")
    options = runner.given(parser)
    print("| operator | forward: ours, torch, compile | ratio | with backward | ratio | error, torch's |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, (make, peer) in CASES.items():
        if options.only in name:
            measure(name, make(), peer, options)
            torch.cuda.empty_cache()


def operator_of(name: str) -> Call:
    """The operator, of several results the first."""
    operator = runner.operator(name)

    def first(*inputs: torch.Tensor) -> torch.Tensor:
        results = operator(*inputs)
        return results[0] if isinstance(results, tuple) else results

    return first


def measure(title: str, inputs: Sequence[torch.Tensor], peer: Call, options: argparse.Namespace) -> None:
    """Prints the row of an operator at these inputs; without a backward where its results are integers."""
    name = title.partition(",")[0]
    operator = operator_of(name)
    learned = [one for place, one in enumerate(inputs) if place not in FROZEN.get(name, ())]
    for one in inputs:
        one.requires_grad_(any(one is other for other in learned))
    has_gradient = operator(*inputs).requires_grad
    forward, backward = [], []
    for call in (operator, peer, torch.compile(peer, dynamic=False)):
        with torch.no_grad():
            forward.append(timed(partial(call, *inputs), options.calls))
        if has_gradient:
            both = partial(gradients, call, inputs, learned, torch.randn_like(call(*inputs)))
            backward.append(timed(both, options.calls))
    with torch.no_grad():
        exact = peer(*(one.double() if one.is_floating_point() else one for one in inputs)).double()
        errors = [relative(call(*inputs).view_as(exact), exact) for call in (operator, peer)]
    cells = [*runner.cells(forward), *(runner.cells(backward) if has_gradient else ("", ""))]
    print(f"| {title} | {' | '.join(cells)} | {errors[0]:.1e}, {errors[1]:.1e} |", flush=True)
    if options.steps:
        seed = torch.randn_like(operator(*inputs)) if has_gradient else None
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            y = operator(*inputs)
            if has_gradient:
                torch.autograd.grad(y, learned, seed)
            torch.cuda.synchronize()
        for event in sorted(profile.key_averages(), key=lambda one: -one.self_device_time_total):
            if event.self_device_time_total:
                print(f"    {event.self_device_time_total:9.1f} us {event.count}x {event.key[:90]}")


if __name__ == "__main__":
    main()
