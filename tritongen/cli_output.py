"""Output of the commands: diagnostics in a format, progress bars, tables, files, and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from .diagnostics.report import Diagnostic

CLEAN, FINDINGS, WRONG, MISSING = 0, 1, 2, 4

T = TypeVar("T")
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    help="The format of mistakes and findings.",
)


@contextmanager
def rejecting(outcome: str, form: str = "text") -> Iterator[None]:
    """Turn `BadOption` into a usage error, and `Rejected` into printed diagnostics, `outcome`, and an exit code."""
    from .diagnostics.report import BadOption, Rejected

    try:
        yield
    except BadOption as error:
        raise click.BadParameter(str(error), param_hint=error.option) from None
    except Rejected as rejected:
        found = rejected.diagnostics
        if form == "json":
            echo_json(found)
        else:
            print_diagnostics(found, form)
            said = f"{count(len(found), 'mistake')} in {count(len({one.path for one in found}), 'file')}; {outcome}."
            click.echo(f"{said} `tritongen explain {found[0].code}` tells more.", err=True)
        raise click.exceptions.Exit(WRONG) from None


def print_diagnostics(diagnostics: Iterable[Diagnostic], form: str = "text") -> None:
    """Print diagnostics in a format other than JSON."""
    from .diagnostics.report import as_github, as_text

    color = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    for one in diagnostics:
        if form == "github":
            click.echo(as_github(one))
        else:
            click.echo(as_text(one, color), err=True, color=color)


def echo_json(diagnostics: Iterable[Diagnostic], **more: object) -> None:
    """Print diagnostics, and `more` keys, as one JSON object."""
    import json

    from .diagnostics.report import as_data

    data = {"diagnostics": [as_data(one) for one in diagnostics], **more}
    click.echo(json.dumps(data, indent=2))


def refuse_to_overwrite(paths: Iterable[str], force: bool) -> None:
    """Raise `click.UsageError` if one of the files exists, unless `force`."""
    for path in paths:
        if os.path.exists(path) and not force:
            raise click.UsageError(f"{path} exists already; --force overwrites it")


def write_file(path: str, text: str, err: bool = False) -> None:
    """Write a file, creating its folder, and print its path."""
    from .project.tree import naming

    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with naming(path), open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    click.echo(f"wrote {path}", err=err)


def watch(label: str) -> Callable[[Iterator[T], int], Iterator[T]]:
    """A wrapper of results that shows a progress bar if stderr is a terminal."""

    def shown(results: Iterator[T], total: int) -> Iterator[T]:
        if not sys.stderr.isatty():
            yield from results
            return
        with click.progressbar(results, length=total, label=label, file=sys.stderr) as bar:
            yield from bar

    return shown


def aligned(rows: Iterable[Sequence[str]], right: Container[int]) -> Iterator[str]:
    """The lines of a table; columns whose indices are in `right` are right-aligned, others left-aligned."""
    rows = [*rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:{'>' if place in right else '<'}{widths[place]}}" for place, cell in enumerate(row)]
        yield "  ".join(cells).rstrip()


def count(number: int, noun: str) -> str:
    """`1 file`, `2 files`"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
