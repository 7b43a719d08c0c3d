"""The tables of the documents, made from the code: `python docs/tables.py` writes them anew."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path

import click

from tritongen.cli import cli
from tritongen.diagnostics.codes import CODES
from tritongen.lang.catalogue import entries, written
from tritongen.lang.functions import FUNCTIONS, OPERATORS
from tritongen.lang.reductions import REDUCTIONS

HERE = Path(__file__).parent
PAGES = (HERE / "spec.md", HERE / "import.md", HERE.parent / "README.md")


def table(header: str, rows: Iterable[tuple[str, ...]]) -> str:
    names = header.split(" | ")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def functions() -> str:
    rows = ((f"`{FUNCTIONS[name].form}`", takes, gives, summary) for name, takes, gives, summary in _functions())
    return table("function | arguments | result | meaning", rows)


def _functions() -> Iterable[tuple[str, str, str, str]]:
    known = {one.name: one for one in entries()}
    return ((name, known[name].takes, known[name].gives, known[name].summary) for name in FUNCTIONS)


def operators() -> str:
    rows = ((f"`{written(sign)}`", f"`{name}`", FUNCTIONS[name].summary) for sign, name in OPERATORS.items())
    return table("operator | function | meaning", rows)


def reductions() -> str:
    known = {one.name: one for one in entries() if one.name in REDUCTIONS}
    rows = ((f"`{one.form}`", one.takes, REDUCTIONS[name].summary) for name, one in known.items())
    return table("reduction | argument | meaning", rows)


def codes() -> str:
    return table("code | meaning", ((code, one.title) for code, one in CODES.items()))


def commands() -> str:
    rows = []
    for name, command in cli.commands.items():
        given = [metavar(one) for one in command.params]
        rows.append((f"`{' '.join(['tritongen', name, *given])}`", first_line(command.help)))
    return table("command | does", rows)


def metavar(one: click.Parameter) -> str:
    name = one.opts[0] if isinstance(one, click.Option) else one.opts[0].upper()
    return name if one.required else f"[{name}]"


def first_line(text: str | None) -> str:
    return (text or "").split("\n\n")[0].replace("\n", " ")


def aten() -> str:
    """The operators of the table, by the module that has them; with other overloads and private names left out."""
    from tritongen.importing import operators
    from tritongen.importing.table import OPERATORS

    kinds = [one.name for one in pkgutil.iter_modules(operators.__path__)]
    found: dict[str, set[str]] = {kind: set() for kind in kinds}
    for name, build in OPERATORS.items():
        if not name.startswith("_") and not build.__name__.startswith("_no_"):
            found[build.__module__.rpartition(".")[2]].add(name.partition(".")[0])
    rows = ((kind, " ".join(f"`{one}`" for one in sorted(found[kind]))) for kind in kinds)
    return table("kind | operators of ATen", rows)


TABLES = {
    "aten": aten,
    "operators": operators,
    "functions": functions,
    "reductions": reductions,
    "codes": codes,
    "commands": commands,
}


def current(page: str) -> str:
    """The page with its tables as the code has them now."""

    def made(found: re.Match[str]) -> str:
        return f"{found[1]}{TABLES[found[2]]()}\n{found[3]}"

    return re.sub(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", made, page, flags=re.DOTALL)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(current(path.read_text(encoding="utf-8")), encoding="utf-8")
