"""The command line. Only click and a constant are imported up here: `--help` must not wait for the rest."""

from __future__ import annotations

import gc
import os
import sys
from itertools import groupby
from typing import TYPE_CHECKING, NoReturn

import click

from . import __version__
from .cli_bench import bench as bench_
from .cli_kernels import compile_, doctor, formula
from .cli_language import LANGUAGE
from .cli_output import (
    CLEAN,
    FINDINGS,
    FORMAT,
    MISSING,
    WRONG,
    count,
    echo_json,
    print_diagnostics,
    rejecting,
    watch,
    write_file,
)
from .cli_page import page
from .cli_torch import import_, patch
from .spec.lengths import LENGTH

if TYPE_CHECKING:
    from .project.build import Built, Drift

BUG, INTERRUPTED = 3, 130

_PATHS = click.argument("paths", nargs=-1, type=click.Path())


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tritongen")
def cli() -> None:
    """Math in, reviewed Triton kernels out.

    A TOML spec states an operator's math over named axes; `tritongen build` turns it into a folder
    of readable Triton source that is yours to check in.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command, and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    gc.set_threshold(500_000)  # Compiling makes no cycles; looking for them takes an eighth.
    try:
        code = cli.main(arguments, prog_name="tritongen", standalone_mode=False)
        return code if isinstance(code, int) else CLEAN
    except click.ClickException as error:
        import io

        from .diagnostics.report import printable

        stream = io.StringIO()
        error.show(stream)
        click.echo("\n".join(map(printable, stream.getvalue().expandtabs().rstrip("\n").split("\n"))), err=True)
        return WRONG
    except (click.Abort, KeyboardInterrupt):
        click.echo("\ninterrupted", err=True)
        return INTERRUPTED
    except OSError as error:
        from .diagnostics.report import printable

        click.echo(printable(f"tritongen: {error.filename or 'error'}: {error.strerror or error}"), err=True)
        return WRONG
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    from .diagnostics.report import Unavailable

    if isinstance(error, Unavailable):
        click.echo(f"tritongen: {error}", err=True)
        return MISSING
    import traceback

    from .project.render import Bug

    trace = str(error) if isinstance(error, Bug) else traceback.format_exc()
    message = f"tritongen {__version__}: this is a bug of tritongen, not of your spec."
    click.echo(f"{message} Please report it with what follows.\n\n{trace}", err=True)
    return BUG


@cli.command()
@_PATHS
@click.option("--force", is_flag=True, help="Overwrite files that were edited by hand.")
@FORMAT
def build(paths: tuple[str, ...], force: bool, form: str) -> int:
    """Write the kernels of the specs in PATHS (the settings' specs by default)."""
    from .project.build import build as build_tree

    with rejecting("nothing was written", form):
        built = build_tree(paths, force, watch=watch("rendering"), waits=_waits)
    if form == "json":
        echo_json(
            diagnostics=(*built.refused, *built.strays, *built.warnings),
            specs=built.specs,
            written=built.written,
            removed=built.removed,
            shared=built.shared,
        )
    else:
        print_diagnostics((*built.refused, *built.warnings), form)
        for one in built.strays:
            click.echo(f"note {one.code}: {one.place}: {one.message}; {one.hint}", err=True)
        _summarise_build(built)
    return FINDINGS if built.refused else CLEAN


@cli.command()
@_PATHS
@click.option("--diff", is_flag=True, help="Show what would change.")
@FORMAT
def check(paths: tuple[str, ...], diff: bool, form: str) -> int:
    """Render the specs in PATHS again, and report files that differ from the result."""
    from .project.build import check as check_tree

    with rejecting("nothing was compared", form):
        drift = check_tree(paths, watch=watch("rendering"))
    if form == "json":
        echo_json(diagnostics=drift.findings, specs=drift.specs)
        return FINDINGS if drift.findings else CLEAN
    print_diagnostics(drift.findings, form)
    if diff:
        _show_diff(drift)
    found = len(drift.findings)
    # `build` does not overwrite files that were edited by hand, unless `--force` is given.
    force = " --force" if all(one.code in ("TG704", "TG705") for one in drift.findings) else ""
    mend = f"run `tritongen build{force}`" if any(one.code != "TG710" for one in drift.findings) else "see the above"
    wrong = f"{count(found, 'file')} not up to date; {mend}"
    click.echo(f"{count(drift.specs, 'spec')}: {wrong if found else 'up to date'}")
    return FINDINGS if drift.findings else CLEAN


@cli.command()
@click.argument("spec", type=click.Path(exists=True, dir_okay=False))
@click.argument("file", default="kernels.py")
def show(spec: str, file: str) -> int:
    """Print FILE (kernels.py by default) as `build` would write it for SPEC."""
    from .diagnostics.report import did_you_mean
    from .project.build import show as show_spec

    with rejecting("nothing was written"):
        rendered = show_spec(spec)
    if file not in rendered.files:
        hint = did_you_mean(file, rendered.files, f"its files are {', '.join(rendered.files)}")
        raise click.UsageError(f"'{rendered.op}' has no file '{file}'; {hint}")
    click.echo(rendered.files[file], nl=False)
    return CLEAN


@cli.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option(
    "--sizes",
    default="",
    metavar="M=4096,N=11008",
    help=f"Lengths of axes; else those of [bench] or of the emitted benchmark, or {LENGTH:,}.",
)
@click.option(
    "--device",
    default="h100",
    help="The device whose roofline gives the times: a100, h100, h200, b200, mi300x, or your own as bandwidth and"
    " matmul rate, 3.3TB/s,990TFLOP/s.",
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="The output format.")
def plan(paths: tuple[str, ...], sizes: str, device: str, form: str) -> int:
    """Show the steps that the specs in PATHS become, forward and backward, and what each costs."""
    from .project.plan import plan as plan_specs
    from .roofline.data import as_data
    from .roofline.devices import device_of
    from .roofline.sizes import parsed
    from .roofline.text import as_text

    with rejecting("nothing was planned", form):
        accounts, warnings = plan_specs(paths, parsed(sizes), device_of(device))
    if form == "json":
        echo_json(diagnostics=warnings, plans=[as_data(one) for one in accounts])
    else:
        click.echo("\n\n".join(map(as_text, accounts)), nl=False)
        print_diagnostics(warnings, form)
    return CLEAN


@cli.command()
def init() -> int:
    """Start a project here: settings, a first spec, and the schema of specs for editors."""
    from .project.settings import FILE
    from .project.starters import SCHEMA, SETTINGS, starter

    example = os.path.join("specs", "rms_norm.toml")
    for path, text in (
        (FILE, SETTINGS),
        (example, starter("rms_norm", "rowwise", "Root-mean-square normalisation over the last axis.")),
        (os.path.join("specs", SCHEMA), _schema_text()),
    ):
        if os.path.exists(path):
            click.echo(f"kept {path}")
        else:
            write_file(path, text)
    click.echo("now run: tritongen build")
    return CLEAN


@cli.command()
@click.argument("name")
@click.option(
    "--family",
    type=click.Choice(["elementwise", "reduction", "rowwise", "matmul", "attention"]),
    default="elementwise",
    help="The kind of math that the first version has.",
)
def new(name: str, family: str) -> int:
    """Write a first version of a spec called NAME."""
    from .diagnostics.report import Mistakes
    from .project.settings import find_settings
    from .project.starters import SCHEMA, starter
    from .spec.read import read_spec
    from .spec.toml import BadToml

    settings = find_settings(os.getcwd())
    folder = os.path.join(settings.root, settings.specs[0])
    text = starter(name, family, has_schema=os.path.exists(os.path.join(folder, SCHEMA)))
    try:
        read_spec(name, text)
    except BadToml:
        raise click.UsageError(f"{name!r} cannot be a name") from None
    except Mistakes as error:
        raise click.UsageError(str(error)) from None
    path = os.path.join(folder, f"{name}.toml")
    if os.path.exists(path):
        raise click.UsageError(f"{os.path.relpath(path)} exists already")
    write_file(os.path.relpath(path), text)
    return CLEAN


@cli.command()
def schema() -> int:
    """Print the JSON Schema of a spec, for editors."""
    click.echo(_schema_text(), nl=False)
    return CLEAN


for _command in (doctor, compile_, formula, bench_, import_, patch, *LANGUAGE, page):
    cli.add_command(_command)


def _summarise_build(built: Built) -> None:
    for what, paths in (("wrote", built.written), ("removed", built.removed)):
        for folder, files in groupby(sorted(paths, key=os.path.dirname), os.path.dirname):
            click.echo(f"{what} {folder}/ ({', '.join(map(os.path.basename, files))})")
    for news in built.shared:
        click.echo(_shortened(news))
    specs = count(built.specs, "spec")
    if built.refused:
        click.echo(f"{specs}: nothing was written", err=True)
    elif built.written or built.removed:
        wrote = count(len(built.written), "file") + " written"
        removed = f", {len(built.removed)} removed" if built.removed else ""
        click.echo(f"{specs}: {wrote}{removed}")
    else:
        click.echo(f"{specs}: nothing to do" + (", for all files are up to date" if built.specs else ""))


def _shortened(text: str, names: int = 8) -> str:
    """A comma-separated list, cut after `names` items."""
    first, left = text.split(", ")[:names], text.count(", ") + 1 - names
    return ", ".join(first) + (f", and {left} more" if left > 0 else "")


def _show_diff(drift: Drift) -> None:
    import difflib

    from .project.settings import shown_path

    for change in drift.changes:
        path = shown_path(change.path)
        old, new = change.old.splitlines(True), (change.new or "").splitlines(True)
        for line in difflib.unified_diff(old, new, path, f"{path} from {change.source}"):
            color = {"+": "green", "-": "red", "@": "cyan"}.get(line[0])
            click.echo(click.style(line, fg=color), nl=False)


def _schema_text() -> str:
    import json

    from .spec.schema import schema as spec_schema

    return json.dumps(spec_schema(), indent=2) + "\n"


def _waits(out: str) -> None:
    click.echo(f"waiting for another `tritongen build`, which is writing {out}/", err=True)
