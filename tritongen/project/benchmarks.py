"""`bench`: benchmarks of specs, run on the GPU at hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from ..benching.measure import Wanted, about, benchmark_of, cases_of, measure
from ..benching.run import Case, Figure, Run, joined
from ..diagnostics.report import Unavailable
from .package import PACKAGE, packaged, projects_for

Measured = tuple[Case, list[Figure]]
Watch = Callable[[Iterator[Measured], int], Iterator[Measured]]


def run_benchmarks(
    paths: tuple[str, ...], wanted: Wanted, command: str, watch: Watch, earlier: Run | None = None
) -> Run:
    """Measure the operators of specs in `paths` in the `wanted` cases, until the user interrupts.

    Cases of an `earlier` run are not measured again. Raises `Rejected` for specs that are wrong, `BadRun` if that run
    is of another machine or other versions, and `Unavailable` without torch, triton or a GPU.
    """
    projects = projects_for("bench", paths, "torch", "triton")
    import torch

    if not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        raise Unavailable("`bench` needs a GPU that torch can use, and TRITON_INTERPRET not to be 1")
    known = joined(earlier, Run(about(command, [], wanted.rounds), ())).cases() if earlier else {}
    figures: list[Figure] = []
    for project in projects:
        with packaged(project) as ops:
            try:
                every = (case for op in sorted(ops) for case in cases_of(op, benchmark_of(PACKAGE, op), wanted))
                cases = [case for case in every if case not in known]
                measured = ((case, measure(benchmark_of(PACKAGE, case.op), case, wanted.rounds)) for case in cases)
                for _, found in watch(measured, len(cases)):
                    figures += found
            except KeyboardInterrupt:  # Figures measured until then are shown and written.
                break
    measured_ops = list(dict.fromkeys(one.case.op for one in figures))
    run = Run(about(command, measured_ops, wanted.rounds), tuple(figures))
    return joined(earlier, run) if earlier else run
