"""The family of sums with an element for each tap of a window.

Each program reads its chunk of some rows once, for all taps. The position of a column, and which taps are within bounds
there, are computed once for the entire outer axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..emit.configs import Traffic
from ..emit.module import Around, Module
from ..emit.statements import Launch, call
from ..lang.ir import Call, Choose, Op, Reduce, Value
from ..lang.promotion import is_float8
from ..lowering.accumulate import padding_value
from ..lowering.assemble import Assembler
from ..lowering.lower import Lowering, compute_of
from ..lowering.space import LINE, Space, ends_in_columns, index_of, pinned_axes, row_space
from ..lowering.tile import Tile, needed
from ..lowering.views import Kernel, Pass
from ..nest.ir import Do, For, Let, Line
from ..nest.values import Expr, V, expr, runtime, tensors, tl
from ..passes.structure import Program, plain
from ..spec.types import BATCH
from .elementwise.windows import shared_axes
from .family import Family, Step
from .rowwise.kernels import SPLITS, partial_pointers
from .rowwise.sizes import RowSizes

MOST = 32  # taps, since each lane holds an accumulator for each


@dataclass(frozen=True, slots=True)
class TapsProgram(Program):
    """A sum for each row and each of its `taps`, axes of fixed lengths that only positions depend on.

    For each block of columns, programs loop over an `outer` axis, on which no position depends; "" if there is
    none.
    """

    taps: tuple[str, ...]
    outer: str

    @property
    def total(self) -> Value:
        (value,) = self.reductions
        return value

    @property
    def count(self) -> int:
        """The number of taps."""
        lengths = dict(self.op.sizes)
        return math.prod(lengths[axis] for axis in self.taps)

    @property
    def cols(self) -> tuple[str, ...]:
        """The axes that are reduced in tiles."""
        return tuple(axis for axis in self.over if axis != self.outer)

    @property
    def space(self) -> Space:
        """Tiles of rows by columns, and the axes of the loops outside and inside of them."""
        return row_space(self.op, self.cols, (self.outer, *self.taps))


def _outer(op: Op, over: tuple[str, ...]) -> str:
    """The first reduced axis in memory, if positions depend only on the others, and these may be long; else ""."""
    pinned = pinned_axes(op) & {*over}
    orders = {tuple(a for a in t.type.axes if a in over) for t in op.inputs if {*over} <= {*t.type.axes}}
    if len(orders) != 1 or not pinned:
        return ""
    ((first, *others),) = orders
    lengths = dict(op.sizes)
    is_short = math.prod(lengths.get(axis, LINE) for axis in others) < LINE
    return "" if first in (BATCH, *pinned) or is_short else first


DOC = "Each program goes along a part of some rows; every lane keeps a sum for each tap, merged at the end."


class TapsBuilder:
    """Builds the kernel: columns, an outer axis inside of these, and taps inside of both."""

    def __init__(self, program: TapsProgram) -> None:
        self.program, self.op, self.total = program, program.op, program.total
        self.tile = Tile(self.op, program.space, compute_of(self.op), aligned=ends_in_columns(self.op, program.cols))
        self.assembler = Assembler(self.tile, grouped=True)
        self.values = needed(self.op.values, self.total.node.references)

    def kernel(self) -> Kernel:
        lowering, name, count = self.assembler.lowering(), self.total.name, self.program.count
        zeros = tl.zeros([V.BLOCK_M, V.BLOCK_N], self.tile.compute.text)
        comment = f"{name} = {self.total.source}" if self.total.source else ""
        setup = [*self.assembler.bases(()), *self.at(0, lowering)]
        start = (Let(name, expr((zeros,)) * count),)
        columns = [*self.at(1, lowering), *self.through_outer(lowering)]
        walk = Pass(comment, start, tuple(columns), ())
        further = ((), (*partial_pointers([name]), SPLITS[1]))
        return self.assembler.by_chunks("taps_kernel", DOC, setup, walk, self.stores(), further)

    def stores(self) -> list[Line]:
        name, count = self.total.name, self.program.count
        lines = [Let("partial", V.split * tl.num_programs(2) + tl.program_id(2))] if self.program.outer else []
        split = V.partial if lines else V.split
        at = V[f"{name}_partial_ptr"] + (split.to("INDEX") * V.n_rows + V.rows) * count + V.tap
        store = Do(tl.store(at, tl.sum(V[name][V.tap], axis=1, keep_dims=True), mask=V.row_mask))
        return [*lines, For(tl.static_range(count), index="tap", body=(store,))]

    def through_outer(self, lowering: Lowering) -> list[Line]:
        """The loop over the outer axis, which is split between programs, as columns are."""
        lines = [*self.at(2, lowering), *self.through_taps(lowering)]
        if not self.program.outer:
            return lines
        size = self.tile.size((self.program.outer,))
        every = runtime.range(tl.program_id(2).to("INDEX"), size, tl.num_programs(2))
        return [For(every, index=index_of(self.program.outer), body=tuple(lines))]

    def through_taps(self, lowering: Lowering) -> list[Line]:
        """The loop over the taps, unrolled."""
        lengths, name = dict(self.op.sizes), self.total.name
        first, *others = self.program.taps
        place = V[index_of(first)]
        for axis in others:
            place = place * lengths[axis] + index_of(axis)
        lines = self.at(3, lowering)
        lowering.begin(name)
        lowering.put(Let(name, runtime.add_at(name, place, self.term(lowering))))
        inside = [*lines, *lowering.pending]
        for axis in reversed(self.program.taps):
            inside = [For(tl.static_range(lengths[axis]), index=index_of(axis), body=tuple(inside))]
        return inside

    def at(self, depth: int, lowering: Lowering) -> list[Line]:
        """The loads and values that are inside of exactly `depth` loops."""
        inputs = self.assembler.inputs_of([*self.values, self.total])
        read = (tensor for tensor in inputs if self.depth(tensor.type.axes) == depth)
        lines = [line for tensor in read for line in self.tile.load_lines(tensor)]
        return lines + [
            line for value in self.values if self.depth(value.node.axes) == depth for line in lowering.line(value)
        ]

    def depth(self, axes: tuple[str, ...]) -> int:
        """The number of loops that a value with `axes` is inside of."""
        loops = (self.program.cols, (self.program.outer,), self.program.taps)
        return max((n for n, own in enumerate(loops, 1) if {*own} & {*axes}), default=0)

    def term(self, lowering: Lowering) -> Expr:
        """The summand, 0 in masked lanes."""
        node = self.total.node
        assert isinstance(node, Reduce)
        term = lowering.operand(node.arg)
        if padding_value(self.op, node.arg, self.program.over, self.tile.other, self.is_masked) == "0":
            return term
        return tl.where(V.col_mask, term, 0.0)

    def is_masked(self, node: Call) -> bool:
        """Whether a `where` of an element is a masked load, which gives its `other` value in masked lanes."""
        return self.assembler.lowering().read_where(node) is not None


class TapsModule(RowSizes):
    """The module of the kernel of some sums at taps."""

    def __init__(self, program: TapsProgram, around: Around) -> None:
        # Sums are stored row after row, whatever the layout of the weights that they are gradients of.
        op = replace(program.op, by_row=program.op.by_row | {program.op.results[0].output.name})
        program = replace(program, op=op)
        builder = TapsBuilder(program)
        self.outer_axis, self.count, self.kernel = program.outer, program.count, builder.kernel()
        super().__init__(program, False, program.space, builder.tile.compute, [self.kernel], around)

    def module(self) -> Module:
        space, (result,) = self.space, self.op.results
        launch = call(
            "taps.run",
            self.key,
            shape=("n_rows", "n_cols", self.outer_axis or 1),
            contiguous=self.contiguous_cols(),
            args=self.args(self.kernel),
            constants=self.constants_of(self.kernel),
            tiles=(self.table_of("TAPS"), self.launcher(self.kernel)),
            dtype=tensors.torch_dtype("compute" if self.compute.constexpr else self.compute.text),
            result=result.output.name,
            # Kernels that the runtime launches are not wrapped by default.
            add_kernel=self.around.wrapped("reduce.reduce_partials_kernel"),
        )
        nothing = self.nothing_for(V.n_rows.equals(0) if space.rows else None)
        known = self.known(self.kernel, result.output.name)
        body = self.function([Launch(launch)], known, self.sized(nothing))
        return self.built(body, Traffic(frozenset({"taps"}), taps=self.count))

    def is_read_by_rows(self) -> bool:
        """Never: adjacent columns are read at adjacent positions, offset by a tap."""
        return False


class Taps(Family[TapsProgram]):
    """Sums for taps, as in the gradient of a convolution's weights: inputs are read once for all taps."""

    title = "sums for taps"

    def take(self, op: Op) -> TapsProgram | None:
        """The program, where an operator is a single sum of floats, stored row after row, and tap after tap in each."""
        program = plain(op)
        if program is None or len(op.results) > 1 or len(program.reductions) != 1:
            return None
        (result,) = op.results
        node = op.value(result.output.name).node
        if not isinstance(node, Reduce) or node.kind != "sum" or node.arg.dtype.kind != "float":
            return None
        if any(Choose in value.node.kinds for value in op.values) or is_float8(op, result.dtype):
            return None
        taps = shared_axes(op)
        rows = tuple(axis for axis in result.axes if axis not in taps)
        found = TapsProgram(op, program.over, taps, _outer(op, program.over))
        fits = taps and found.count <= MOST and result.axes == (*rows, *taps)
        return found if fits and found.space.row_axes == rows else None

    def rows(self, program: TapsProgram) -> tuple[str, ...]:
        return program.op.results[0].axes

    def module(self, program: TapsProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return TapsModule(program, around).module()


TAPS = Taps()
