"""The command `patch`: which regions of a model are operators of specs, and a file that puts those there."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from .cli_output import CLEAN, FINDINGS, print_diagnostics, refuse_to_overwrite, write_file

if TYPE_CHECKING:
    from .patching import run


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
    """Raises `Rejected` where no function can be replaced."""
    from .patching.writing import notes, written

    text, left = written(found, command)
    for note in dict.fromkeys(notes(left)):
        click.echo(f"left out: {note}", err=True)
    write_file(out, text)
