"""How many lines a reviewer of generated operators reads, and how many of them stand in several folders.

    python bench/lines.py [DIR]

DIR is a generated/, or a checkout with one, as this is by default; also a former one, in which kernel.py was what
kernels.py and op.py are. Blank lines and headers count. A definition is a function or a class at the top of a module,
with its decorators; one is repeated where two or more operators have the same bytes. The runtime counts once.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = "_runtime"
TESTING = "_testing"
CODE = ("kernel.py", "kernels.py", "op.py", "configs.py", "configs_backward.py")
KINDS = ("code", "test", "bench", "other")
# Of kernels, operator and configurations together; tests and benchmark together have one budget for all.
BUDGETS = {
    "vector_add": 140,
    "softmax": 420,
    "rms_norm": 850,
    "layer_norm": 950,
    "cross_entropy": 550,
    "matmul": 700,
    "linear_silu_mul": 1300,
}
TESTS = 200


def kind(name: str) -> str:
    if name in CODE:
        return "code"
    first, _, _ = name.partition("_")
    return first if first in KINDS else "other"


def definitions(text: str) -> Iterator[str]:
    """The text of each function and class at the top of a module."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            yield "\n".join(lines[first - 1 : node.end_lineno])


def count(home: Path) -> tuple[dict[str, Counter[str]], Counter[str]]:
    """Lines by operator and kind, the runtime under its own name, and those of repeated definitions by kind."""
    sizes: dict[str, Counter[str]] = defaultdict(Counter)
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted(home.glob("*/*.py")):
        folder, text = path.parent.name, path.read_text(encoding="utf-8")
        sizes[folder][kind(path.name)] += len(text.splitlines())
        if folder not in (RUNTIME, TESTING):
            for definition in definitions(text):
                found[definition].append((folder, kind(path.name)))
    repeated: Counter[str] = Counter()
    for definition, places in found.items():
        if len({folder for folder, _ in places}) > 1:
            for _, what in places:
                repeated[what] += definition.count("\n") + 1
    return sizes, repeated


def table(home: Path) -> str:
    sizes, repeated = count(home)
    sizes.pop(RUNTIME, None)
    sizes.pop(TESTING, None)
    runtime = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (home / RUNTIME).rglob("*.py"))
    lines = ["| operator | kernels, op, configs | budget | test and bench | budget |", "|---|--:|--:|--:|--:|"]
    for name, size in sorted(sizes.items()):
        code, tests = size["code"], size["test"] + size["bench"]
        lines.append(f"| {name} | {marked(code, BUDGETS.get(name))} | {marked(tests, TESTS)} |")
    lines += ["", "| lines | of operators | in definitions of several | share |", "|---|--:|--:|--:|"]
    totals = sum(sizes.values(), Counter())
    for what in KINDS:
        lines.append(row(what, totals[what], repeated[what]))
    lines.append(row("together", totals.total(), repeated.total()))
    own = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in home.glob("*.py"))
    lines += ["", f"{len(sizes)} operators, {runtime:,} lines of runtime, {totals.total() + runtime + own:,} in all."]
    return "\n".join(lines)


def marked(lines: int, budget: int | None) -> str:
    """A figure and its budget, bold where it is above."""
    if budget is None:
        return f"{lines:,} | "
    mark = "**" if lines > budget else ""
    return f"{mark}{lines:,}{mark} | {budget:,}"


def row(what: str, lines: int, repeated: int) -> str:
    return f"| {what} | {lines:,} | {repeated:,} | {repeated / max(1, lines):.1%} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT, metavar="DIR")
    folder = parser.parse_args().folder
    home = folder / "generated" if (folder / "generated").is_dir() else folder
    if not any(home.glob("*/__init__.py")):
        parser.error(f"{home} has no operators")
    print(table(home))


if __name__ == "__main__":
    main()
