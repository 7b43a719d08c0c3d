"""The command `compile`: a gate for emitted kernels, without a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from .cli_output import CLEAN, FINDINGS, FORMAT, count, echo_json, print_diagnostics, reject, watch

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
    from .compiling.targets import BadTarget
    from .diagnostics.report import Rejected
    from .project.gate import compile_specs

    if checks and updates:
        raise click.UsageError("--check compares with kernels.lock, and --update writes it: give one of them")
    try:
        reports = compile_specs(paths, targets, sizes, checks, watch("compiling"))
    except Rejected as rejected:
        return reject(rejected.diagnostics, form, "nothing was compiled")
    except BadTarget as error:
        raise click.BadParameter(str(error), param_hint="--target") from None
    findings = [one for report in reports for one in report.findings]
    if form == "json":
        kernels = [one for report in reports for one in report.kernels]
        echo_json(findings, kernels=[one.data() for one in kernels])
    else:
        for report in reports:
            _print_table(report)
        print_diagnostics(findings, form)
    if updates:
        _update(reports)
    return FINDINGS if findings else CLEAN


def _print_table(report: Report) -> None:
    """The most that kernels of an operator take on a target, a line each."""
    rows: list[tuple[str, ...]] = [("operator", "target", "kernels", *_MOST)]
    targets = report.targets
    for op in report.ops:
        for target in targets:
            found = [one for one in report.kernels if (one.op, one.target) == (op, target)]
            rows.append((op, target, str(len(found)), *(f"{_most(found, name):,}" for name in _MOST)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:{'<' if place < 2 else '>'}{widths[place]}}" for place, cell in enumerate(row)]
        click.echo("  ".join(cells))
    kernels, ops = count(len(report.kernels), "kernel"), count(len(report.ops), "operator")
    click.echo(f"{kernels} of {ops} for {', '.join(targets)}, by Triton {report.lock.triton}")


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
