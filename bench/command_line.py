"""What the command line costs: start-up, a no-op build and a cold build of many specs.

    python bench/command_line.py [--specs 1000] [--check]

Prints a Markdown table for docs/. With --check it fails where a figure is above its limit.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from black import format_str
from black.mode import Mode, TargetVersion

from tritongen.project.starters import STARTERS, starter

FORBIDDEN = ("jinja2", "black", "torch", "multiprocessing", "triton", "numpy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--specs", type=int, default=1000)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), options.specs)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{platform.machine()}, {cores} cores, Python {platform.python_version()}\n")
    print("| what | time | against | time | ratio | limit |\n|---|---|---|---|---|---|")
    for what, taken, against, base, limit in rows:
        ratio = f"{taken / base:.2f}"
        print(f"| {what} | {told(taken)} | {against} | {told(base)} | {ratio} | {limit} |")
    if options.check and any(taken > limit * base for _, taken, _, base, limit in rows):
        sys.exit(1)


def measure(folder: Path, count: int) -> list[tuple[str, float, str, float, float]]:
    write_specs(folder, count)
    click = ["-c", "import click"]
    plain = ["-c", "import click, tomllib, hashlib, json"]
    build = ["-m", "tritongen", "build"]
    started = time.perf_counter()
    run(build, folder)
    cold = time.perf_counter() - started
    assert not (found := imported(build, folder)), f"a no-op build imports {found}"
    times = interleaved([click, ["-m", "tritongen", "--help"], plain, build], folder)
    formatting, cores = black_alone(folder / "generated")
    return [
        ("`tritongen --help`", times[1], "`import click`", times[0], 1.5),
        (
            f"no-op `tritongen build` of {count:,} specs",
            times[3],
            "`import click, tomllib, hashlib, json`",
            times[2],
            4.0,
        ),
        (
            f"cold `tritongen build` of {count:,} specs",
            cold,
            f"`black.format_str` of its files, / {cores} cores",
            formatting / cores,
            1.5,
        ),
    ]


def write_specs(folder: Path, count: int) -> None:
    (folder / "tritongen.toml").write_text('out = "generated"\n')
    (folder / "specs").mkdir()
    for number in range(count):
        family = list(STARTERS)[number % len(STARTERS)]
        name = f"{family}_{number:04}"
        (folder / "specs" / f"{name}.toml").write_text(starter(name, family))


def run(arguments: list[str], folder: Path) -> None:
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, capture_output=True)


def imported(arguments: list[str], folder: Path) -> set[str]:
    """Which of the forbidden modules a command imports."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    return names & set(FORBIDDEN)


def interleaved(commands: list[list[str]], folder: Path, rounds: int = 21) -> list[float]:
    """The median time of each command, taken in turns so that a slow moment hits all alike."""
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(rounds):
        for taken, command in zip(times, commands, strict=True):
            started = time.perf_counter()
            run(command, folder)
            taken.append(time.perf_counter() - started)
    return [statistics.median(taken) for taken in times]


def black_alone(out: Path) -> tuple[float, int]:
    """How long black takes over all generated files in one process, and the cores here."""
    mode = Mode(target_versions={TargetVersion.PY310})
    texts = [path.read_text() for path in sorted(out.rglob("*.py"))]
    started = time.perf_counter()
    for text in texts:
        assert format_str(text, mode=mode) == text
    taken = time.perf_counter() - started
    return taken, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def told(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


if __name__ == "__main__":
    main()
