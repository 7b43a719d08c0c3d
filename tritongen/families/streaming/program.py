"""An operator that streams an axis, as its family sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...lang.ir import Op, replaced
from ...passes.paged import Pages
from ...passes.structure import Program
from ..stream import Stream, where_not_empty
from .blocks import Blocks


@dataclass(frozen=True, slots=True)
class StreamingProgram(Program):
    """An operator whose reductions are scores, and sums of what is made of them; `over` is what the sums are over.

    What it streams may lie in `pages`.
    """

    stream: Stream
    blocks: Blocks
    pages: Pages | None = None

    @property
    def in_kernels(self) -> Op:
        """The operator as kernels see it, which go along one axis of positions, whatever pages those are in."""
        return self.op if self.pages is None else self.pages.joined(self.op)

    @property
    def not_empty(self) -> StreamingProgram:
        """The same of at least one position that streams, which splits and Gluon kernels have."""
        values = (replace(value, node=replaced(value.node, where_not_empty)) for value in self.op.values)
        return replace(self, op=replace(self.op, values=tuple(values)))
