"""The lines of a kernel that streams an axis: those that read tensors, positions that lines need, and its signature."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from ...lang.ir import Load, Op, Value
from ...lowering.assemble import kernel_of, param_casts
from ...lowering.choices import Choices
from ...lowering.lower import Compute, Lowering
from ...lowering.space import Space
from ...lowering.tile import Tensor, loads
from ...lowering.views import Argument, Kernel
from ...nest.ir import Let, Line, Nest, names_of, needed_by, nested, under
from ...nest.values import Expr, V, tl
from ...passes.paged import Paged, Pages
from ...spec.types import BATCH
from ..stream import Stream, in_kernels
from .blocks import Blocks
from .frames import Sections
from .places import Places


@dataclass
class Lines:
    """The lines of a kernel as they come, each with the path that it stands on."""

    setup: list[Line] = field(default_factory=list)
    bounds: list[Line] = field(default_factory=list)
    turn: list[Line] = field(default_factory=list)
    ahead: list[Line] = field(default_factory=list)
    loop: list[Line] = field(default_factory=list)
    end: list[Line] = field(default_factory=list)


class Assembly:
    """Reads tensors, which are in `read` from then on, and puts a kernel together of what its builder has written."""

    op: Op
    pages: Pages | None
    stream: Stream
    space: Space
    compute: Compute
    places: Places
    lowering: Lowering
    lines: Lines
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
            self.lines_for(load.axes).extend([self.places.matrix_base(load), *self.places.matrix(load, True)])

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
        return [*self.pages_of_block(paged), *self.places.paged_matrix(self.pages, paged)]

    def pages_of_block(self, paged: Paged) -> list[Line]:
        """The lines that look up pages where none has so far: those of the next block are carried by the loop."""
        looked_up = f"{paged.table}_at"  # A mask may read the table itself, too.
        if looked_up in self.read:
            return []
        assert self.pages is not None
        self.read.add(looked_up)
        self.lines.setup.append(self.places.table(paged))
        first, following = (
            self.places.page_indices(self.pages, paged, start, *self.blocks.ends)
            for start in (V.bounds[0], V.start + V.BLOCK_N)
        )
        comment = "" if self.lines.ahead else "Page indices are prefetched one block ahead."
        self.lines.ahead.append(replace(first, comment=comment))
        return [self.places.in_pages(paged, *self.blocks.ends), following]

    @property
    def masked(self) -> Expr:
        """Whether the blocks of a run are masked, known when the kernel is compiled."""
        return V.run.differs(self.blocks.runs.index("full"))

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

    def assembled(
        self,
        suffix: str,
        doc: str,
        lengths: tuple[str, ...],
        frame: Callable[[Sections], Nest],
        blocks: tuple[str, ...],
        partial: Nest = (),
        before: tuple[Argument, ...] = (),
        behind: tuple[Argument, ...] = (),
    ) -> Kernel:
        """The kernel of the lines, with arguments before or behind the tensors of the math."""
        setup = [*nested(self.lines.setup), *self.lines.bounds]
        turn, ahead, loop, end = (
            nested(some) for some in (self.lines.turn, self.lines.ahead, self.lines.loop, self.lines.end)
        )
        across = self.across(names_of([*setup, *turn, *ahead, *loop, *partial, *end]))
        setup = [*self.places.decode(), *across, *setup]
        casts = needed_by([*setup, *turn, *ahead, *loop, *end], param_casts(self.op, self.compute))
        nest = frame(Sections(casts, tuple(setup), turn, ahead, loop, end, partial))
        further = before, (*behind, *(Argument(name, name) for name in lengths))
        heads, others = self.sizes()
        sizes = (*heads, *self.strides(), *others)
        constants = [f"size_{axis.lower()}" for axis in self.constant_axes]
        constants += [f"PADDED_{axis.upper()}" for axis in self.stream.widths]
        found = kernel_of(self.op, self.compute, self.tensors(), nest, further, sizes, constants)
        by_length = self.steps_by_length()
        fixed = (*lengths, *(name for name in found.names if name in by_length), *found.fixed)
        return replace(found, name=f"{self.op.name}_{suffix}", doc=doc, blocks=blocks, fixed=fixed)

    def steps_by_length(self) -> set[str]:
        """The steps from head to head of tensors with a value for each row or column: as long as these are many.

        What has a value for each row and column steps by full rows: that 16 divides these is known, or blocks of it
        are read number by number.
        """
        stream = self.stream
        along = {stream.rows, stream.streamed}
        dims = (*self.space.rows, *self.places.dims(stream.outer_axes))
        scalars = [one for one in self.tensors() if not {*one.axes} & {*stream.widths} and not along <= {*one.axes}]
        return {tensor.stride(dim) for tensor in scalars for dim in dims}

    def tensors(self) -> list[Tensor]:
        return [*map(self.places.tensor, self.op.inputs), *map(self.places.result, self.op.results)]

    @property
    def constant_axes(self) -> tuple[str, ...]:
        """The axes for whose lengths kernels are compiled: those of widths, and the positions of a page."""
        return (*self.stream.widths, *([self.pages.slot] if self.pages else []))

    def across(self, names: set[str]) -> list[Line]:
        """Positions across tiles, as far as some names need them."""
        found: list[Line] = []
        for axis in self.stream.widths:
            at, mask = f"at_{axis.lower()}", f"{axis.lower()}_mask"
            if at in names or mask in names:
                found.append(Let(at, tl.arange(0, f"PADDED_{axis.upper()}").to("INDEX")[None, :]))
            if mask in names:
                found.append(Let(mask, V[at] < f"size_{axis.lower()}"))
        return found

    def sizes(self) -> tuple[list[Argument], list[Argument]]:
        """The lengths of the dimensions of the batch, and others."""
        heads = [Argument(dim.size, f"head_sizes[{place}]") for place, dim in enumerate(self.space.rows)]
        known = {"n_rows", "n_cols", *(one.name for one in heads), *map(self.places.size_name, self.constant_axes)}
        others: dict[str, Argument] = {}
        for axis in (*self.stream.outer_axes, *self.stream.heads, *self.op.axes):
            name = self.places.size_name(axis)  # That of axes that are merged may be that of `...`.
            others.setdefault(name, Argument(name, "math.prod(batch)" if axis == BATCH else axis))
        return heads, [one for name, one in others.items() if name not in known]

    def strides(self) -> list[Argument]:
        found = []
        # Those that are the same for all of the batch come last: the host has no steps of theirs along it.
        for tensor in sorted(self.tensors(), key=lambda one: not set(one.axes) & set(self.stream.batch)):
            steps = [(dim, f"{tensor.name}_heads[{place}]") for place, dim in enumerate(self.space.rows)]
            mine = self.space.steps(tensor.axes, self.space.rows)
            found += [Argument(tensor.stride(dim), value) for dim, value in steps if dim in mine]
            for axis in (axis for axis in in_kernels(self.stream, tensor.axes) if axis not in self.stream.batch):
                at = tensor.axes.index(axis) - len(tensor.axes)
                value = f"tensors.stride({tensor.name}, {at})" if tensor.optional else f"{tensor.name}.stride({at})"
                found.append(Argument(self.places.taken_stride(tensor, axis), value))
        return found
