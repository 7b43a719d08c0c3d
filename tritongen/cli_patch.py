"""The command `patch`: which regions of a model are operators of specs."""

from __future__ import annotations

import click

from .cli_output import CLEAN, FINDINGS, print_diagnostics


@click.command()
@click.argument("model")
@click.option("--example", default="", help='Tensors of a call by name: "input_ids=i64[2,128] labels=i64[2,128]".')
@click.option("--specs", multiple=True, metavar="PATH", help="A spec or a folder of specs; the settings' if left out.")
@click.option("--results", default="", metavar="NAMES", help="The results that are needed: others are cut.")
def patch(model: str, example: str, specs: tuple[str, ...], results: str) -> int:
    """Show which regions of MODEL compute what specs are: package.module:Model(config), or FILE.py:model."""
    from .diagnostics.report import Rejected
    from .importing.targets import torch_or_unavailable
    from .patching import run

    torch_or_unavailable()
    try:
        found = run.search_model(model, example, specs, results.replace(",", " ").split())
    except Rejected as rejected:
        print_diagnostics(rejected.diagnostics)
        return FINDINGS
    click.echo(run.as_text(found))
    return CLEAN
