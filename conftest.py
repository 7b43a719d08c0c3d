"""Has Triton interpret kernels where there is no GPU, before any test imports it. And options."""

import atexit
import gc
import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent
EMITTED = [ROOT / folder for folder in ("generated", "examples/ops")]
VALUES = ROOT / "tests" / "values"
OF_CASES, OF_TESTS = 8, 4  # There run an eighth of a table's cases, and a quarter of the tests that have none.

if not torch.cuda.is_available():
    # A process has one core, as pytest -n has it: threads that wait for the next small matmul take cores from the rest.
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of workers, before they import numpy
# Triton reads it when a kernel is defined.
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")
if os.environ["TRITON_INTERPRET"] == "1":
    from tritongen.residues import fast_interpreter  # noqa: F401


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-targets", action="store_true", help="compile every kernel for every GPU that tests know")
    parser.addoption(
        "--long", action="store_true", help="run all cases of long tables, and each emitted test everywhere"
    )
    parser.addoption("--turn", type=int, help="which part of them runs without --long: any number")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sampled(n): every nth case of the test, or of all such tests without cases")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves parts of long tables, and of emitted tests, to --long and to other turns. A case by itself runs."""
    if config.getoption("--long"):
        return
    turn = config.getoption("--turn")
    left = _unsampled(items, turn) | _not_emitted_here(items, turn or 0)
    if left:
        config.hook.pytest_deselected(items=[*left])
        items[:] = [item for item in items if item not in left]


def _unsampled(items: list[pytest.Item], turn: int | None) -> set[pytest.Item]:
    """The cases that this turn leaves out. A file by itself runs all of its own, unless a turn is given."""
    from tests.harness.rotation import sampled

    if turn is None and len({item.path for item in items}) == 1:
        return set()
    tables = defaultdict[tuple[str, int], list[pytest.Item]](list)
    for item in items:
        test, has_cases, _ = item.nodeid.partition("[")
        mark = item.get_closest_marker("sampled")
        if mark:
            share, table = mark.args[0], test if has_cases else ""
        elif VALUES in item.path.parents:
            share, table = (OF_CASES, test) if has_cases else (OF_TESTS, str(VALUES))
        else:
            continue
        tables[table, share].append(item)
    running = frozenset[str]().union(
        *(sampled(test, [item.nodeid for item in table], share, turn or 0) for (test, share), table in tables.items())
    )
    return {item for table in tables.values() for item in table if item.nodeid not in running}


def _not_emitted_here(items: list[pytest.Item], turn: int) -> set[pytest.Item]:
    from tests.harness.rotation import Emitted, chosen

    cases = Counter[tuple[str, str]]()
    emitted: dict[pytest.Item, Emitted] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.cls and any(folder in item.path.parents for folder in EMITTED):
            op = item.path.parent.name
            emitted[item] = Emitted(item.cls.__mro__[1].__name__, item.originalname, cases[op, item.originalname], op)
            cases[op, item.originalname] += 1
    running = chosen(emitted.values(), turn)
    return {item for item, test in emitted.items() if test not in running}


def pytest_collection() -> None:
    """Ten thousand tests stay until the end: the garbage collector need not look through them."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Nor does pytest at its end, five times. When Python ends it may: Triton reports what is not collected then."""
    gc.freeze()
    atexit.register(gc.unfreeze)
