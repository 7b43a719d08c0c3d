"""The check of an operator in a process that interprets kernels from their import on."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .check import Verdict
    from .formula import Formula


def work(package: str, op: str, formula: Formula, words: tuple[str, ...]) -> tuple[str, list[Verdict]]:
    """The operator and the verdicts on test cases whose names contain one of `words`, or on all if it is empty."""
    os.environ["TRITON_INTERPRET"] = "1"  # Read when kernels are defined.
    import torch

    from . import fast_interpreter  # noqa: F401
    from .check import verdicts

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return op, [*verdicts(op, package, formula, lambda test: not words or any(word in test for word in words))]
