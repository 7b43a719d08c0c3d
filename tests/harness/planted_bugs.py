"""Plant bugs in emitted operators, one at a time, and list those that neither emitted tests nor the formula find.

    python -m tests.harness.planted_bugs [--op softmax] [--by-hand] [--random 4] [--seed 0] [--jobs 14] [--seconds 280]
        [--root TREE] [--values] [--out FILE] [--again FILE]

by_hand.txt has bugs that people wrote; mutations.py generates others, of which each operator gets a sample. A mutant is
a copy of its operator's folder. Its tests run in Triton's interpreter: only those that execute the mutated statement in
the original, since others cannot fail. First `tritongen.residues` checks their cases by formula. Then the tests compare
values, first for bugs that the formula missed, so that the limit of --seconds skips those that are found already. With
`--values` only the tests run, also for the operators of another TREE. With `--again`, only survivors of the run that
wrote FILE are planted. The exit code is 1 if less than 97 % of either kind are found.
"""

from __future__ import annotations

import ast
import heapq
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import click

from tests.harness.emitted_code import Function, Module, Mutation
from tests.harness.mutations import mutations
from tritongen.residues.formula import Formula, formula_of
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
BY_HAND = Path(__file__).with_name("by_hand.txt")
HOMES = ("generated", "examples/ops")
SHARE = 0.97
UNKNOWN = "no time"
BUG = r"(\w+) ([\w.]+)(?:@(\d))?: (.+) => (.+)"
T = TypeVar("T")
# Tests run without a GPU, even if there is one; triton and torch read these when they are imported.
ENVIRONMENT = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
Lines = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run of tests: `failed` is the first failing test or another error, empty if all passed."""

    failed: str = ""
    # The lines that each test executed, if traced.
    executed: dict[str, Lines] = field(default_factory=dict)


class _Recorder:
    """A plugin of pytest: runs chosen tests, records the first failure, and traces the lines of some files."""

    def __init__(self, chosen: frozenset[str] | None, traced: frozenset[str]) -> None:
        self.chosen, self.traced = chosen, traced
        self.failed = ""
        self.executed: dict[str, Lines] = {}
        self.lines: set[tuple[str, int]] = set()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.chosen is not None:
            items[:] = [item for item in items if item.nodeid in self.chosen]

    def pytest_runtest_logstart(self) -> None:
        self.lines = set()
        if self.traced and sys.version_info >= (3, 12):
            sys.monitoring.restart_events()
        elif self.traced:
            sys.settrace(self._call)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        self.executed[nodeid] = frozenset(self.lines)

    def monitor(self) -> None:
        """Trace each line once per test by `sys.monitoring`, which is cheap, from Python 3.12 on."""
        if self.traced and sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            monitoring.use_tool_id(monitoring.COVERAGE_ID, "planted bugs")
            monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, self._once)
            monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)

    def _once(self, code: CodeType, line: int) -> Any:
        if code.co_filename in self.traced:
            self.lines.add((code.co_filename, line))
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _call(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename in self.traced else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid.split("::")[-1]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or "import"


def _tests(home: str, folder: str, recorder: _Recorder, answer: Connection) -> None:
    """Run the tests of a folder until the first fails, in a process for it, and send the outcome."""
    import pytest
    import torch

    torch.set_num_threads(1)
    os.chdir(home)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    options = "-x -q --import-mode=importlib --assert=plain --tb=no -p no:cacheprovider -p no:xdist -W ignore".split()
    recorder.monitor()
    code = pytest.main([*options, f"--rootdir={home}", "-c", os.devnull, folder], plugins=[recorder])
    answer.send(Outcome(recorder.failed or ("" if code == 0 else f"exit code {int(code)}"), recorder.executed))


def _formula(home: str, op: str, tests: frozenset[str], formula: Formula, answer: Connection) -> None:
    """Check the formula of an operator in such a process by cases of `tests`, until a case differs."""
    import warnings

    import torch

    from tritongen.residues.check import verdicts

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.chdir(home)
    sys.path.insert(0, home)
    (package,) = os.listdir(home)
    try:
        found = verdicts(op, package, formula, lambda test: _name(test) in tests)
        answer.send(Outcome(next((one.test for one in found if one.difference), "")))
    except Exception:  # The modules cannot be imported.
        answer.send(Outcome("import"))


def _name(test: str) -> str:
    return test.rpartition("::")[2].partition("[")[0]


class Tree:
    """A folder of built operators, and the processes that run tests of copies of them, in ENVIRONMENT."""

    def __init__(self, generated: Path) -> None:
        self.generated = generated.resolve()
        self.processes = multiprocessing.get_context("forkserver")
        modules = ["torch", "torch.utils.checkpoint", "torch._dynamo", "triton", "pytest"]
        modules += ["tritongen.residues.fast_interpreter"]
        self.processes.set_forkserver_preload(modules)

    def modules(self, op: str) -> list[Path]:
        """The modules with kernels and host code of an operator, and of the shared runtime."""
        own = [path for path in (self.generated / op).rglob("*.py") if not path.name.startswith(("test_", "bench_"))]
        shared = (self.generated / "_runtime").glob("*.py")
        return sorted(path for path in (*own, *shared) if not path.stem.startswith(("configs", "__")))

    def run(
        self,
        op: str,
        changed: dict[Path, str],
        chosen: frozenset[str] | None = None,
        timeout: float = 600,
        trace: bool = False,
        formula: Formula | None = None,
    ) -> Outcome:
        """Run the tests, or the formula check, of a copy of an operator in which some files are replaced."""
        with tempfile.TemporaryDirectory() as home:
            copy = Path(home) / self.generated.name
            copy.mkdir()
            (copy / "__init__.py").touch()  # The tree's own imports all operators.
            for name in ("_runtime", "_testing", op):
                source = self.generated / name
                if source.is_dir():
                    shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            for path, text in changed.items():
                (copy / path.relative_to(self.generated)).write_text(text, encoding="utf-8")
            traced = frozenset(str(copy / path.relative_to(self.generated)) for path in self.modules(op) if trace)
            ours, theirs = self.processes.Pipe(duplex=False)
            folder = str(Path(copy.name) / op)
            recorder = _Recorder(chosen, traced)
            process = self.processes.Process(target=_tests, args=(home, folder, recorder, theirs))
            if formula is not None:
                names = frozenset(map(_name, chosen or ()))
                process = self.processes.Process(target=_formula, args=(home, op, names, formula, theirs))
            process.start()
            theirs.close()
            try:
                found = ours.recv() if ours.poll(timeout) else Outcome("no end")
            except EOFError:
                found = Outcome("crash")
            process.kill()
            process.join()
            short = len(str(copy)) + 1
            executed = {
                test: frozenset((path[short:], line) for path, line in lines) for test, lines in found.executed.items()
            }
            return replace(found, executed=executed)


@dataclass(frozen=True)
class Mutant:
    """A mutation of a module of an operator, with the tests that execute its statement."""

    op: str
    path: Path
    text: str
    mutation: Mutation
    tests: frozenset[str]

    def __str__(self) -> str:
        line, old, new = self.mutation.shown(self.text)
        where = f"{self.op}/{self.path.name}:{line}, {self.mutation.function}"
        return f"{self.mutation.kind}, {self.mutation.what}: {where}\n    - {old}\n    + {new}"

    @property
    def key(self) -> str:
        return _key(str(self))


def candidates(tree: Tree, op: str, executed: dict[str, Lines]) -> list[Mutant]:
    """The mutants of an operator, and of definitions of the runtime that its tests execute."""
    found = []
    texts = {path: path.read_text(encoding="utf-8") for path in tree.modules(op)}
    for path, text in texts.items():
        own = path.parent.name == op
        launches = own or "launch.run" in text
        beside = "".join(other for one, other in texts.items() if one != path and launches)

        # Host code only if it launches kernels: other helpers have tests of their own.
        def is_own(name: str, own: bool = own, launches: bool = launches) -> bool:
            return launches and (not own or op.replace("_", "") in name.replace("_", "").lower())

        for mutation in mutations(text, beside, is_own):
            tests = tests_of(mutation, path.relative_to(tree.generated), executed)
            if tests or own:
                found.append(Mutant(op, path, text, mutation, tests))
    return found


# Conditions of host code that only runs on a GPU, such as replayed launches of compiled kernels.
_ON_GPU = ("replay is not None", "torch.cuda", "compiled")


def needs_gpu(mutant: Mutant) -> str:
    """Why only a GPU can find a mutant or executes its statement; empty if the tests should find it."""
    if mutant.mutation.gpu:
        return mutant.mutation.gpu
    if mutant.path.name == "gluon_kernels.py":
        return "Gluon"
    if mutant.tests:
        return ""
    first = mutant.mutation.lines[0]
    for node in ast.walk(ast.parse(mutant.text)):
        if isinstance(node, ast.If) and node.body[0].lineno <= first <= (node.body[-1].end_lineno or 0):
            condition = ast.unparse(node.test)
            if any(one in condition for one in _ON_GPU):
                return condition
    return ""


def spread(groups: Sequence[Sequence[T]]) -> list[T]:
    """Interleave groups: the first of each, then the second of each, ..., so that any prefix is an even sample."""
    rounds: Iterator[tuple[T | None, ...]] = itertools.zip_longest(*groups)
    return [one for some in rounds for one in some if one is not None]


def sampled(mutants: list[Mutant], size: int, seed: int) -> list[Mutant]:
    """A sample of `size` mutants, even over kinds, then within a kind over operators, then over functions."""
    mutants = random.Random(seed).sample(mutants, len(mutants))

    def by(some: list[Mutant], keys: list[Callable[[Mutant], str]]) -> list[Mutant]:
        if not keys:
            return some
        groups: dict[str, list[Mutant]] = defaultdict(list)
        for one in some:
            groups[keys[0](one)].append(one)
        return spread([by(group, keys[1:]) for group in groups.values()])

    return by(mutants, [lambda one: one.mutation.kind, lambda one: one.op, lambda one: one.mutation.function])[:size]


@dataclass(frozen=True)
class Written:
    """A bug of by_hand.txt: its line, the heading above it, and whether it is marked as changing nothing."""

    line: str
    kind: str
    op: str
    function: str
    number: int
    old: str
    new: str
    useless: bool


@cache
def written() -> tuple[Written, ...]:
    """The bugs of by_hand.txt."""
    found: list[Written] = []
    kind = ""
    lines = BY_HAND.read_text(encoding="utf-8").splitlines()
    for line, after in itertools.pairwise([*lines, ""]):
        if line.startswith("## "):
            kind = line.removeprefix("## ")
        elif bug := re.fullmatch(BUG, line):
            op, function, number, old, new = bug.groups()
            found.append(Written(line, kind, op, function, int(number or 1), old, new, after.startswith("= ")))
    return tuple(found)


def by_hand(tree: Tree, op: str, executed: dict[str, Lines]) -> tuple[list[Mutant], list[str]]:
    """The bugs of by_hand.txt in an operator of a tree, and the lines of bugs whose text is not found."""
    found: list[Mutant] = []
    missing: list[str] = []
    for bug in written():
        if bug.op != op or bug.useless:
            continue
        try:
            found.append(_by_hand(tree, bug, executed))
        except LookupError:
            missing.append(bug.line)
    return found, missing


def _by_hand(tree: Tree, bug: Written, executed: dict[str, Lines]) -> Mutant:
    """Find the text of a bug and mutate it. Raises `LookupError` if it is not found."""
    own = sorted(tree.modules(bug.op), key=lambda path: path.parent.name != bug.op)
    for path in own:
        text = path.read_text(encoding="utf-8")
        module = Module(text) if f"def {bug.function.rpartition('.')[2]}(" in text else None
        for function in module.functions if module else ():
            if function.name == bug.function:
                mutation = _edit(function, bug)
                tests = tests_of(mutation, path.relative_to(tree.generated), executed)
                return Mutant(bug.op, path, text, mutation, tests)
    raise LookupError(bug.function)


def _edit(function: Function, bug: Written) -> Mutation:
    """The mutation of the n-th occurrence of a text in a function, comments not counted."""
    raw, (first, last) = function.module.raw, function.module.span(function.node)
    places = [one.start() + first for one in re.finditer(re.escape(bug.old.encode()), raw[first:last])]
    start = [one for one in places if b"#" not in raw[raw.rindex(b"\n", 0, one) : one]][bug.number - 1]
    spans = [(function.module.span(one), one) for one in function.statements]
    within = [one for (begin, end), one in spans if begin <= start < end]
    return function.edit(bug.kind, "by hand", (start, start + len(bug.old.encode())), bug.new, within[-1])


def tests_of(mutation: Mutation, path: Path, executed: dict[str, Lines]) -> frozenset[str]:
    """The tests that execute the statement of a bug."""
    first, last = mutation.lines
    places = {(str(path), line) for line in range(first, last + 1)}
    return frozenset(test for test, lines in executed.items() if lines & places)


def _key(shown: str) -> str:
    """The text of a bug without its line number."""
    return re.sub(r":\d+, ", ", ", shown, count=1)


@dataclass
class Found:
    """The first test that finds a bug, by values and by the formula: empty if none does, UNKNOWN if not run."""

    values: str = UNKNOWN
    formula: str = UNKNOWN

    @property
    def test(self) -> str:
        return next((one for one in (self.values, self.formula) if one and one != UNKNOWN), "")

    @property
    def survived(self) -> bool:
        return not self.values and not self.test


def table(outcomes: dict[Mutant, Found]) -> str:
    """A table of kinds of bugs: how many there are, and how many are found by values, formula, either or none."""
    ways: tuple[Callable[[Found], bool], ...] = (
        lambda one: one.values not in ("", UNKNOWN),
        lambda one: one.formula not in ("", UNKNOWN),
        lambda one: bool(one.test),
        lambda one: one.survived,
    )
    lines = [f"{'kind':64}{'planted':>9}{'values':>9}{'formula':>9}{'either':>9}{'survived':>9}"]
    for kind in (*dict.fromkeys(one.mutation.kind for one in outcomes), "all"):
        some = [found for one, found in outcomes.items() if kind in (one.mutation.kind, "all")]
        counts = [len(some), *(sum(map(way, some)) for way in ways)]
        lines.append(f"{kind[:63]:64}" + "".join(f"{count:9}" for count in counts))
    return "\n".join(lines)


def home_of(root: Path, op: str) -> Path:
    """The folder of built operators that has `op`, of the gallery or of the examples."""
    return next(root / home for home in HOMES if (root / home / op).is_dir())


def spec_of(op: str) -> Formula:
    """The math of an operator of the gallery or of the examples."""
    path = next(path for folder in ("specs", "examples/specs") if (path := ROOT / folder / f"{op}.toml").exists())
    return formula_of(read_spec(path.name, path.read_text(encoding="utf-8")))


class Earlier:
    """The survivors of an earlier run, read from the file that it wrote by --out."""

    def __init__(self, path: Path) -> None:
        said = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        survivors = [one["bug"] for one in said if Found(one["values"], one["formula"]).survived]
        self.survived = set(map(_key, survivors))
        self.ops = sorted({re.findall(r": (\w+)/", bug)[0] for bug in survivors})


class Queue:
    """A priority queue of tasks for several threads with a time limit: smallest number first. Tasks can add others."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.tasks: list[tuple[int, int, Callable[[], None]]] = []
        self.changed = threading.Condition()
        self.pending = 0  # tasks that wait or are running
        self.added = itertools.count()

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.end - time.monotonic()

    def add(self, number: int, task: Callable[[], None]) -> None:
        with self.changed:
            heapq.heappush(self.tasks, (number, next(self.added), task))
            self.pending += 1
            self.changed.notify()

    def run(self, jobs: int) -> None:
        """Run all tasks within the time limit."""
        threads = [threading.Thread(target=self._work) for _ in range(jobs)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    def _work(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.tasks or not self.pending or self.left < 0, timeout=1)
                if not self.pending or self.left < 0:
                    return
                if not self.tasks:
                    continue
                _, _, task = heapq.heappop(self.tasks)
            try:
                task()
            finally:
                with self.changed:
                    self.pending -= 1
                    self.changed.notify_all()


class Planting:
    """Plants bugs in the operators of a tree, and queues the tests that look for them."""

    again: Earlier | None = None

    def __init__(self, root: Path, is_by_hand: bool, share: int, seed: int, values_alone: bool, seconds: float) -> None:
        self.trees = {home: Tree(root / home) for home in HOMES}
        self.root, self.is_by_hand, self.share, self.seed = root, is_by_hand, share, seed
        self.values_alone = values_alone
        self.queue = Queue(seconds)
        self.hand: dict[Mutant, Found] = {}
        self.drawn: dict[Mutant, Found] = {}
        self.notes: list[str] = []
        self.seconds: dict[str, float] = {}  # of the tests of an unchanged operator

    def start(self, op: str) -> None:
        """Run the tests of an unchanged operator, traced, and plant its bugs."""
        tree = self.trees[str(home_of(self.root, op).relative_to(self.root))]
        began = time.monotonic()
        outcome = tree.run(op, {}, timeout=self.queue.left, trace=True)
        self.seconds[op] = time.monotonic() - began
        if outcome.failed:
            self.notes.append(f"the tests of {op} fail without a bug: {outcome.failed}")
            return
        if self.is_by_hand:
            hand, missing = by_hand(tree, op, outcome.executed)
            self.notes += [f"not there: {one}" for one in missing]
            hand = [one for one in hand if not self.again or one.key in self.again.survived]
            self._plant(tree, op, self.hand, hand)
        every = candidates(tree, op, outcome.executed)
        if self.again:
            drawn = [one for one in every if one.key in self.again.survived]
        else:
            drawn = [one for one in sampled(every, 4 * self.share, self.seed) if not needs_gpu(one)]
        useless = {(one.function, one.old, one.new) for one in written() if one.op == op and one.useless}
        drawn = [one for one in drawn if (one.mutation.function, *one.mutation.shown(one.text)[1:]) not in useless]
        self._plant(tree, op, self.drawn, drawn if self.again else drawn[: self.share])

    def _plant(self, tree: Tree, op: str, outcomes: dict[Mutant, Found], mutants: Sequence[Mutant]) -> None:
        formula = None if self.values_alone else spec_of(op)
        for mutant in mutants:
            if reason := needs_gpu(mutant):
                self.notes.append(f"needs a GPU, {reason}: {mutant}")
                continue
            found = outcomes[mutant] = Found()
            if not mutant.tests:
                found.values = found.formula = ""
            elif formula is None:
                self.queue.add(2, partial(self._by_values, tree, mutant, found))
            else:
                self.queue.add(1, partial(self._by_formula, tree, mutant, found, formula))

    def _by_formula(self, tree: Tree, mutant: Mutant, found: Found, formula: Formula) -> None:
        found.formula = self._run(tree, mutant, formula)
        self.queue.add(3 if found.test else 2, partial(self._by_values, tree, mutant, found))

    def _by_values(self, tree: Tree, mutant: Mutant, found: Found) -> None:
        found.values = self._run(tree, mutant, None)
        if found.survived:
            click.echo(f"survived {len(mutant.tests)} tests: {mutant}")

    def _run(self, tree: Tree, mutant: Mutant, formula: Formula | None) -> str:
        """The first test to find a mutant, among those that execute its statement."""
        text = {mutant.path: mutant.mutation.applied(mutant.text)}
        timeout = 20 + 3 * self.seconds[mutant.op]  # A bug may be a loop that does not end.
        left = self.queue.left
        outcome = tree.run(mutant.op, text, mutant.tests, max(0.0, min(timeout, left)), formula=formula)
        return UNKNOWN if outcome.failed == "no end" and left < timeout else outcome.failed

    def say(self, out: Path | None) -> bool:
        """Print tables of bugs by hand and random ones, write `out`, and return whether enough are found."""
        enough = True
        for what, outcomes in (("by hand", self.hand), ("random", self.drawn)):
            if not outcomes:
                continue
            known = [one for one in outcomes.values() if one.test or one.survived]
            share = sum(bool(one.test) for one in known) / max(1, len(known))
            enough &= share >= SHARE
            click.echo(f"\n{what}:\n{table(outcomes)}")
            click.echo(f"{share:.1%} of {len(known)} found; {len(outcomes) - len(known)} not looked for till the end.")
        if out:
            with out.open("w", encoding="utf-8") as file:
                for outcomes in (self.hand, self.drawn):
                    for mutant, found in outcomes.items():
                        said = {"bug": str(mutant), "tests": len(mutant.tests), **vars(found)}
                        file.write(f"{json.dumps(said)}\n")
        return enough


@click.command()
@click.option("--root", type=click.Path(path_type=Path, exists=True), default=ROOT, help="Of built operators.")
@click.option("--op", "ops", multiple=True, help="An operator; by default all of by_hand.txt.")
@click.option("--by-hand/--no-by-hand", "is_by_hand", default=True, help="Plant those of by_hand.txt.")
@click.option("--random", "share", default=4, help="How many random ones to plant in an operator.")
@click.option("--seed", default=0)
@click.option("--jobs", default=2)
@click.option("--seconds", default=36000.0, help="When to stop.")
@click.option("--values", "values_alone", is_flag=True, help="Do not look for them by formulas.")
@click.option("--out", type=click.Path(path_type=Path), help="For a line of JSON for each bug.")
@click.option("--again", type=click.Path(path_type=Path, exists=True), help="Such a file: those that survived.")
def main(
    root: Path,
    ops: tuple[str, ...],
    is_by_hand: bool,
    share: int,
    seed: int,
    jobs: int,
    seconds: float,
    values_alone: bool,
    out: Path | None,
    again: Path | None,
) -> None:
    """Plants bugs in emitted operators, and counts those that the emitted tests and the formula find."""
    os.environ |= ENVIRONMENT
    planting = Planting(root.resolve(), is_by_hand, share, seed, values_alone, seconds)
    planting.again = Earlier(again) if again else None
    for op in ops or (planting.again.ops if planting.again else sorted({one.op for one in written()})):
        planting.queue.add(0, partial(planting.start, op))
    planting.queue.run(jobs)
    click.echo("\n".join(planting.notes))
    sys.exit(not planting.say(out))


if __name__ == "__main__":
    main()
