"""Has Triton interpret kernels where there is no GPU, before any test imports it. And options."""

import gc
import os
from collections import Counter
from pathlib import Path

import pytest
import torch

EMITTED = [Path(__file__).parent / folder for folder in ("generated", "examples/ops")]

if not torch.cuda.is_available():
    # A process has one core, as pytest -n has it: threads that wait for the next small matmul take cores from the rest.
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of workers, before they import numpy
# Triton reads it when a kernel is defined.
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")
if os.environ["TRITON_INTERPRET"] == "1":
    from tests.harness import fast_interpreter  # noqa: F401


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-targets", action="store_true", help="compile every kernel for every GPU that tests know")
    parser.addoption(
        "--long", action="store_true", help="run each emitted test on all operators, not a third; and all slow cases"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves two of three emitted tests to --long. One operator by itself runs all of its own."""
    if config.getoption("--long"):
        return
    from tests.harness.rotation import Emitted, chosen

    cases = Counter[tuple[str, str]]()
    emitted: dict[pytest.Item, Emitted] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.cls and any(folder in item.path.parents for folder in EMITTED):
            op = item.path.parent.name
            emitted[item] = Emitted(item.cls.__mro__[1].__name__, item.originalname, cases[op, item.originalname], op)
            cases[op, item.originalname] += 1
    running = chosen(emitted.values())
    left = [item for item, test in emitted.items() if test not in running]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if emitted.get(item) in running or item not in emitted]


def pytest_collection() -> None:
    """Ten thousand tests stay until the end: the garbage collector need not look through them."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()
