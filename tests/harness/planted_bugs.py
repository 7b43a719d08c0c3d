"""Plants typical bugs in emitted operators, one at a time, and names those that the emitted tests let live.

    python -m tests.harness.planted_bugs [--op softmax --op gelu] [--sample 200] [--seed 0] [--jobs 2] [--beside TREE]
        [--formula] [--each FILE]

What is planted is in tests/harness/mutations.py. Every mutant is a copy of its operator's folder, whose own tests
run in Triton's interpreter: those that execute the mutated statement in the unchanged folder, and no
others, for what is not executed cannot fail. The exit code is 1 where fewer than 95 % are caught. With `--beside`,
the same bugs are planted in a tree of an earlier version too, and those that one of both misses are named. With
`--formula`, `tritongen.residues` looks for them too, by the same tests, and the same is said of that. With `--each`, no
run ends at its first failure: the file gets a line of JSON for each bug, which tests find it by values and which
by formula, and what no other test finds is counted for each test.
"""

from __future__ import annotations

import ast
import itertools
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click

from tests.harness.emitted_code import Mutation
from tests.harness.mutations import KINDS, mutations
from tritongen.residues.formula import Formula, formula_of
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

ROOT = Path(__file__).parents[2]
SHARE = 0.95
T = TypeVar("T")
# Every family, and in them the kernels of rows in registers, in a loop and in parts, sums of columns, ...
OPS = (
    "vector_add gelu where rope cross_entropy softmax rms_norm layer_norm logsumexp argmax var sum "
    "rms_norm_fp8 quantize_fp8_blocks matmul linear_silu_mul batched_matmul tril_matmul int8_matmul_dequant router"
).split()
# Without a GPU, whatever the machine has: read when triton and torch are imported.
ENVIRONMENT = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
Lines = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Outcome:
    """How a run of tests ended: `failed` is the first that did, or what else went wrong; empty if all passed."""

    failed: str = ""
    # The names of tests that failed, where the run did not end at the first.
    names: tuple[str, ...] = ()
    # The lines that each test executed, where they were traced.
    executed: dict[str, Lines] = field(default_factory=dict)


class _Recorder:
    """A plugin of pytest: runs chosen tests, records the first failure, and traces the lines of some files."""

    def __init__(self, chosen: frozenset[str] | None, traced: frozenset[str], goes_on: bool = False) -> None:
        self.chosen, self.traced, self.goes_on = chosen, traced, goes_on
        self.failed = ""
        self.names: dict[str, None] = {}
        self.executed: dict[str, Lines] = {}
        self.lines: set[tuple[str, int]] = set()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.chosen is not None:
            items[:] = [item for item in items if item.nodeid in self.chosen]

    def pytest_runtest_protocol(self, item: Any) -> bool | None:
        """One case that fails says as much as several."""
        return True if _name(item.nodeid) in self.names else None

    def pytest_runtest_logstart(self) -> None:
        self.lines = set()
        if self.traced:
            sys.settrace(self._call)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        self.executed[nodeid] = frozenset(self.lines)

    def _call(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename in self.traced else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid.split("::")[-1]
            self.names[_name(report.nodeid)] = None

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or "import"


def _tests(home: str, folder: str, recorder: _Recorder, answer: Connection) -> None:
    """Runs the tests of a folder in a process of its own, and sends the outcome."""
    import pytest
    import torch

    torch.set_num_threads(1)
    os.chdir(home)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    options = "-q --import-mode=importlib --assert=plain --tb=no -p no:cacheprovider -p no:xdist -W ignore".split()
    options += [] if recorder.goes_on else ["-x"]
    code = pytest.main([*options, f"--rootdir={home}", "-c", os.devnull, folder], plugins=[recorder])
    failed = recorder.failed or ("" if code == 0 else f"exit code {int(code)}")
    answer.send(Outcome(failed, tuple(recorder.names), recorder.executed))


def _formula(home: str, op: str, tests: frozenset[str], formula: Formula, goes_on: bool, answer: Connection) -> None:
    """Checks the formula of an operator in such a process, by tests of some names, until a case of each differs."""
    import warnings

    import torch

    from tritongen.residues.check import verdicts

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.chdir(home)
    sys.path.insert(0, home)
    (package,) = os.listdir(home)
    found: dict[str, str] = {}  # by the name of a test, its first case
    try:
        for one in verdicts(op, package, formula, lambda test: _name(test) in tests - found.keys()):
            if one.difference:
                found.setdefault(_name(one.test), one.test)
                if not goes_on:
                    break
        answer.send(Outcome(next(iter(found.values()), ""), tuple(found)))
    except Exception:  # Not even their modules can be imported.
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
        """What has kernels and host code of an operator, and the runtime that operators share."""
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
        goes_on: bool = False,
    ) -> Outcome:
        """The tests of a copy of an operator in which some files have another text, or those by its formula."""
        with tempfile.TemporaryDirectory() as home:
            copy = Path(home) / self.generated.name
            copy.mkdir()
            (copy / "__init__.py").touch()  # That of the tree imports all of its operators.
            for name in ("_runtime", "_testing", op):
                source = self.generated / name
                if source.is_dir():
                    shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            for path, text in changed.items():
                (copy / path.relative_to(self.generated)).write_text(text, encoding="utf-8")
            traced = frozenset(str(copy / path.relative_to(self.generated)) for path in self.modules(op) if trace)
            ours, theirs = self.processes.Pipe(duplex=False)
            folder = str(Path(copy.name) / op)
            recorder = _Recorder(chosen, traced, goes_on)
            process = self.processes.Process(target=_tests, args=(home, folder, recorder, theirs))
            if formula is not None:
                names = frozenset(map(_name, chosen or ()))
                process = self.processes.Process(target=_formula, args=(home, op, names, formula, goes_on, theirs))
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


def candidates(tree: Tree, op: str, executed: dict[str, Lines]) -> list[Mutant]:
    """What can be planted in an operator and in what it uses of the runtime."""
    found = []
    texts = {path: path.read_text(encoding="utf-8") for path in tree.modules(op)}
    for path, text in texts.items():
        own = path.parent.name == op
        where = str(path.relative_to(tree.generated))
        tests_of: dict[int, set[str]] = defaultdict(set)
        for test, lines in executed.items():
            for line in (line for name, line in lines if name == where):
                tests_of[line].add(test)
        launches = own or "launch.run" in text
        beside = "".join(other for one, other in texts.items() if one != path and launches)

        # Of the host code only what launches kernels: other helpers have tests of their own.
        def is_own(name: str, own: bool = own, launches: bool = launches) -> bool:
            return launches and (not own or op.replace("_", "") in name.replace("_", "").lower())

        for mutation in mutations(text, beside, is_own):
            first, last = mutation.lines
            tests = frozenset().union(*(tests_of[line] for line in range(first, last + 1)))
            if tests or own:
                found.append(Mutant(op, path, text, mutation, tests))
    return found


# Host code that the interpreter never enters: calls alike launch what was compiled, on the tensors' device.
_ON_GPU = ("replay is not None", "torch.cuda", "compiled")


def needs_gpu(mutant: Mutant) -> str:
    """Why only a GPU runs a statement that no test executes here; empty where a test should."""
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
    """One of each group, then a second of each, ...: an even sample, however long it is."""
    rounds: Iterator[tuple[T | None, ...]] = itertools.zip_longest(*groups)
    return [one for some in rounds for one in some if one is not None]


def sampled(mutants: list[Mutant], size: int, seed: int) -> list[Mutant]:
    """As many of each kind as of another, and in a kind of each operator and of each function."""
    mutants = random.Random(seed).sample(mutants, len(mutants))

    def by(some: list[Mutant], keys: list[Callable[[Mutant], str]]) -> list[Mutant]:
        if not keys:
            return some
        groups: dict[str, list[Mutant]] = defaultdict(list)
        for one in some:
            groups[keys[0](one)].append(one)
        return spread([by(group, keys[1:]) for group in groups.values()])

    return by(mutants, [lambda one: one.mutation.kind, lambda one: one.op, lambda one: one.mutation.function])[:size]


def as_in(tree: Tree, mutant: Mutant, home: Path, executed: dict[str, Lines]) -> Mutant | None:
    """The same bug in another tree, with the tests that execute its statement there; None where its text is another."""
    path = tree.generated / mutant.path.relative_to(home)
    text = path.read_text(encoding="utf-8")
    first, last = mutant.mutation.lines
    places = {(str(path.relative_to(tree.generated)), line) for line in range(first, last + 1)}
    tests = frozenset(test for test, lines in executed.items() if lines & places)
    found = replace(mutant, path=path, text=text, tests=tests)
    is_same = len(text) == len(mutant.text) and mutant.mutation.shown(text) == mutant.mutation.shown(mutant.text)
    return found if is_same else None


def table(outcomes: dict[Mutant, str]) -> str:
    """Planted, caught and survived by kind."""
    lines = [f"{'kind':14}{'planted':>9}{'caught':>9}{'survived':>9}"]
    for kind in (*KINDS, "all"):
        some = [failed for one, failed in outcomes.items() if kind in (one.mutation.kind, "all")]
        lines.append(f"{kind:14}{len(some):9}{sum(map(bool, some)):9}{some.count(''):9}")
    return "\n".join(lines)


def spec_of(op: str) -> Spec:
    """The spec of an operator of the gallery or of the examples."""
    path = next(path for folder in ("specs", "examples/specs") if (path := ROOT / folder / f"{op}.toml").exists())
    return read_spec(path.name, path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Found:
    """The names of tests that find a bug: within their tolerances, and by the formula."""

    values: tuple[str, ...]
    formula: tuple[str, ...]

    def line(self, mutant: Mutant) -> str:
        """As JSON."""
        executed = sorted({_name(test) for test in mutant.tests})
        line, old, new = mutant.mutation.shown(mutant.text)
        where = f"{mutant.op}/{mutant.path.name}:{line}"
        return json.dumps({"bug": [where, mutant.mutation.kind, old, new], "executed": executed, **asdict(self)})


def needed(found: Sequence[Found]) -> str:
    """Of each test, how many bugs it finds, and how many no other test finds and no formula of any."""
    names = sorted({name for one in found for name in one.values})
    lines = [f"{'test':44}{'values':>8}{'alone':>8}{'formula':>9}"]
    for name in names:
        alone = sum(one.values == (name,) and not one.formula for one in found)
        by_formula = sum(name in one.formula for one in found)
        lines.append(f"{name:44}{sum(name in one.values for one in found):8}{alone:8}{by_formula:9}")
    return "\n".join(lines)


class Planting:
    """Some bugs of operators in a tree, and processes that look for them."""

    def __init__(self, tree: Tree, ops: Sequence[str], jobs: int) -> None:
        self.tree, self.ops = tree, ops
        self.workers = ThreadPoolExecutor(jobs)
        # What each found first: tests by values, and by the formula.
        self.outcomes: dict[Mutant, str] = {}
        self.different: dict[Mutant, str] = {}
        self.seconds: dict[str, float] = {}  # of the tests of an operator as it is

    def run_all(self, tree: Tree) -> dict[str, Outcome]:
        """The tests of the operators as they are, traced."""

        def timed(op: str) -> Outcome:
            start = time.monotonic()
            outcome = tree.run(op, {}, timeout=1500, trace=True)
            self.seconds[op] = time.monotonic() - start
            return outcome

        found = dict(zip(self.ops, self.workers.map(timed, self.ops), strict=True))
        for op, outcome in found.items():
            if outcome.failed:
                raise click.ClickException(f"the tests of {op} fail without a bug: {outcome.failed}")
        return found

    def run(self, mutant: Mutant, formula: Formula | None = None, goes_on: bool = False) -> Outcome:
        """The tests that execute the statement of a bug, with it."""
        if not mutant.tests:
            return Outcome()
        text = {mutant.path: mutant.mutation.applied(mutant.text)}
        timeout = 20 + 4 * self.seconds[mutant.op]  # A bug may be a loop that does not end.
        return self.tree.run(mutant.op, text, mutant.tests, timeout, formula=formula, goes_on=goes_on)

    def look(self, mutants: Sequence[Mutant], by_formula: bool, each: Path | None) -> None:
        """Looks for bugs by values, and by the formula if that is asked for, and says what survives."""
        formulas = {op: formula_of(spec_of(op)) for op in self.ops} if by_formula or each else {}

        def both(mutant: Mutant) -> tuple[Mutant, Outcome, Outcome]:
            values = self.run(mutant, goes_on=bool(each))
            formula = formulas.get(mutant.op)
            return mutant, values, self.run(mutant, formula, bool(each)) if formula else Outcome()

        lines: list[Found] = []
        with each.open("w", encoding="utf-8") if each else nullcontext() as file:
            for done in as_completed([self.workers.submit(both, one) for one in mutants]):
                mutant, values, formula = done.result()
                self.outcomes[mutant], self.different[mutant] = values.failed, formula.failed
                lines.append(Found(_names(values), _names(formula)))
                if file:
                    file.write(f"{lines[-1].line(mutant)}\n")
                    file.flush()
                if not values.failed:
                    by = f", by formula {formula.failed or 'too'}" if formulas else ""
                    count = f"{len(lines)} of {len(mutants)}"
                    click.echo(f"\n{count} survived{by}, {len(mutant.tests)} tests: {mutant}")
                elif formulas and not formula.failed:
                    click.echo(f"\nmissed by the formula, found by {values.failed}: {mutant}")
        if each:
            click.echo(f"\n{needed(lines)}")

    def say_formulas(self) -> None:
        """What the formula found, and what both together did."""
        click.echo(f"\nBy formulas:\n{table(self.different)}")
        both = sum(bool(self.different[one] or failed) for one, failed in self.outcomes.items())
        no_end = list(self.different.values()).count("no end")
        click.echo(f"{both} of {len(self.outcomes)} by either; no end of {no_end}.")

    def compare(self, earlier: Tree) -> None:
        """Looks for the same bugs by the tests of an earlier tree."""
        executed = self.run_all(earlier)
        pairs = [(one, as_in(earlier, one, self.tree.generated, executed[one.op].executed)) for one in self.outcomes]
        both = [(one, other) for one, other in pairs if other]
        theirs = Planting(earlier, self.ops, 1)
        theirs.seconds = self.seconds
        found = list(self.workers.map(lambda pair: theirs.run(pair[1]).failed, both))
        for (one, _), before in zip(both, found, strict=True):
            if bool(before) != bool(self.outcomes[one]):
                click.echo(f"\n{'caught' if before else 'missed'} before, by {before or 'none'}: {one}")
        now = sum(bool(self.outcomes[one]) for one, _ in both)
        click.echo(f"\nBefore: {sum(map(bool, found))} of {len(both)} caught, now {now} of the same.")


@click.command()
@click.option("--generated", type=click.Path(path_type=Path, exists=True), default=ROOT / "generated")
@click.option("--op", "ops", multiple=True, help="An operator; by default one or two of each family.")
@click.option("--sample", default=400, help="How many bugs to plant.")
@click.option("--seed", default=0)
@click.option("--jobs", default=2)
@click.option("--beside", type=click.Path(path_type=Path, exists=True), help="A tree with other tests of the code.")
@click.option("--formula", "by_formula", is_flag=True, help="Look for them by formulas, too.")
@click.option("--each", type=click.Path(path_type=Path), help="Which tests find which, to a file of JSON.")
def main(
    generated: Path,
    ops: tuple[str, ...],
    sample: int,
    seed: int,
    jobs: int,
    beside: Path | None,
    by_formula: bool,
    each: Path | None,
) -> None:
    """Plants bugs in emitted operators, and counts those that the emitted tests catch."""
    os.environ |= ENVIRONMENT
    tree = Tree(generated)
    ops = ops or tuple(OPS)
    planting = Planting(tree, ops, jobs)
    click.echo(f"The tests of {len(ops)} operators as they are.")
    baselines = planting.run_all(tree)
    every = [one for op in ops for one in candidates(tree, op, baselines[op].executed)]
    chosen = sampled(every, sample, seed)
    unseen = [one for one in chosen if needs_gpu(one)]
    mutants = [one for one in chosen if not needs_gpu(one)]
    planting.look(mutants, by_formula, each)
    for mutant in unseen:
        click.echo(f"\nneeds a GPU, {needs_gpu(mutant)}: {mutant}")
    click.echo(f"\n{table(planting.outcomes)}\n{len(unseen)} more need a GPU; {len(every)} can be planted.")
    if by_formula or each:
        planting.say_formulas()
    if beside:
        planting.compare(Tree(beside))
    share = sum(map(bool, planting.outcomes.values())) / max(1, len(planting.outcomes))
    click.echo(f"{share:.1%} caught, {SHARE:.0%} are wanted.")
    sys.exit(share < SHARE)


def _names(outcome: Outcome) -> tuple[str, ...]:
    """Of tests that failed; what else went wrong, where none did."""
    return tuple(sorted(outcome.names)) or ((outcome.failed,) if outcome.failed else ())


if __name__ == "__main__":
    main()
