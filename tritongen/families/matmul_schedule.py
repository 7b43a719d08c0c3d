"""What a schedule may ask of kernels that multiply on tensor cores."""

from __future__ import annotations

from ..diagnostics.report import Mistake
from ..spec.types import Schedule

SMALLEST = 16  # rows and columns of what tensor cores multiply, as Triton has it


def refused(schedule: Schedule, tiles: str, not_searched: str) -> list[Mistake]:
    """What kernels do not do: search configurations, for a reason that is told, and be smaller than their `tiles`."""
    found = []
    if schedule.autotune:
        hint = "list block_m, block_n, num_warps or num_stages, or leave it out"
        found.append(Mistake("TG607", not_searched, ("schedule", "autotune"), 0, hint=hint))
    for key in ("block_m", "block_n"):
        small = [size for size in getattr(schedule, key) if size < SMALLEST]
        if small:
            message = f"{key} is {small[0]}, and {tiles} have at least {SMALLEST} rows and columns"
            found.append(Mistake("TG607", message, ("schedule", key), hint=f"write {SMALLEST} or more"))
    return found
