"""Times of matmuls that are not the usual ones, beside torch and torch.compile: float32, odd lengths, axes apart.

    tritongen build bench/matmuls/specs; python bench/matmuls.py [--only NAME] [--eager] [--rounds COUNT]

Prints Markdown tables for docs/performance.md. Float32: TFLOP/s by precision, and errors against float64 with normal
and with positive inputs. The others: microseconds in bfloat16, forward and with both gradients, and the ratio to the
faster of torch and torch.compile. Calls are CUDA graphs, which alternate; medians.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import runner
import torch
import torch.nn.functional as F
import triton
from products import matrices
from runner import Call, graphs, medians, operator, rates

ours = partial(operator, package="ops")
PRECISIONS = ("ieee", "bf16x6", "bf16x3", "tf32x3")
SIZES = ((1024, 1024, 1024), (2048, 2048, 2048), (3072, 3072, 3072), (4096, 4096, 4096), (8192, 8192, 8192))
ODD = ((4095, 4097, 4093), (3001, 2999, 3003), (2047, 2049, 2045), (1023, 1025, 1021))


def single(only: str, rounds: int) -> None:
    print("| float32, rows x columns x inner | cuBLAS | " + " | ".join(PRECISIONS) + " |")
    print("|---|--:|" + "--:|" * len(PRECISIONS))
    cases = [(size, layout) for size in SIZES for layout in ("nn", "nt")] + [((4096, 4096, 4096), "tn")]
    cases += [((4095, 4097, 4093), "nn"), ((256, 4096, 4096), "nt")]
    for (m, n, k), layout in cases:
        if only not in f"float32 {layout} {m}x{n}x{k}":
            continue
        a, b = matrices(m, n, k, layout, torch.float32)
        calls: dict[str, Call] = {"cuBLAS": partial(torch.matmul, a, b)}
        calls |= {name: partial(ours(f"matmul_{name}"), a, b) for name in PRECISIONS}
        rate = rates(graphs(calls), 2 * m * n * k, rounds)
        cells = (f"{rate[name]:.1f} ({rate[name] / rate['cuBLAS']:.2f})" for name in PRECISIONS)
        print(f"| {layout} {m}x{n}x{k} | {rate['cuBLAS']:.1f} | {' | '.join(cells)} |", flush=True)
    if only not in "float32":
        return
    print("\n| errors at 4096^3, largest and root of the mean square | cuBLAS | " + " | ".join(PRECISIONS) + " |")
    print("|---|" + "--:|" * (len(PRECISIONS) + 1))
    for what, draw in (("normal", torch.randn), ("uniform from 0 to 1", torch.rand)):
        a, b = (draw(4096, 4096, device="cuda") for _ in range(2))
        exact = a.double() @ b.double()
        operators = [torch.matmul, *(ours(f"matmul_{name}") for name in PRECISIONS)]
        errors = [(one(a, b).double() - exact) for one in operators]
        cells = (f"{float(one.abs().max()):.1e}, {float(one.square().mean().sqrt()):.1e}" for one in errors)
        print(f"| {what} | {' | '.join(cells)} |", flush=True)


def conv(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, weight[:, :, None, None])


def cases() -> list[tuple[str, str, tuple[torch.Tensor, ...], Any]]:
    """Names, operators, inputs in bfloat16 and what torch has for each."""
    found: list[tuple[str, str, tuple[torch.Tensor, ...], Any]] = []
    half = torch.bfloat16
    for m, n, k in ODD:
        for layout in ("nn", "nt"):
            found.append((f"{layout} {m}x{n}x{k}", "matmul_ieee", matrices(m, n, k, layout, half), torch.matmul))
    for batch, c, side, o in ((32, 256, 56, 256), (32, 512, 28, 512), (64, 1024, 14, 1024), (32, 2048, 7, 512)):
        made = torch.randn(batch, c, side, side, device="cuda").bfloat16(), torch.randn(o, c, device="cuda").bfloat16()
        found.append((f"conv1x1 {batch}x{c}x{side}x{side} to {o}", "conv1x1", made, conv))
    for a, k, b, n in ((16, 1024, 512, 1024), (64, 2048, 128, 2048)):
        made = torch.randn(a, k, b, device="cuda").bfloat16(), torch.randn(k, n, device="cuda").bfloat16()
        found.append((f"akb,kn {a},{k},{b},{n}", "around", made, partial(torch.einsum, "akb,kn->abn")))
    made = torch.randn(32, 8, 64, 1024, device="cuda").bfloat16(), torch.randn(2048, 32, 64, device="cuda").bfloat16()
    found.append(("kbjm,nkj 32,8,64,1024,2048", "between", made, partial(torch.einsum, "kbjm,nkj->bmn")))
    for n, k, layout in ((1536, 8192, "tn"), (5000, 5000, "nn")):
        found.append((f"{n}x{n}x{k}", "matmul_ieee", matrices(n, n, k, layout, half), torch.matmul))
    return found


def with_gradients(call: Any, inputs: tuple[torch.Tensor, ...]) -> Call:
    """What computes a result and both gradients."""
    learned = [one.detach().requires_grad_() for one in inputs]
    seed = torch.randn_like(call(*learned))
    return lambda: torch.autograd.grad(call(*learned), learned, seed)


def others(only: str, eager: bool, rounds: int) -> None:
    print("\n| bfloat16 | forward: ours, torch, compile | ratio | with gradients: ours, torch, compile | ratio |")
    print("|---|--:|--:|--:|--:|")
    for name, op, inputs, peer in cases():
        if only not in f"bfloat16 {name}":
            continue
        calls = {"ours": ours(op), "torch": peer}
        if not eager:
            calls["compile"] = torch.compile(peer, dynamic=False)
        cells = []
        for made in (lambda call: partial(call, *inputs), lambda call: with_gradients(call, inputs)):  # noqa: B023
            found = medians(graphs({each: made(call) for each, call in calls.items()}), rounds)
            cells += runner.cells([*found.values()])
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = runner.parser(__doc__, "cases, of float32 too,")
    parser.add_argument("--eager", action="store_true", help="beside torch alone")
    parser.add_argument("--rounds", type=int, default=5)
    options = runner.given(parser, "bench/matmuls/specs")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}\n")
    single(options.only, options.rounds)
    others(options.only, options.eager, options.rounds)


if __name__ == "__main__":
    main()
