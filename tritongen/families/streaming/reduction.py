"""The kernel that merges the partial sums of a split, and finishes the rows."""

from __future__ import annotations

from ...lowering.views import Kernel
from ...nest.ir import Let, names_of
from ...nest.values import Expr, V, runtime, tl
from . import partial_sums
from .frames import Frames
from .kernels import NOTHING, Builder
from .places import Places
from .program import StreamingProgram
from .streams import is_row_sum


class Reduction(Builder):
    """Writes the kernel, of a row to a program, that follows one whose programs split the streamed axis."""

    block_m = "1"

    def __init__(self, program: StreamingProgram) -> None:
        super().__init__(program)
        self.places = Places(self.op, self.space, self.compute, stream=self.stream, row_mask=None)
        self.lowering.in_loop = False

    def reduction(self) -> Kernel:
        self.begin()
        for (name, _), address in zip(self.stream.partial_results, partial_sums.addresses(self.stream), strict=True):
            self.merge(name, address)
        values = self.behind()
        for value in values:
            if is_row_sum(value, self.stream):
                self.row_sum(value)
        self.after(value for value in values if not is_row_sum(value, self.stream))
        lengths = ("n_cols",) if "n_cols" in names_of([*self.lines.setup, *self.lines.end]) else ()
        doc = "Adds up the partial sums of the splits, in a fixed order, and computes the epilogue."
        lengths, frame = ("n_splits", "n_rows", *lengths), Frames(self.stream, self.blocks).reduction
        blocks = "BLOCK_SPLITS", "INDEX"
        return self.assembled("reduce_kernel", doc, lengths, frame, blocks, before=(partial_sums.ARGUMENT,))

    def merge(self, name: str, address: Expr) -> None:
        """Adds the next partial sums to a sum so far. What they are below comes first."""
        part, lines = f"{name}_partial", self.lines.loop
        other = partial_sums.LEAST if name == self.stream.largest else NOTHING
        lines.append(Let(part, tl.load(address, mask=V.split_mask, other=other)))
        if name == self.stream.largest:
            lines.append(Let(f"{name}, shrink, rescale", runtime[f"merge_max{self.low}"](name, part)))
            return
        added, so_far = V[part], V[name]
        if self.sums[name].is_rescaled:
            added, so_far = added * V.shrink, so_far * V.rescale
        lines.append(Let(name, so_far + tl.sum(added, 0, keep_dims=True)))
