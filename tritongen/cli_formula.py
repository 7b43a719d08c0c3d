"""The command `formula`: kernels against their math, without a GPU and without tolerances."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from .cli_output import CLEAN, FINDINGS, FORMAT, count, echo_json, print_diagnostics, rejecting, watch

if TYPE_CHECKING:
    from .project.formulas import Checked


@click.command()
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--test", "words", multiple=True, metavar="WORD", help="Only tests whose names have this word.")
@FORMAT
def formula(paths: tuple[str, ...], words: tuple[str, ...], form: str) -> int:
    """Check that kernels of the specs in PATHS compute their math, in every configuration, to the last bit."""
    from .project.formulas import check_formulas, findings_of

    with rejecting("nothing was checked", form):
        checked = check_formulas(paths, words, watch("checking"))
    findings = findings_of(checked)
    if form == "json":
        verdicts = [vars(verdict) for one in checked for verdict in one.verdicts]
        echo_json(findings, verdicts=verdicts)
    else:
        for one in checked:
            click.echo(_line(one))
        print_diagnostics(findings, form)
    return FINDINGS if findings else CLEAN


def _line(checked: Checked) -> str:
    """How many cases are alike, and why others were not judged."""
    why = Counter(one.unjudged for one in checked.verdicts if one.unjudged)
    alike = sum(not one.unjudged and not one.difference for one in checked.verdicts)
    different = len(checked.findings)
    counts = [f"{count(alike, 'case')} alike", f"{different:,} different" if different else ""]
    counts += [f"{number:,} not judged ({reason})" for reason, number in sorted(why.items())]
    return f"{checked.op}: {', '.join(filter(None, counts))}"
