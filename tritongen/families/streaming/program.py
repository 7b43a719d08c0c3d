"""An operator that streams an axis, as its family sees it."""

from __future__ import annotations

from dataclasses import dataclass

from ...passes.structure import Program
from ..stream import Stream
from .blocks import Blocks


@dataclass(frozen=True, slots=True)
class StreamingProgram(Program):
    """An operator whose reductions are scores, and sums of what is made of them; `over` is what the sums are over."""

    stream: Stream
    blocks: Blocks
