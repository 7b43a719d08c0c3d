"""Takes functions out of the sources in templates/, with what they call, as text."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from pathlib import Path

MEMO = "_remembered"


@functools.cache
def _functions(path: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name -> source text and the names it mentions, in the order of the file."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            names = tuple(sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)}))
            found[node.name] = ("\n".join(lines[first - 1 : node.end_lineno]), names)
    return found


def extract(paths: Iterable[Path], wanted: Iterable[str], forgetful: bool = False) -> tuple[str, ...]:
    """The sources of the wanted functions and of those they call, callees first.

    Where they are forgetful, they keep no results: what torch traces has lengths that are no keys.
    """
    known: dict[str, tuple[str, tuple[str, ...]]] = {}
    for path in paths:
        known.update(_functions(path))
    if forgetful:
        known.pop(MEMO, None)
        known = {name: (text.removeprefix(f"@{MEMO}\n"), names) for name, (text, names) in known.items()}
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order or name not in known:
            return
        for other in known[name][1]:
            if other != name:
                visit(other)
        order.append(name)

    for name in sorted(wanted):
        visit(name)
    return tuple(known[name][0] for name in order)


def mentioned(texts: Iterable[str], paths: Iterable[Path]) -> set[str]:
    """Which functions of some sources some texts call."""
    known = {name for path in paths for name in _functions(path)}
    names: set[str] = set()
    for text in texts:
        names |= {word for word in known if re.search(rf"\b{word}(\(|\.apply\(|,)", text)}
    return names
