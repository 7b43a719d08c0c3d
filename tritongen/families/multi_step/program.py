"""An operator of several steps."""

from __future__ import annotations

from dataclasses import dataclass

from ...passes.structure import Program
from ..family import Step


@dataclass(frozen=True, slots=True)
class MultiStepProgram(Program):
    """An operator, and the steps that compute it in the order in which they run."""

    steps: tuple[Step, ...]
