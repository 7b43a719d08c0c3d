"""Plant bugs in the generator and its templates, one at a time, and list those that its own tests do not find.

    python -m tests.harness.planted_in_generator [--count 60] [--seed 0] [--jobs 2] [--seconds 300]

Each bug is an edit of one expression: a negated comparison or condition, an index off by one, two swapped arguments,
and in the text of kernels an omitted mask, cast or rescale, or a bound off by one. It is planted in a copy of this
repository, in which the tests related to its file run until one fails: first the default ones, then, with --long, all
of them. Bugs that only the latter find are missed by sampled tables.

tests/harness/planted_bugs.py does the same to emitted operators, for the tests that are emitted with them.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import click

from tests.harness.planted_bugs import spread

ROOT = Path(__file__).parents[2]
CODE = tuple(f"tritongen/{one}" for one in ("autodiff", "passes", "plan", "lowering", "families", "operator", "lang"))
KERNELS = ("templates", "tritongen/families", "tritongen/lowering")
# Code that measures, reports or displays, and does not affect results; and code that only runs on a GPU.
OTHER = re.compile(r"testing|heuristics|configs|cost|bench|habits|hints|catalogue|torch_names|readme|gluon|tma|search|"
                   r"package|docstring|registered|setup_context|times|launch|rings|copies")  # fmt: skip
SAID = re.compile(r"why|about|note|said|told|title|text|mistake|shown|hint|describe|__repr__|check|summary|time|cost")

# Test files by prefixes of paths, the most specific prefix first; files that find most bugs run first.
STREAMING, GENERATED = "values/test_streaming*", "values/test_generated_values"
TESTS = {
    "tritongen/passes/masks": ("unit/test_mask*", STREAMING),
    "tritongen/passes/paged": ("values/test_paged", STREAMING),
    "tritongen/autodiff": (GENERATED, "values/test_g*", "values/test_z*", "values/test_a*", "values/test_s*"),
    "tritongen/lang": (GENERATED, "values/test_f*", "unit/test_*", "values/test_i*", "values/test_g*"),
    "tritongen/families/streaming": (STREAMING, "values/test_paged", "values/test_l*"),
    "tritongen/plan/streaming": (STREAMING, "values/test_l*", "values/test_r*"),
    "tritongen/families/scan": ("values/test_scans", GENERATED),
    "tritongen/families/scatter": ("values/test_scatter", GENERATED, "values/test_p*"),
    "tritongen/families/taps": ("values/test_taps", "values/test_windows", "values/test_steps"),
    "templates/streaming": (STREAMING, "values/test_paged"),
    "templates/taps": ("values/test_taps", "values/test_steps"),
    "templates/scatter": ("values/test_scatter", "values/test_steps"),
    "templates/runtime/stream": (STREAMING,),
    "templates/runtime/scatter": ("values/test_scatter", "runtime/test_scatter_sums"),
    "templates/runtime/scans": ("values/test_scans", GENERATED),
    "templates/runtime/matmul": (GENERATED, "runtime/test_gemm", "values/test_steps"),
    "templates/runtime": (GENERATED, "values/test_steps", "runtime/test_*", "values/test_*"),
    "": (GENERATED, "values/test_steps", "values/test_*", "unit/test_*"),
}

_TEXT = {
    "mask": ((r" & (?:V\.)?\w*mask\w*(?!\()", ""), (r", mask=[^,()\"']+(?=[,)\"'])", "")),
    "cast": ((r"\.to\((?:COMPUTE|ACC|tl\.float32|self\.compute\.text)\)", ""),),
    "rescale": ((r" \* (?:V\.)?(?:rescale|shrink)\b", ""),),
    "bound": ((r"(?<=\w) < (?=(?:V\.)?n_\w+|(?:V\.)?\w+_end\b|size_)", " <= "),),
    "identity": ((r"float\('-inf'\)|float\(\"-inf\"\)|-math\.inf", "0.0"), (r"\bother=0\.0", "other=1.0")),
}
_FLIPPED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
UNFOUND = ("passed", "no time")
KINDS = ("comparison", "condition", "one off", "arguments", *_TEXT)


@dataclass(frozen=True)
class Bug:
    """One edit: the text of a file from `start` to `end` becomes `new`."""

    kind: str
    path: str
    start: int
    end: int
    new: str

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]

    def shown(self) -> str:
        text = (ROOT / self.path).read_text(encoding="utf-8")
        number = text.count("\n", 0, self.start)
        old, new = (one.splitlines()[number].strip() for one in (text, self.applied(text)))
        return f"{self.kind}: {self.path}:{number + 1}\n    - {old}\n    + {new}"

    def tests(self) -> list[str]:
        chosen = next(tests for start, tests in TESTS.items() if self.path.startswith(start))
        found = (path for pattern in chosen for path in sorted(ROOT.glob(f"tests/{pattern}.py")))
        return [str(path.relative_to(ROOT)) for path in dict.fromkeys(found)]


# Places of bugs


def bugs_of(path: str, text: str) -> Iterator[Bug]:
    """All bugs that can be planted in a file."""
    if path.startswith(CODE) and path.endswith(".py"):
        yield from _in_code(path, text)
    if path.startswith(KERNELS):
        prose = [(one.start(), one.end()) for one in re.finditer(r'"""[\s\S]*?"""|#[^\n"\']*$', text, re.MULTILINE)]
        for kind, edits in _TEXT.items():
            for pattern, new in edits:
                for found in re.finditer(pattern, text):
                    if not any(start <= found.start() < end for start, end in prose):
                        yield Bug(kind, path, found.start(), found.end(), new)


def _in_code(path: str, text: str) -> Iterator[Bug]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(node: ast.expr, end: bool = False) -> int:
        line, column = (node.end_lineno, node.end_col_offset) if end else (node.lineno, node.col_offset)
        assert line is not None
        assert column is not None
        return starts[line - 1] + column

    def source(node: ast.expr) -> str:
        return text[place(node) : place(node, end=True)]

    def between(kind: str, left: ast.expr, right: ast.expr, old: str, new: str) -> Bug:
        start, end = place(left, end=True), place(right)
        return Bug(kind, path, start, end, re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, text[start:end], count=1))

    for node in _computing(ast.parse(text)):
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _FLIPPED:
                yield between("comparison", left, right, *_FLIPPED[type(op)])
            case ast.BoolOp(op=op, values=[left, right, *_]):
                words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield between("condition", left, right, *words)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield Bug("condition", path, place(node), place(node, end=True), f"bool({source(operand)})")
            case ast.Subscript(slice=ast.Constant(value=int(value)) as index):
                yield Bug("one off", path, place(index), place(index, end=True), str(0 if value else 1))
            case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=int(value)) as number):
                yield Bug("one off", path, place(number), place(number, end=True), str(value + 1))
            case ast.Call(func=func, args=[ast.Name() as left, ast.Name() as right, *_]) if left.id != right.id:
                if source(func) == "isinstance":
                    continue
                middle = text[place(left, end=True) : place(right)]
                swapped = source(right) + middle + source(left)
                yield Bug("arguments", path, place(left), place(right, end=True), swapped)


def _computing(tree: ast.AST) -> Iterator[ast.AST]:
    """The expressions in functions, except for functions that report, assertions and raised exceptions."""
    for node in ast.iter_child_nodes(tree):
        said = isinstance(node, ast.FunctionDef) and SAID.search(node.name)
        if said or isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr | ast.arguments):
            continue
        yield node
        yield from _computing(node)


def planted(count: int, seed: int) -> list[Bug]:
    """A sample of bugs, even over kinds, and within a kind over folders."""
    groups = defaultdict[str, dict[str, list[Bug]]](lambda: defaultdict(list))
    for top in ("tritongen", "templates"):
        for path in sorted((ROOT / top).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in (".py", ".jinja") and not OTHER.search(name):
                for bug in bugs_of(name, path.read_text(encoding="utf-8")):
                    groups[bug.kind][str(Path(name).parent)].append(bug)
    shuffled = random.Random(seed)
    kinds = [[shuffled.sample(some, len(some)) for some in groups[kind].values()] for kind in KINDS]
    drawn = spread([spread(shuffled.sample(folders, len(folders))) for folders in kinds])
    return list(itertools.islice(filter(_is_python, drawn), count))


def _is_python(bug: Bug) -> bool:
    """Whether a module still parses with the bug in it. Templates are not checked."""
    if bug.path.endswith(".py"):
        with contextlib.suppress(SyntaxError):
            ast.parse(bug.applied((ROOT / bug.path).read_text(encoding="utf-8")))
            return True
    return bug.path.endswith(".jinja")


# Tests that find them


class Tree:
    """A copy of the repository, in which tests run."""

    home: Path
    fails_anyhow: ClassVar[dict[str, bool]] = {}  # tests that fail without a bug: a package is missing

    def __init__(self, home: str, bug: Bug | None = None) -> None:
        left = shutil.ignore_patterns(".*", "__pycache__", "docs", "*.pyc")
        self.home = Path(shutil.copytree(ROOT, Path(home) / "tree", ignore=left))
        if bug is not None:
            path = self.home / bug.path
            path.write_text(bug.applied(path.read_text(encoding="utf-8")), encoding="utf-8")

    def run(self, seconds: float, *arguments: str) -> str:
        """The first test that fails; or "passed", or "no time" if it is not known."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
        settings = {"PYTHONPATH": str(self.home), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **settings}
        environment.pop("PYTHONPYCACHEPREFIX", None)  # Bytecode of another copy may seem up to date.
        options: Any = {"cwd": self.home, "env": environment, "capture_output": True, "text": True, "timeout": seconds}
        try:
            done = subprocess.run(command, **options, check=False)
        except subprocess.TimeoutExpired:
            return "no time"
        found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
        return "passed" if done.returncode == 0 else found[1] if found else f"pytest: {done.returncode}"

    def found(self, clean: Tree, seconds: float, *arguments: str) -> str:
        """The first test that fails here but not in a clean tree."""
        end = time.monotonic() + seconds
        options = list[str]()
        while (test := self.run(end - time.monotonic(), *arguments, *options)) and "::" in test:
            if test not in self.fails_anyhow:
                self.fails_anyhow[test] = "::" in clean.run(seconds, test)
            if not self.fails_anyhow[test]:
                break
            options.append(f"--deselect={test}")
        return test


def found_by(bug: Bug, clean: Tree, seconds: float) -> tuple[str, str]:
    """The test that finds a bug by default, or, if none does, with --long."""
    with tempfile.TemporaryDirectory() as home:
        tree = Tree(home, bug)
        usual = tree.found(clean, seconds, "--turn", "0", *bug.tests())
        return usual, tree.found(clean, seconds, "--long", *bug.tests()) if usual in UNFOUND else ""


@click.command()
@click.option("--count", default=60, help="How many bugs to plant.")
@click.option("--first", default=0, help="The number of the first of them.")
@click.option("--seed", default=0)
@click.option("--jobs", default=2)
@click.option("--seconds", default=300.0, help="For the tests of a bug, and as many for those of --long.")
@click.option("--list", "listed", is_flag=True, help="Only list the bugs.")
def main(count: int, first: int, seed: int, jobs: int, seconds: float, listed: bool) -> None:
    """Plants bugs in the generator, and counts those that its tests find."""
    bugs = planted(count, seed)[first:]
    if listed:
        click.echo("\n".join(bug.shown() for bug in bugs))
        return
    counts = Counter[str]()
    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(jobs) as workers:
        find = partial(found_by, clean=Tree(home), seconds=seconds)
        for bug, (usual, long) in zip(bugs, workers.map(find, bugs), strict=True):
            counts[usual if usual in UNFOUND else "found"] += 1
            counts["found by --long alone"] += long != "" and long not in UNFOUND
            click.echo(f"{bug.shown()}\n    {usual}{f'; with --long: {long}' if long else ''}")
            sys.stdout.flush()
    click.echo(f"{len(bugs)} planted: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
