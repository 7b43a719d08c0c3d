"""The command `doctor`: which versions are installed, and what another Triton would change."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import click

from .cli_output import CLEAN, FINDINGS, MISSING, count, rejecting, watch

if TYPE_CHECKING:
    from .project.upgrade import Upgrade


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
