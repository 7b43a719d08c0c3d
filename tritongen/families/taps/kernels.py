"""The kernel of sums for the taps of a window: programs go through their part of some rows once, for all taps.

Where a column is, and which taps are within bounds there, is computed once for the entire outer axis.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ...lang.ir import Call, Reduce
from ...lowering.accumulate import padding_value
from ...lowering.assemble import Assembler
from ...lowering.lower import Compute, Lowering, compute_of
from ...lowering.space import Space, ends_in_columns, index_of
from ...lowering.tile import Tile, loads, needed
from ...lowering.views import Kernel, Pass
from ...nest.ir import Do, For, Let, Line
from ...nest.values import V, expr, runtime, tl
from ..rowwise.splits import SPLITS, part_pointers
from .program import TapsProgram

DOC = "Each program goes along a part of some rows; every lane keeps a sum for each tap, merged at the end."


@dataclass(frozen=True, slots=True)
class TapsKernel:
    """The kernel that computes partial sums of rows, and its space."""

    space: Space
    compute: Compute
    kernel: Kernel


def plan_taps(program: TapsProgram) -> TapsKernel:
    builder = TapsBuilder(program)
    return TapsKernel(builder.tile.space, builder.tile.compute, builder.kernel())


class TapsBuilder:
    """Builds the kernel: columns, an outer axis inside of these, and taps inside of both."""

    def __init__(self, program: TapsProgram) -> None:
        self.program, self.op, self.total = program, program.op, program.total
        self.tile = Tile(self.op, program.space, compute_of(self.op), aligned=ends_in_columns(self.op, program.cols))
        self.assembler = Assembler(self.tile, grouped=True)
        self.values = needed(self.op.values, self.total.node.references)

    def kernel(self) -> Kernel:
        lowering, name, count = self.lowering(), self.total.name, self.program.count
        zeros = tl.zeros([V.BLOCK_M, V.BLOCK_N], self.tile.compute.text)
        comment = f"{name} = {self.total.source}" if self.total.source else ""
        setup = [*self.assembler.bases(()), *self.at(0, lowering)]
        start = (Let(name, expr((zeros,)) * count),)
        columns = [*self.at(1, lowering), *self.through_outer(lowering)]
        walk = Pass(comment, start, tuple(columns), ())
        further = ((), (*part_pointers([name]), SPLITS[1]))
        return self.assembler.part("taps_kernel", DOC, lowering, setup, walk, self.stores(), further)

    def stores(self) -> list[Line]:
        name, count = self.total.name, self.program.count
        lines = [Let("partial", V.split * tl.num_programs(2) + tl.program_id(2))] if self.program.outer else []
        split = V.partial if lines else V.split
        at = V[f"{name}_partial_ptr"] + (split.to("INDEX") * V.n_rows + V.rows) * count + V.tap
        store = Do(tl.store(at, tl.sum(V[name][V.tap], axis=1, keep_dims=True), mask=V.row_mask))
        return [*lines, For(tl.static_range(count), index="tap", body=(store,))]

    def through_outer(self, lowering: Lowering) -> list[Line]:
        """The loop through the outer axis, which programs share as they do columns."""
        lines = [*self.at(2, lowering), *self.through_taps(lowering)]
        if not self.program.outer:
            return lines
        size = self.tile.size((self.program.outer,))
        every = runtime.range(tl.program_id(2).to("INDEX"), size, tl.num_programs(2))
        return [For(every, index=index_of(self.program.outer), body=tuple(lines))]

    def through_taps(self, lowering: Lowering) -> list[Line]:
        """The loop through the taps, unrolled."""
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
        """What is read and computed in as many loops, and in none further inside."""
        read = {load.name for load in loads(value.node for value in (*self.values, self.total))}
        inputs = [tensor for tensor in self.op.inputs if tensor.name in read]
        lines = [
            line for tensor in inputs if self.depth(tensor.type.axes) == depth for line in self.tile.load_lines(tensor)
        ]
        return lines + [
            line for value in self.values if self.depth(value.node.axes) == depth for line in lowering.line(value)
        ]

    def depth(self, axes: tuple[str, ...]) -> int:
        """The number of loops that something with these axes is inside of."""
        loops = (self.program.cols, (self.program.outer,), self.program.taps)
        return max((n for n, own in enumerate(loops, 1) if {*own} & {*axes}), default=0)

    def term(self, lowering: Lowering) -> ast.expr:
        """What is summed, 0 in masked lanes."""
        node = self.total.node
        assert isinstance(node, Reduce)
        term = lowering.operand(node.arg)
        if padding_value(self.op, node.arg, self.program.over, self.tile.other, self.is_masked) == "0":
            return term
        return tl.where(V.col_mask, term, 0.0).tree

    def is_masked(self, node: Call) -> bool:
        """Whether a choice of an element is a masked load, which gives the other number in lanes that are off."""
        return self.lowering().read_where(node) is not None

    def lowering(self) -> Lowering:
        def reduce(node: Reduce, lowering: Lowering) -> ast.expr:
            raise AssertionError("the only sum is the result")

        own = self.tile.index, self.tile.size, self.tile.load
        choices = self.assembler.choices
        return Lowering(self.op, self.tile.compute, *own, reduce, choices, guarded=self.tile.guarded)
