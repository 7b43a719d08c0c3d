"""The command that builds the page in which the generator runs in a browser: `page`."""

from __future__ import annotations

import click

from .cli_output import CLEAN, count, rejecting


@click.command()
@click.argument("out", type=click.Path(file_okay=False))
@click.argument("paths", nargs=-1, type=click.Path())
@click.option(
    "--measured",
    type=click.Path(exists=True, dir_okay=False),
    help="JSON of `tritongen bench`, or a document with tables as docs/performance.md has, which becomes plots.",
)
@click.option(
    "--pyodide",
    type=click.Path(exists=True, dir_okay=False),
    help="The npm package of Pyodide, as `npm pack` leaves it; downloaded without this.",
)
def page(out: str, paths: tuple[str, ...], measured: str | None, pyodide: str | None) -> int:
    """Write a web page to OUT that runs the generator in the browser, with the specs in PATHS to start from."""
    from .benching.run import BadRun
    from .page.build import BadPage, build_page

    try:
        with rejecting("nothing was written"):
            built = build_page(out, paths, pyodide or "", measured or "")
    except BadRun as error:
        raise click.BadParameter(f"{measured}: {error}", param_hint="--measured") from None
    except BadPage as error:
        raise click.UsageError(str(error)) from None
    click.echo(f"wrote {out}/ ({count(built.files, 'file')}, {built.size / 1e6:.1f} MB)")
    if not built.is_compiled:
        click.echo("its Python is not compiled, for want of node 20: it takes three times as long to start")
    click.echo(f"now run: python -m http.server -d {out}")
    return CLEAN
