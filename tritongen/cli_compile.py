"""The command `compile`: a gate for emitted kernels, without a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING

import click

from .cli_output import CLEAN, FINDINGS, FORMAT, aligned, count, echo_json, print_diagnostics, rejecting, watch

if TYPE_CHECKING:
    from .compiling.lock import Kernel
    from .project.gate import Report

_MOST = ("registers", "local", "shared", "code")


@click.command(name="compile")
@click.argument("paths", nargs=-1, type=click.Path())
@click.option(
    "--target", "targets", multiple=True, help="A GPU such as sm_90 or gfx942. Else those of the lock, or all."
)
@click.option("--sizes", type=click.Choice(["largest", "every"]), help="All of every size, or of the largest.")
@click.option("--check", "checks", is_flag=True, help="Fail on kernels that kernels.lock lacks, or has better.")
@click.option("--update", "updates", is_flag=True, help="Write kernels.lock.")
@FORMAT
def compile_(
    paths: tuple[str, ...], targets: tuple[str, ...], sizes: str | None, checks: bool, updates: bool, form: str
) -> int:
    """Compile the kernels of the specs in PATHS for GPUs that are not at hand, and compare with kernels.lock."""
    from .project.gate import compile_specs

    if checks and updates:
        raise click.UsageError("--check compares with kernels.lock, and --update writes it: give one of them")
    with rejecting("nothing was compiled", form):
        reports = compile_specs(paths, targets, sizes, checks, watch("compiling"))
    findings = [one for report in reports for one in report.findings]
    if form == "json":
        echo_json(findings, kernels=[one.data() for report in reports for one in report.kernels])
    else:
        for report in reports:
            for line in aligned(_rows(report), range(2, 7)):
                click.echo(line)
            kernels, ops = count(len(report.kernels), "kernel"), count(len(report.ops), "operator")
            click.echo(f"{kernels} of {ops} for {', '.join(report.targets)}, by Triton {report.lock.triton}")
        print_diagnostics(findings, form)
    if updates:
        _update(reports)
    return FINDINGS if findings else CLEAN


def _rows(report: Report) -> Iterator[tuple[str, ...]]:
    """The most that kernels of an operator take on a target, a row each."""
    yield "operator", "target", "kernels", *_MOST
    for op, target in product(report.ops, report.targets):
        found = [one for one in report.kernels if (one.op, one.target) == (op, target)]
        yield op, target, str(len(found)), *(f"{_most(found, name):,}" for name in _MOST)


def _most(kernels: Iterable[Kernel], fact: str) -> int:
    return max((one.facts[fact] for one in kernels), default=0)


def _update(reports: Iterable[Report]) -> None:
    from .project.settings import shown_path
    from .project.tree import write

    for report in reports:
        path = shown_path(report.lock_path)
        if any(one.code == "TG711" for one in report.findings):
            click.echo(f"{path} is left as it is: not all kernels compile", err=True)
            continue
        write(report.lock_path, report.lock.text())
        click.echo(f"wrote {path} ({count(len(report.lock.kernels), 'kernel')})", err=True)
