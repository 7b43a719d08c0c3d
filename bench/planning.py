"""CPU seconds that planning takes: of specs that were slow once, and of the slowest specs of the repository.

    python bench/planning.py [--only NAME] [--repository] [--profile] [--limit SECONDS]

Each spec is planned in a process of its own, forward and backward, so that nothing is cached by another; what takes
longer than the limit is stopped. No file is written, and no GPU needed.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import itertools
import multiprocessing
import pstats
import resource
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

from tritongen.operator.compile import check
from tritongen.spec.read import read_spec

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("specs", "examples/specs", "tests/specs", "tests/emitted/specs")
SECONDS = 60
SHOWN = 10  # of the repository's specs


def text(inputs: str, compute: list[str], outputs: str, wrt: str = "") -> str:
    pairs = (entry.split(":") for entry in inputs.split("; "))
    tables = {
        "inputs": "\n".join(f'{name} = "float[{axes}]"' for name, axes in pairs),
        "compute": "\n".join('{} = "{}"'.format(*line.split(" = ", 1)) for line in compute),
        "outputs": "\n".join(f'{name} = "auto"' for name in outputs.split()),
    }
    grad = ", ".join(f'"{name}"' for name in wrt.split())
    tables |= {"grad": f"wrt = [{grad}]"} if wrt else {}
    return '[op]\nname = "planned"\n' + "".join(f"[{title}]\n{lines}\n" for title, lines in tables.items())


def softmaxes(lines: int) -> str:
    """Lines each of which is normalised along both axes of the one before."""
    names = ["x", *(f"p{n}" for n in range(1, lines + 1))]
    compute = [f"{b} = softmax({a}, M) + softmax({a}, N)" for a, b in itertools.pairwise(names)]
    return text("x:M, N", compute, names[-1])


def residual_norms(blocks: int) -> str:
    """Lines of which each is read three times by the next, normalised along one axis and the other, with gradients."""
    compute, before = [], "x"
    for n in range(blocks):
        compute += [f"a{n} = {before} - mean({before}, N)", f"b{n} = a{n} * rsqrt(mean(a{n} * a{n}, M) + 1e-5)"]
        compute += [f"y{n} = tanh(b{n}) + {before}"]
        before = f"y{n}"
    return text("x:M, N", compute, before, "x")


def gated_mlp(wrt: str = "") -> str:
    compute = [
        "n = (x - mean(x, D)) * rsqrt(var(x, D, correction=0) + 1e-5) * a + b",
        "h = silu(sum(n * g, D)) * sum(n * u, D)",
        "r = x + sum(h * o, F)",
        "y = r * rsqrt(mean(r * r, D) + 1e-6) * c",
    ]
    return text("x:T, D; a:D; b:D; g:F, D; u:F, D; o:D, F; c:D", compute, "y", wrt)


def sinkhorn(steps: int) -> str:
    """Rows and columns of a matmul normalised in turn, with gradients."""
    names = ["s0"]
    compute = ["s0 = sum(a * b, K)"]
    for n in range(steps):
        axis = "NP"[n % 2]
        names.append(f"s{n + 1}")
        compute.append(f"{names[-1]} = {names[-2]} - logsumexp({names[-2]}, {axis})")
    return text("a:N, Q, K; b:P, Q, K", [*compute, f"y = exp({names[-1]})"], "y", "a b")


def pooling() -> str:
    """The largest of 3 by 3 pixels, two apart, padded by one."""
    at = [f"2 * index(P) + {i - 1}" for i in range(3)], [f"2 * index(Q) + {j - 1}" for j in range(3)]
    taken = [
        f"where(({r} >= 0) & ({r} < size(H)) & ({c} >= 0) & ({c} < size(W)), take(take(x, {r}, H), {c}, W), -inf)"
        for r in at[0]
        for c in at[1]
    ]
    nested = taken[0]
    for one in taken[1:]:
        nested = f"maximum({nested}, {one})"
    return text("x:B, H, W; like:P, Q", [f"y = {nested} + 0 * like"], "y", "x")


def maxima(terms: int, axes: str = "N") -> str:
    """The largest of several inputs, with gradients."""
    names = [f"x{n}" for n in range(terms)]
    nested = names[0]
    for name in names[1:]:
        nested = f"maximum({nested}, {name})"
    return text("; ".join(f"{name}:{axes}" for name in names), [f"y = {nested}"], "y", " ".join(names))


def attentions(count: int) -> str:
    compute, results = [], []
    for n in range(count):
        compute += [f"s{n} = sum(q{n} * k{n}, D)", f"o{n} = sum(softmax(s{n}, N) * v{n}, N)"]
        results.append(f"o{n}")
    inputs = [f"q{n}:M, D; k{n}:N, D; v{n}:N, E" for n in range(count)]
    return text("; ".join(inputs), [*compute, f"y = {' + '.join(results)}"], "y")


def choices(terms: int) -> str:
    nested = "x"
    for n in range(terms):
        nested = f"where(x > {n}, {n} * x, {nested})"
    return text("x:N", [f"y = {nested}"], "y", "x")


CASES = {
    "20 lines of two softmaxes": softmaxes(20),
    "layer norm, gated MLP, RMS norm": gated_mlp(),
    "the same, gradients": gated_mlp("x a b g u o c"),
    "13 residual norms, gradient": residual_norms(13),
    "one step of Sinkhorn, gradients": sinkhorn(1),
    "6 steps of Sinkhorn, gradients": sinkhorn(6),
    "8 steps of Sinkhorn, gradients": sinkhorn(8),
    "largest of 3 x 3 pixels, gradient": pooling(),
    "maximum of 5, gradients": maxima(5),
    "maximum of 8, gradients": maxima(8),
    "maximum of 8 matrices, gradients": maxima(8, "M, N"),
    "4 attentions": attentions(4),
    "8 attentions": attentions(8),
    "90 nested choices, gradient": choices(90),
}


def repository() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).glob("*.toml")):
            if path.stem != "DEVICE":
                yield f"{folder}/{path.name}", path.read_text(encoding="utf-8")


class TooLong(BaseException):
    """The limit of CPU time is reached."""


def planned(name: str, spec: str, profile: bool, limit: int) -> None:
    def stop(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGXCPU, stop)
    gc.set_threshold(500_000)  # As the command line does.
    before = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(before) + limit, -1))
    profiled = cProfile.Profile()
    took = f"more than {limit}"
    with suppress(TooLong), profiled if profile else nullcontext():
        check(read_spec(name, spec))
        took = f"{time.process_time() - before:.2f}"
    if profile:
        pstats.Stats(profiled).sort_stats("cumulative").print_stats(50)
    print(f"{name:42} {took:>12} s", flush=True)


def run(cases: Iterable[tuple[str, str]], profile: bool, limit: int) -> None:
    context = multiprocessing.get_context("fork")
    for name, spec in cases:
        process = context.Process(target=planned, args=(name, spec, profile, limit))
        process.start()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the specs whose names have this text")
    parser.add_argument("--repository", action="store_true", help="those of the repository, too")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--limit", type=int, default=SECONDS, help="CPU seconds after which a spec is given up")
    given = parser.parse_args()
    cases = [*CASES.items(), *(repository() if given.repository else ())]
    run(((name, spec) for name, spec in cases if given.only in name), given.profile, given.limit)


if __name__ == "__main__":
    main()
