"""An operator with matmuls, as its family sees it."""

from __future__ import annotations

from dataclasses import dataclass

from ...passes.contractions import Contraction
from ...passes.structure import Program


@dataclass(frozen=True, slots=True)
class ContractionProgram(Program):
    """An operator whose reductions are sums of products; `over` are the axes that those are summed over."""

    contraction: Contraction
