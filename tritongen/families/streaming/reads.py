"""What kernels that stream an axis read, each tensor where it is first needed: for each block, each turn, or once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...lang.ir import Load, Value
from ...lowering.choices import Choices
from ...lowering.tile import loads
from ...nest.ir import Line, under
from ...passes.paged import Paged
from . import pages
from .assembly import Assembly
from .blocks import Blocks


class Reads(Assembly):
    """Writes the lines that read tensors, which are in `read` from then on."""

    choices: Choices
    blocks: Blocks
    described: tuple[str, ...]  # the matrices whose blocks are read by TMA
    read: set[str]

    def streams(self, axes: Iterable[str]) -> bool:
        return self.stream.streamed in axes

    def lines_for(self, axes: Iterable[str]) -> list[Line]:
        """The lines for what has some axes: for each block, each turn, or once."""
        if self.streams(axes):
            return self.lines.loop
        return self.lines.turn if set(axes) & set(self.stream.outer_axes) else self.lines.setup

    def row_tile(self, load: Load) -> None:
        if load.name not in self.read:
            self.read.add(load.name)
            self.lines_for(load.axes).extend([self.places.matrix_base(load), *self.places.matrix(load, "True")])

    def block(self, load: Load) -> None:
        if load.name not in self.read:
            self.read.add(load.name)
            self.lines_for(set(load.axes) - {self.stream.streamed}).append(self.places.matrix_base(load))
            self.lines.loop += self.matrix(load)

    def matrix(self, load: Load) -> list[Line]:
        """The lines that load a block of a matrix, in pages that are looked up once."""
        paged = self.pages and self.pages.of(load.name)
        if not paged:
            read, *converted = self.places.matrix(load, self.masked)
            lines = self.places.described(load, read) if load.name in self.described else [read]
            return [*lines, *converted]
        assert self.pages is not None
        return [*self.pages_of_block(paged), *pages.matrix(self.places, self.pages, paged)]

    def pages_of_block(self, paged: Paged) -> list[Line]:
        """The lines that look up pages where none has so far: those of the next block are carried by the loop."""
        looked_up = f"{paged.table}_at"  # A mask may read the table itself, too.
        if looked_up in self.read:
            return []
        assert self.pages is not None
        self.read.add(looked_up)
        self.lines.setup.append(pages.head(self.places, paged))
        first, following = (
            pages.page_indices(self.places, self.pages, paged, start, *self.blocks.ends)
            for start in ("bounds[0]", "start + BLOCK_N")
        )
        comment = "" if self.lines.ahead else "Page indices are prefetched one block ahead."
        self.lines.ahead.append(replace(first, comment=comment))
        return [pages.positions(self.places, paged, *self.blocks.ends), following]

    @property
    def masked(self) -> str:
        """Whether the blocks of a run are masked, known when the kernel is compiled."""
        return f"run != {self.blocks.runs.index('full')}"

    def elements(self, values: list[Value], lines: list[Line] | None = None) -> None:
        """Reads what some values are made of and no line has read so far."""
        names = {load.name for load in loads(value.node for value in values)}
        for tensor in self.op.inputs:
            if tensor.name in names and tensor.name not in self.read:
                self.read.add(tensor.name)
                target = self.lines_for(self.places.axes_of(tensor)) if lines is None else lines
                if self.pages and (paged := self.pages.of(tensor.name)):
                    target += self.pages_of_block(paged)
                target += under(self.choices.reading(tensor.name, values), self.places.reads(tensor))
