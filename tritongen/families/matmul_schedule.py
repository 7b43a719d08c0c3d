"""What a schedule may ask of kernels that multiply on tensor cores."""

from __future__ import annotations

from ..diagnostics.report import Mistake
from ..spec.types import Schedule

SMALLEST = 16  # along each axis of what tensor cores multiply, as Triton has it


def too_small(schedule: Schedule, tiles: str, *keys: str) -> list[Mistake]:
    """The blocks that are smaller than these `tiles` may be."""
    found = []
    for key in keys:
        small = [size for size in getattr(schedule, key) if size < SMALLEST]
        if small:
            message = f"{key} is {small[0]}, and {tiles} have at least {SMALLEST} along each axis"
            found.append(Mistake("TG607", message, ("schedule", key), hint=f"write {SMALLEST} or more"))
    return found
