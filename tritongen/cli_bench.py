"""The command `bench`: emitted benchmarks on the GPU at hand, as a table, files and a report."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from .cli_output import CLEAN, FINDINGS, aligned, count, rejecting, watch, write_file

if TYPE_CHECKING:
    from .benching.run import Run

_FILE = click.Path(dir_okay=False)
_WRITTEN = ("--json", "--csv", "--html", "--docs")


@click.command()
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--dtype", "dtypes", multiple=True, help="A dtype such as float32. Else that of each benchmark.")
@click.option(
    "--call",
    type=click.Choice(["forward", "backward", "both"]),
    default="forward",
    help="What is measured: the operator, or its gradients.",
)
@click.option("--sizes", type=click.Choice(["largest", "every"]), default="every", help="Sizes of the benchmarks.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Medians are of so many rounds.")
@click.option("--json", "json_", type=_FILE, metavar="FILE", help="Write the figures as JSON.")
@click.option("--csv", "csv_", type=_FILE, metavar="FILE", help="Write the figures as CSV.")
@click.option("--html", type=_FILE, metavar="FILE", help="Write a report with plots, as one file.")
@click.option("--docs", type=_FILE, metavar="FILE", help="Write tables of the figures as Markdown, for documentation.")
@click.option(
    "--resume",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    multiple=True,
    help="Measure what this JSON of an interrupted run lacks. Several, as of runs on two GPUs, are joined.",
)
@click.option(
    "--baseline",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Fail on operators that are slower than in this JSON of an earlier run.",
)
def bench(
    paths: tuple[str, ...],
    dtypes: tuple[str, ...],
    call: str,
    sizes: str,
    rounds: int,
    json_: str | None,
    csv_: str | None,
    html: str | None,
    docs: str | None,
    resume: tuple[str, ...],
    baseline: str | None,
) -> int:
    """Measure the operators of the specs in PATHS beside torch, torch.compile and other peers, on this GPU."""
    from .benching.docs import page
    from .benching.measure import Wanted
    from .benching.report import report
    from .benching.run import BadRun, joined, rows
    from .project.benchmarks import run_benchmarks

    before = _read(baseline, "--baseline") if baseline else None
    directions = ("forward", "backward") if call == "both" else (call,)
    wanted = Wanted(dtypes, directions, sizes == "every", rounds)
    command = shlex.join(["tritongen", *_measuring(sys.argv[1:])])
    try:
        earlier = functools.reduce(joined, [_read(one, "--resume") for one in resume]) if resume else None
        with rejecting("nothing was measured"):
            run = run_benchmarks(paths, wanted, command, watch("measuring"), earlier)
    except BadRun as error:
        raise click.BadParameter(f"{', '.join(resume)}: {error}", param_hint="--resume") from None
    click.echo("\n".join(aligned(rows(run), (3, 4, 6, 7))))
    texts: list[tuple[str | None, Callable[[], str]]]
    texts = [(json_, run.json), (csv_, run.csv), (html, lambda: report(run)), (docs, lambda: page(run))]
    for path, text in texts:
        if path:
            write_file(path, text(), err=True)
    failed = [one for figures in run.cases().values() for one in figures if one.error]
    for one in failed:
        click.echo(f"{one.case}: {one.provider} failed: {one.error}", err=True)
    slower = _compare(before, run) if before else 0
    return FINDINGS if slower or any(one.provider == one.case.op for one in failed) else CLEAN


def _measuring(arguments: list[str]) -> Iterator[str]:
    """The arguments without options for output files, which change no figure."""
    given = iter(arguments)
    for one in given:
        if one in _WRITTEN:
            next(given, None)
        elif one.partition("=")[0] not in _WRITTEN:
            yield one


def _read(path: str, option: str) -> Run:
    from .benching.run import BadRun, read_run
    from .resources import read_text

    try:
        return read_run(read_text(path))
    except (BadRun, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint=option) from None


def _compare(before: Run, now: Run) -> int:
    """Print regressions, and return their number."""
    from .benching.run import regressions

    for name in ("device", "torch", "triton"):
        if before.about.get(name) != now.about.get(name):
            click.echo(f"note: {name} was {before.about.get(name)}, and is {now.about.get(name)}", err=True)
    found = [*regressions(before, now)]
    for case, message in found:
        click.echo(f"{case}: {message}", err=True)
    shared = len(before.cases().keys() & now.cases().keys())
    click.echo(f"{count(len(found), 'regression')} in {count(shared, 'case')} that both runs have", err=True)
    return len(found)
