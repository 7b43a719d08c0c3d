"""The commands that look at kernels without a GPU, and at versions of Triton: `compile`, `formula`, `doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, product
from operator import itemgetter
from typing import TYPE_CHECKING

import click

from .cli_output import CLEAN, FINDINGS, FORMAT, MISSING, aligned, count, echo_json, print_diagnostics, rejecting, watch

if TYPE_CHECKING:
    from .compiling.lock import Kernel
    from .project.formulas import Checked
    from .project.gate import Report
    from .project.upgrade import Upgrade

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
    """The rows of a table: for each operator and target the number of kernels, and maxima of their facts."""
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


@click.command()
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--test", "words", multiple=True, metavar="WORD", help="Only tests whose names have this word.")
@FORMAT
def formula(paths: tuple[str, ...], words: tuple[str, ...], form: str) -> int:
    """Check that kernels of the specs in PATHS compute their math, in every configuration, to the last bit."""
    from .project.formulas import check_formulas, findings_of

    with rejecting("nothing was checked", form):
        checked = check_formulas(paths, words, watch("checking"))
    findings = findings_of(checked)
    if form == "json":
        verdicts = [vars(verdict) for one in checked for verdict in one.verdicts]
        echo_json(findings, verdicts=verdicts)
    else:
        for one in checked:
            click.echo(_line(one))
        print_diagnostics(findings, form)
    return FINDINGS if findings else CLEAN


def _line(checked: Checked) -> str:
    """A line on an operator: how many cases agree, how many differ, and why others were not judged."""
    why = Counter(one.unjudged for one in checked.verdicts if one.unjudged)
    n_equal = sum(not one.unjudged and not one.difference for one in checked.verdicts)
    different = len(checked.findings)
    counts = [f"{count(n_equal, 'case')} alike", f"{different:,} different" if different else ""]
    counts += [f"{number:,} not judged ({reason})" for reason, number in sorted(why.items())]
    return f"{checked.op}: {', '.join(filter(None, counts))}"


@click.command()
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--upgrade", "python", metavar="PYTHON", help="A Python with another Triton, to compare kernels with.")
@click.option("--target", "targets", multiple=True, help="With --upgrade: a GPU such as sm_90. Else as `compile`.")
def doctor(paths: tuple[str, ...], python: str | None, targets: tuple[str, ...]) -> int:
    """Show which versions are installed, and whether they suffice; or what another Triton changes.

    With --upgrade, compile the kernels of the specs in PATHS with the Triton of another Python too, check that they
    compute their math there, and show what that changes.
    """
    if python:
        return _upgrade(python, paths, targets)
    if paths or targets:
        raise click.UsageError("PATHS and --target are of --upgrade PYTHON")
    from .project.doctor import diagnose

    enough = True
    for name, found, good in diagnose():
        enough = enough and good
        click.echo(f"{click.style(f'{name:10}', bold=True)} {found}")
    return CLEAN if enough else MISSING


def _upgrade(python: str, paths: tuple[str, ...], targets: tuple[str, ...]) -> int:
    from .project.gate import compile_specs
    from .project.upgrade import triton_of, upgrade

    triton = triton_of(python)
    with rejecting("nothing was compared"):
        reports = compile_specs(paths, targets, None, False, watch("compiling"))
    found = upgrade(python, triton, paths, targets)
    kernels = [kernel for one in reports for kernel in one.kernels]
    versions = {one.lock.triton for one in reports}
    click.echo(f"{count(len(kernels), 'kernel')} by Triton {', '.join(sorted(versions))} and {found.triton}")
    moves = [*found.moves(kernels)]
    for move in moves:
        click.echo(f"{'worse' if move.worse else 'moved'}  {move.kernel.shown}: {move.changes}")
    for path, several in groupby(found.diagnostics, key=itemgetter("path")):
        first, *others = several
        more = f" (and {count(len(others), 'other')})" if others else ""
        click.echo(f"{first['code']}  {path}: {first['message']}{more}")
    n_worse = sum(bool(one.worse) for one in moves)
    n_both = len(found.both(kernels))
    same, n_lost = n_both - len(moves), len(kernels) - n_both
    click.echo(
        f"{same:,} take the same, {len(moves) - n_worse:,} moved, {n_worse:,} are worse; {_wrong(found, n_lost)}"
    )
    return FINDINGS if n_worse or n_lost or found.diagnostics else CLEAN


def _wrong(found: Upgrade, n_lost: int) -> str:
    said = [f"{count(n_lost, 'kernel')} did not compile"] if n_lost else []
    said += [count(len(found.diagnostics), "finding")] if found.diagnostics else []
    return ", ".join(said) or "all compile, and compute their math"
