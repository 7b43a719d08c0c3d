"""An operator that is a scatter-add, as its family sees it."""

from __future__ import annotations

from dataclasses import dataclass

from ...lang.ir import ScatterSum
from ...passes.structure import Program


@dataclass(frozen=True, slots=True)
class ScatterProgram(Program):
    """An operator whose only result is the sum of an input over the positions that another has."""

    sum: ScatterSum
