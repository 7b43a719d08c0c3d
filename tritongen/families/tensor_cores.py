"""Helpers for kernels that use tensor cores: the blocks of a schedule, and the precision of float32."""

from __future__ import annotations

from collections.abc import Mapping

from ..diagnostics.report import Mistake
from ..lang.ir import Op
from ..lang.trees import literal
from ..nest.values import Expr, V
from ..spec.types import SPLIT_PRECISIONS, Schedule
from ..testing.tests import tolerances

SMALLEST = 16  # along each axis of what tensor cores multiply, as Triton has it
# For float32 of reduced precision: how many times torch's error against float64 is allowed.
ERRORS = {"tf32": 8192, "bf16x3": 16}
CHAINED = 8  # times that, where results of matmuls are multiplied again: measured errors of an MLP are up to 5 times it


def too_small(schedule: Schedule, tiles: str, *keys: str) -> list[Mistake]:
    """The blocks that are smaller than these `tiles` may be."""
    found = []
    for key in keys:
        small = [size for size in getattr(schedule, key) if size < SMALLEST]
        if small:
            message = f"{key} is {small[0]}, and {tiles} have at least {SMALLEST} along each axis"
            found.append(Mistake("TG607", message, ("schedule", key), hint=f"write {SMALLEST} or more"))
    return found


def input_precision(op: Op) -> Expr:
    """The `input_precision` of float32; a constant of the runtime if the interpreter does not support it."""
    return V[op.precision.upper()] if op.precision in SPLIT_PRECISIONS else Expr(literal(op.precision))


def allowed_errors(op: Op, is_chained: bool = True, is_coarse: bool = False) -> Mapping[str, str]:
    """The errors that tests allow for float32 matmuls of reduced precision; `is_coarse` is for sums of 14 bits."""
    coarse = {"float32": "2e-3"} if is_coarse or op.precision == "tf32" else {}
    return {
        **tolerances(op, others=coarse),
        "error_factor": str(ERRORS[op.precision] * (CHAINED if is_chained else 1)) if op.precision in ERRORS else "",
    }
