"""A process that checks the formulas of operators, with kernels interpreted from their import on."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .check import Verdict
    from .formula import Formula


def start(home: str) -> None:
    """Set up this process to check operators in packages below `home`."""
    os.environ["TRITON_INTERPRET"] = "1"  # Read when kernels are defined.
    import torch

    from . import fast_interpreter  # noqa: F401

    sys.path.insert(0, home)
    torch.set_num_threads(1)


def work(package: str, op: str, formula: Formula, words: tuple[str, ...]) -> tuple[str, list[Verdict]]:
    """The operator and the verdicts on test cases whose names contain one of `words`, or on all if it is empty."""
    import warnings

    from .check import verdicts

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return op, [*verdicts(op, package, formula, lambda test: not words or any(word in test for word in words))]
