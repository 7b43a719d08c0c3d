"""The command `import`: PyTorch in, a spec out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .cli_output import CLEAN, FINDINGS, count, print_diagnostics, refuse_to_overwrite, write_file

if TYPE_CHECKING:
    from .diagnostics.report import Rejected
    from .importing.partial import Partial
    from .importing.run import Result


@click.command(name="import")
@click.argument("target")
@click.option("--example", default="", help='Arguments of a call by name: "x=bf16[4,1024,4096] eps=1e-6".')
@click.option("--init", multiple=True, metavar="K=V", help="An argument with which a module's class is called.")
@click.option("-o", "--out", type=click.Path(dir_okay=False), help="The file to write; printed if left out.")
@click.option("--name", default="", help="The operator's name; that of the function if left out.")
@click.option("--check", "checked", is_flag=True, help="Compare the operator with the original, forward and backward.")
@click.option("--partial", is_flag=True, help="Write the parts that a spec can say, and Python that calls them.")
@click.option("--force", is_flag=True, help="Overwrite files.")
def import_(
    target: str,
    example: str,
    init: tuple[str, ...],
    out: str | None,
    name: str,
    checked: bool,
    partial: bool,
    force: bool,
) -> int:
    """Write a spec of TARGET, a function or module of PyTorch: FILE.py:name or package.module:name."""
    from .diagnostics.report import Rejected
    from .project.package import require

    refuse_to_overwrite([out] if out else [], force)
    require("import", "torch")
    from .importing.run import imported

    if checked:
        from .importing.checking import prepare

        prepare()
    try:
        result = imported(target, init, example, name)
    except Rejected as rejected:
        if partial and all(one.code == "TG001" for one in rejected.diagnostics):
            return _write_regions(rejected, target, init, example, name, out, force, checked)
        return _reject(rejected)
    if checked and not _is_right(result):
        return FINDINGS
    for note in result.imported.notes:
        click.echo(f"note: {note}", err=True)
    if not out:
        click.echo(result.imported.text, nl=False)
        return CLEAN
    write_file(out, result.imported.text)
    return CLEAN


def _write_regions(
    rejected: Rejected, target: str, init: Sequence[str], example: str, name: str, out: str | None, force: bool,
    checked: bool,
) -> int:  # fmt: skip
    """Writes specs and Python, with what the language cannot say as notes."""
    from .diagnostics.report import Rejected, as_text
    from .importing.run import partially

    try:
        found = partially(target, init, example, name)
    except Rejected as error:
        return _reject(error)
    for one in rejected.diagnostics:
        click.echo(as_text(one).replace("error TG001", "left out", 1), err=True)
    if checked and not _is_right(found):
        return FINDINGS
    stem = os.path.splitext(out)[0] if out else ""
    files = {f"{stem}_{place}.toml": one.imported.text for place, one in enumerate(found.regions, 1)}
    files[f"{stem}.py"] = found.source
    refuse_to_overwrite(files if out else [], force)
    for path, text in files.items():
        if out:
            write_file(path, text)
        else:
            click.echo(text)
    return CLEAN


def _reject(rejected: Rejected) -> int:
    print_diagnostics(rejected.diagnostics)
    click.echo(f"{count(len(rejected.diagnostics), 'problem')}; nothing was written", err=True)
    return FINDINGS


def _is_right(found: Result | Partial) -> bool:
    """Whether a check has small errors alone, which it prints."""
    from .importing.checking import check, check_regions
    from .importing.run import Result

    rows, is_right = check(found) if isinstance(found, Result) else check_regions(found)
    for row in rows:
        click.echo(row, err=True)
    if not is_right:
        click.echo("nothing was written", err=True)
    return is_right
