"""Has Triton interpret kernels where there is no GPU, before any test imports it. And an option."""

import gc
import os

import pytest
import torch

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
    parser.addoption("--long", action="store_true", help="try all operators that take seconds to plan, not a third")


def pytest_collection() -> None:
    """Ten thousand tests stay until the end: the garbage collector need not look through them."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()
