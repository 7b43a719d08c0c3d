"""The command `import`: PyTorch in, a spec out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from .importing.run import Result

CLEAN, FINDINGS = 0, 1


@click.command(name="import")
@click.argument("target")
@click.option("--example", default="", help='Arguments of a call by name: "x=bf16[4,1024,4096] eps=1e-6".')
@click.option("--init", multiple=True, metavar="K=V", help="An argument with which a module's class is called.")
@click.option("-o", "--out", type=click.Path(dir_okay=False), help="The file to write; printed if left out.")
@click.option("--name", default="", help="The operator's name; that of the function if left out.")
@click.option("--check", "checked", is_flag=True, help="Compare the operator with the original, forward and backward.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def import_(
    target: str, example: str, init: tuple[str, ...], out: str | None, name: str, checked: bool, force: bool
) -> int:
    """Write a spec of TARGET, a function or module of PyTorch: FILE.py:name or package.module:name."""
    from .diagnostics.report import Rejected
    from .importing.run import imported

    if out and os.path.exists(out) and not force:
        raise click.UsageError(f"{out} exists already; --force overwrites it")
    if checked:
        _prepare()
    try:
        result = imported(target, init, example, name)
    except Rejected as rejected:
        return _reject(rejected)
    if checked and not _check(result):
        click.echo("nothing was written", err=True)
        return FINDINGS
    for note in result.imported.notes:
        click.echo(f"note: {note}", err=True)
    if not out:
        click.echo(result.imported.text, nl=False)
        return CLEAN
    os.makedirs(os.path.dirname(out) or ".", exist_ok=True)
    with open(out, "w", encoding="utf-8", newline="\n") as file:
        file.write(result.imported.text)
    click.echo(f"wrote {out}")
    return CLEAN


def _reject(rejected: BaseException) -> int:
    import sys

    from .diagnostics.report import Rejected, as_text

    assert isinstance(rejected, Rejected)
    color = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    for one in rejected.diagnostics:
        click.echo(as_text(one, color), err=True, color=color)
    count = len(rejected.diagnostics)
    click.echo(f"{count} {'problem' if count == 1 else 'problems'}; nothing was written", err=True)
    return FINDINGS


def _prepare() -> None:
    from .importing.checking import prepare
    from .importing.targets import torch_or_unavailable

    torch_or_unavailable()
    prepare()


def _check(result: Result) -> bool:
    from .importing.checking import check

    rows, is_right = check(result)
    for row in rows:
        click.echo(row, err=True)
    return is_right
