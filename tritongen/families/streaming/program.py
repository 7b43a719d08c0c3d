"""An operator that streams an axis, as its family sees it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...lang.ir import Load, Op
from ...lang.rewrite import replaced
from ...passes.merged_axes import MergedAxes
from ...passes.paged import Pages
from ...passes.structure import Program
from ..stream import Stream, where_not_empty
from .blocks import Blocks


@dataclass(frozen=True, slots=True)
class StreamingProgram(Program):
    """An operator whose reductions are scores, and sums of what is made of them; `over` is what the sums are over.

    What it streams may lie in `pages`. Kernels see axes of heads that always lie together as one, `merged` axis.
    """

    stream: Stream
    blocks: Blocks
    pages: Pages | None = None
    merged: MergedAxes = field(default_factory=MergedAxes)
    given: Op | None = None

    @property
    def written(self) -> Op:
        return self.given or self.op

    @property
    def in_kernels(self) -> Op:
        """The operator as kernels see it, which go along one axis of positions, whatever pages those are in, and along
        merged axes.
        """
        return self.merged.joined(self.op if self.pages is None else self.pages.joined(self.op))

    @property
    def parted_stream(self) -> Stream:
        """What streams along the axes of the operator, none of which are merged."""
        if not self.merged.every:
            return self.stream
        axes = self.merged.parted_axes

        def parted(matrix: Load) -> Load:
            return replace(matrix, axes=axes(matrix.axes))

        scores = (replace(s, left=parted(s.left), right=parted(s.right), over=axes(s.over)) for s in self.stream.scores)
        node = self.merged.parted_node
        sums = (replace(s, factor=node(s.factor), matrix=s.matrix and parted(s.matrix)) for s in self.stream.sums)
        *outer_axes, streamed = axes(self.stream.positions)
        stream = replace(self.stream, widths=axes(self.stream.widths), outer_axes=tuple(outer_axes), streamed=streamed)
        return replace(stream, scores=tuple(scores), sums=tuple(sums))

    @property
    def not_empty(self) -> StreamingProgram:
        """The same of at least one position that streams, which splits and Gluon kernels have."""
        return replace(self, op=self.op.with_nodes(lambda node: replaced(node, where_not_empty)))
