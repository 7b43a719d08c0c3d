"""The commands that need PyTorch: `import` writes a spec of a function, `patch` finds operators in a model."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click

from .cli_output import CLEAN, FINDINGS, count, print_diagnostics, refuse_to_overwrite, write_file

if TYPE_CHECKING:
    from .importing.partial import Partial
    from .importing.run import Result
    from .patching import run


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
    from .importing.run import Result

    if checked:
        from .importing.checking import prepare

        prepare()
    try:
        found, notes = _found(target, init, example, name, partial)
    except Rejected as rejected:
        print_diagnostics(rejected.diagnostics)
        click.echo(f"{count(len(rejected.diagnostics), 'problem')}; nothing was written", err=True)
        return FINDINGS
    for note in notes:
        click.echo(note, err=True)
    if checked and not _is_right(found):
        return FINDINGS
    if isinstance(found, Result):
        files = {out or "": found.imported.text}
    else:
        stem = os.path.splitext(out or "")[0]
        files = {f"{stem}_{place}.toml": one.imported.text for place, one in enumerate(found.regions, 1)}
        files[f"{stem}.py"] = found.source
    refuse_to_overwrite(files if out else [], force)
    for path, text in files.items():
        if out:
            write_file(path, text)
        else:
            click.echo(text, nl=len(files) > 1)
    return CLEAN


def _found(
    target: str, init: tuple[str, ...], example: str, name: str, partial: bool
) -> tuple[Result | Partial, list[str]]:
    """The spec of a target, or with `partial` specs of its regions if there is none, and notes. Raises `Rejected`."""
    from .diagnostics.report import Rejected, as_text
    from .importing.run import imported, partially

    try:
        found = imported(target, init, example, name)
        return found, [f"note: {one}" for one in found.imported.notes]
    except Rejected as rejected:
        if not partial or any(one.code != "TG001" for one in rejected.diagnostics):
            raise
        left = [as_text(one).replace("error TG001", "left out", 1) for one in rejected.diagnostics]
        return partially(target, init, example, name), left


def _is_right(found: Result | Partial) -> bool:
    """Check against the original, print the errors, and return whether all are small."""
    from .importing.checking import check, check_regions
    from .importing.run import Result

    rows, is_right = check(found) if isinstance(found, Result) else check_regions(found)
    for row in rows:
        click.echo(row, err=True)
    if not is_right:
        click.echo("nothing was written", err=True)
    return is_right


@click.command()
@click.argument("model")
@click.option("--example", default="", help='Tensors of a call by name: "input_ids=i64[2,128] labels=i64[2,128]".')
@click.option("--specs", multiple=True, metavar="PATH", help="A spec or a folder of specs; the settings' if left out.")
@click.option("--results", default="", metavar="NAMES", help="The results that are needed: others are cut.")
@click.option("-o", "--out", type=click.Path(dir_okay=False), help="Write a Python file that puts the operators there.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def patch(model: str, example: str, specs: tuple[str, ...], results: str, out: str | None, force: bool) -> int:
    """Show which regions of MODEL compute what specs are: package.module:Model(config), or FILE.py:model."""
    from .diagnostics.report import Rejected
    from .project.package import require

    refuse_to_overwrite([out] if out else [], force)
    require("patch", "torch")
    from .patching.run import as_text, search_model

    try:
        found = search_model(model, example, specs, results.replace(",", " ").split())
        click.echo(as_text(found))
        if out:
            words = ["tritongen", "patch", model, "--example", example]
            words += [word for path in specs for word in ("--specs", path)]
            words += ["--results", results] if results else []
            _write(found, shlex.join(words), out)
    except Rejected as rejected:
        print_diagnostics(rejected.diagnostics)
        return FINDINGS
    return CLEAN


def _write(found: run.Search, command: str, out: str) -> None:
    """Write the Python file that replaces functions. Raises `Rejected` if none can be replaced."""
    from .patching.writing import notes, written

    text, left = written(found, command)
    for note in dict.fromkeys(notes(left)):
        click.echo(f"left out: {note}", err=True)
    write_file(out, text)
