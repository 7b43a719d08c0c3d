"""Microseconds of host time that a call takes, beside torch's own: without autograd, under it, and with a backward.

    python bench/host_time.py [--calls N] [--stub] [--profile]

bfloat16 [64, 1024] and matrices, which the GPU is through with soon. Calls come in runs of 20, and the queue is
empty before each, so that no call waits for the device; the median of the runs of a round, and the least of five
rounds, in which all alternate, since a processor that is shared is slow at times. With --stub, kernels are not
launched and tensors are on the CPU: what is left of ours is Python and torch, and torch's own are left out. --profile
prints in which functions a call of ours spends its time, with a backward, by cProfile, which makes each take longer.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import importlib
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

F: Any = torch.nn.functional
RUN, ROUNDS = 20, 5
REGISTERED = "registered_ops"  # the package of operators of torch.library, with the runtime beside them
Call = Callable[[], Any]


def cases(device: str, registered: str) -> Iterator[tuple[str, Callable[..., Any], list[torch.Tensor]]]:
    """Name, function and inputs; `registered` is a folder with rms_norm in the ways of torch.library."""
    from generated.attention import attention
    from generated.gelu import gelu
    from generated.linear import linear
    from generated.matmul import matmul
    from generated.rms_norm import rms_norm
    from generated.softmax import softmax
    from generated.vector_add import vector_add

    x = torch.randn(64, 1024, dtype=torch.bfloat16, device=device)
    weight = torch.randn(1024, dtype=torch.bfloat16, device=device)
    line = x.flatten()
    yield "vector_add", vector_add, [line, line]
    yield "torch.add", torch.add, [line, line]
    yield "rms_norm", rms_norm, [x, weight]
    sys.path.insert(0, registered)
    for kind in ("custom_op", "triton_op"):
        module = importlib.import_module(f"{REGISTERED}.rms_norm_{kind}")
        yield f"rms_norm as a {kind}", getattr(module, f"rms_norm_{kind}"), [x, weight]
    yield "F.rms_norm", lambda x, w: F.rms_norm(x, (1024,), w, 1e-6), [x, weight]
    yield "softmax", softmax, [x]
    yield "F.softmax", lambda x: F.softmax(x, -1), [x]
    yield "gelu", gelu, [x]
    yield "F.gelu", F.gelu, [x]
    square, bias = torch.randn(1024, 1024, dtype=torch.bfloat16, device=device), weight
    yield "linear", linear, [x, square, bias]
    yield "F.linear", F.linear, [x, square, bias]
    heads = [torch.randn(2, 8, 128, 64, dtype=torch.bfloat16, device=device) for _ in range(3)]
    yield "attention", lambda q, k, v: attention(q, k, v, scale=0.125), heads
    sdpa = partial(F.scaled_dot_product_attention, is_causal=True, scale=0.125)
    yield "F.scaled_dot_product_attention", sdpa, heads
    for size in (256, 2560):  # By pointers and by descriptors.
        a, b = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
        yield f"matmul of {size}", matmul, [a, b]
        yield f"torch.matmul of {size}", torch.matmul, [a, b]


def write_registered(folder: Path) -> None:
    from tritongen.operator.compile import generate
    from tritongen.project.runtime import runtime_files
    from tritongen.spec.read import read_spec

    written = {"_runtime": runtime_files()}
    text = (ROOT / "specs" / "rms_norm.toml").read_text(encoding="utf-8")
    for kind in ("custom_op", "triton_op"):
        name = f"rms_norm_{kind}"
        spec = text.replace('name = "rms_norm"', f'name = "{name}"', 1)
        registered = f'{spec}\n[torch]\nregister = "{kind}"\nnamespace = "of_the_bench"\n'
        written[name] = generate(read_spec(name, registered))
    for name, files in written.items():
        home = folder / REGISTERED / name
        home.mkdir(parents=True)
        for file, content in files.items():
            (home / file).write_text(content, encoding="utf-8")


class Compiled:
    """Stands for a compiled kernel."""

    def __getitem__(self, grid: tuple[int, ...]) -> Call:
        return lambda *_: None


def replay_on_the_cpu() -> None:
    """Have the runtimes that are imported take the CPU for a GPU, and stubs for kernels that are launched again."""
    torch.cuda.current_device = lambda: None  # type: ignore[assignment, return-value]  # the index of the CPU
    for name, module in [*sys.modules.items()]:
        if name.endswith("_runtime.launch"):
            module.is_replayed = lambda _: True  # type: ignore[attr-defined]
            module.check_gpu = lambda *_: None  # type: ignore[attr-defined]


def microseconds(call: Call, calls: int, wait: Callable[[], None]) -> float:
    for _ in range(RUN):
        call()
    times = []
    for _ in range(calls // RUN):
        wait()
        start = time.perf_counter_ns()
        for _ in range(RUN):
            call()
        times.append((time.perf_counter_ns() - start) / RUN / 1000)
    return statistics.median(times)


def forward_backward(function: Callable[..., Any], leaves: list[torch.Tensor], dy: torch.Tensor) -> None:
    torch.autograd.grad(function(*leaves), leaves, dy)


def profiled(call: Call, calls: int) -> None:
    """Print the functions in which calls spend most time themselves, in microseconds a call."""
    profile = cProfile.Profile()
    profile.runcall(lambda: [call() for _ in range(calls)])
    rows = pstats.Stats(profile).stats.items()  # type: ignore[attr-defined]
    for (path, line, name), (_, count, own, *_) in sorted(rows, key=lambda row: -row[1][2])[:16]:
        print(f"    {own / calls * 1e6:6.1f} us in {count / calls:4.1f} of {name} {Path(path).name}:{line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--stub", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if not options.stub and not torch.cuda.is_available():
        parser.exit(4, f"{parser.prog} needs a GPU, or --stub\n")
    if options.stub:
        from triton.runtime.jit import JITFunction

        JITFunction.__getitem__ = lambda kernel, grid: lambda *_, **__: Compiled()
    device, wait = ("cpu", lambda: None) if options.stub else ("cuda", torch.cuda.synchronize)
    with tempfile.TemporaryDirectory() as folder:
        write_registered(Path(folder))
        found: dict[str, list[tuple[float, ...]]] = {}
        rounds = [case for _ in range(ROUNDS) for case in cases(device, folder)]
        if options.stub:
            for _, function, tensors in cases(device, folder):
                with contextlib.suppress(RuntimeError):  # Operators are imported, and find no GPU.
                    function(*tensors)
            replay_on_the_cpu()
        for name, function, tensors in rounds:
            if options.stub and name.startswith(("F.", "torch.")):
                continue
            leaves = [tensor.clone().requires_grad_() for tensor in tensors]
            calls = options.calls // ROUNDS
            plain = microseconds(partial(function, *tensors), calls, wait)
            recorded = microseconds(partial(function, *leaves), calls, wait)
            with torch.no_grad():
                unrecorded = microseconds(partial(function, *leaves), calls, wait)
            both = partial(forward_backward, function, leaves, torch.ones_like(function(*tensors)))
            found.setdefault(name, []).append((unrecorded, plain, recorded, microseconds(both, calls, wait)))
            if options.profile and len(found[name]) == ROUNDS and not name.startswith(("F.", "torch.")):
                print(name)
                profiled(both, calls)
        columns = "no_grad | no input requires a gradient | under autograd | forward and backward"
        print(f"| microseconds a call | {columns} |\n|---|---|---|---|---|")
        for name, times in found.items():
            print(f"| {name} | {' | '.join(f'{min(one):.1f}' for one in zip(*times, strict=True))} |")


if __name__ == "__main__":
    main()
