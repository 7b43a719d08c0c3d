"""The commands that explain the language: `explain`, `functions`."""

from __future__ import annotations

import click

from .cli_output import CLEAN, WRONG, print_diagnostics


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> int:
    """Explain the diagnostic CODE, or list all codes, or those of a topic such as axes."""
    from .diagnostics.codes import CODES
    from .diagnostics.report import did_you_mean

    known = dict.fromkeys(one.topic for one in CODES.values())
    topics = [topic for topic in known if code is None or code.lower() == topic]
    for place, topic in enumerate(topics):
        click.echo(click.style(f"{chr(10) if place else ''}{topic}", bold=True))
        for one in (one for one in CODES.values() if one.topic == topic):
            click.echo(f"{one.code}  {one.title}")
    if code is None:
        click.echo("\n`tritongen explain CODE` explains one; `tritongen functions` lists the language")
    if topics or code is None:
        return CLEAN
    found = CODES.get(code.upper())
    if found is None:
        hint = did_you_mean(code.upper(), CODES, "`tritongen explain` lists them")
        raise click.UsageError(f"there is no code '{code}'; {hint}")
    click.echo(click.style(f"{found.code}: {found.title}", bold=True))
    click.echo(f"\n{found.explanation}")
    return CLEAN


@click.command()
@click.argument("name", required=False)
def functions(name: str | None) -> int:
    """List the functions and operators of the language, or say all of the one called NAME."""
    from .diagnostics.report import did_you_mean
    from .lang.catalogue import entries, find
    from .lang.habits import ANSWERS

    known = entries()
    if name is None:
        topics = dict.fromkeys(one.topic for one in known)
        for place, topic in enumerate(topics):
            click.echo(click.style(f"{chr(10) if place else ''}{topic}", bold=True))
            width = max(len(one.form) for one in known if one.topic == topic)
            for one in (one for one in known if one.topic == topic):
                click.echo(f"{one.form:{width}}  {one.summary}")
        return CLEAN
    found = find(name)
    if found is None:
        words = {word: word for word in ("x", "y", "z", "M", "N", "K")} | {"axes": "M, N", "plus": ""}
        instead = ANSWERS[name].format(**words) if name in ANSWERS else ""
        hint = instead or did_you_mean(name, (one.name for one in known), "`tritongen functions` lists them")
        raise click.UsageError(f"there is no function '{name}'; {hint}")
    for line in found.lines():
        click.echo(line)
    return CLEAN


@click.command()
@click.argument("spec", type=click.Path(exists=True, dir_okay=False))
def grad(spec: str) -> int:
    """Print the derived gradient of SPEC as a spec of its own, which builds as it is."""
    from .diagnostics.report import Rejected
    from .operator.printed import printed_gradient
    from .project.render import made_of
    from .project.settings import find_projects

    source = find_projects((spec,))[0].sources[0]
    try:
        _, read, _ = made_of(source, lambda _: None)
        if read.grad is None:
            raise click.UsageError(f"{source.shown} has no [grad]: its `wrt` are the inputs to differentiate by")
        click.echo(made_of(source, printed_gradient)[2], nl=False)
    except Rejected as rejected:
        print_diagnostics(rejected.diagnostics)
        return WRONG
    return CLEAN


LANGUAGE = (explain, functions, grad)
