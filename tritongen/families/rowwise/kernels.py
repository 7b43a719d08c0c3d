"""Kernels over rows: each row is reduced, and may be broadcast back over its columns.

Three shapes of the same math: the row in registers, a loop along the row, and a long row split
between programs and merged by a second kernel, which maps it back where that is asked for. Which one runs is decided
on the host.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from ...lang.ir import Path, Reduce, Value
from ...lang.promotion import is_float8
from ...lowering.lower import Lowering
from ...lowering.positions import TILE, cols_from
from ...lowering.tile import needed
from ...lowering.views import Kernel
from ...nest.ir import BLANK, Line
from ...nest.values import expr
from ...passes.structure import Program
from .splits import Splits


class RowBuilder(Splits):
    """The kernels of a row program; with `searched`, none whose launches tune nothing."""

    placed = "held in registers"  # what is said of rows in registers

    def __init__(self, program: Program, searched: bool = False) -> None:
        super().__init__(program)
        self.is_alone = len(self.passes) == 1 and not program.maps_back  # whether one walk along a row finds all
        self.are_sums = not searched and self.is_alone and self.are_plain_sums()

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        found = {} if self.is_alone and self.is_simple() else {"registers": self.registers()}
        if self.are_sums:
            return found | {"loop": self.sums()}
        found["loop"] = self.loop()
        if self.is_alone:
            return found | {"partial": self.partial(), "combine": self.combine()}
        may_split = len(self.passes) == 1 and self.may_be_few()
        return found | ({"partial": self.partial(), "mapping": self.mapping()} if may_split else {})

    @property
    def states(self) -> tuple[tuple[str, str, Path], ...]:
        found = [(one, self.path(run)) for _, run in self.running(self.reductions) for one in run.states]
        return tuple((one.name, one.dtype, path) for one, path in found)

    def line(self, value: Value, lowering: Lowering) -> list[Line]:
        return lowering.line(value)

    def registers(self) -> Kernel:
        lowering = self.lowering()
        values = needed(self.op.values, [result.output.name for result in self.op.results])
        setup, reads = self.assembler.bases(self.op.results), self.assembler.reads(values)
        body: list[Line] = []
        for value in self.means_first(values):
            body += self.line(value, lowering)
        stores = [*self.assembler.stores(r for r in self.op.results if not r.over), *self.barrier()]
        stores += self.assembler.stores(r for r in self.op.results if r.over)
        doc = f"BLOCK_M rows per program, {self.placed}."
        cols = cols_from(expr(0), self.assembler.end, wide=True)
        inside = [BLANK, *cols, TILE, *self.tile.col_decode(), *reads, *body]
        return self.assembler.kernel("kernel", doc, setup, inside, stores)

    def loop(self) -> Kernel:
        lowering, known = self.lowering(), set[str]()
        before = self.before(self.reductions, known, lowering)
        walks = self.walks(self.passes, known, lowering)
        stores: list[Line] = []
        row_results, tile_results = self.row_results(), self.tile_results()
        row_values = needed(self.op.values, [r.output.name for r in row_results], known)
        if self.barrier():
            last = walks.pop()
            row_lines = [*self.finish(row_values, known, lowering), *self.assembler.stores(row_results)]
            walks.append(replace(last, after=(*last.after, *row_lines, *self.barrier())))
            row_results = []
        if tile_results:
            walks.append(self.again(tile_results, known, lowering))
        stores += self.finish(row_values, known, lowering)
        stores += self.assembler.stores(row_results)
        reads = self.assembler.reads(list(self.op.values), tiles=False)
        setup = [*self.assembler.bases(self.op.results), *reads, *before]
        doc = "Loops along each row, for rows that do not fit in registers."
        if not self.program.maps_back:
            doc = "Loops along each row; each lane accumulates its own columns, and lanes are merged at the end."
        loops = [one for walk in walks for one in self.assembler.walked(walk)]
        return self.assembler.kernel("loop_kernel", doc, setup, [BLANK, *loops], stores)

    def is_simple(self) -> bool:
        """Whether a loop along a row is as good as the row in registers: its states are one number."""
        return all(len(state.states) == 1 for _, state in self.running(self.reductions))

    def are_plain_sums(self) -> bool:
        """Whether the results are one or two sums or means along rows that are stored as they are."""
        nodes = {value.name: value.node for value in self.reductions}
        names = {result.output.name for result in self.op.results}
        plain = all(isinstance(node, Reduce) and node.kind in ("sum", "mean") for node in nodes.values())
        stored = all(
            not result.when
            and result.output.name in self.op.by_row
            and result.dtype.kind != "bool"
            and not is_float8(self.op, result.dtype)
            for result in self.op.results
        )
        return plain and stored and names == set(nodes) and len(nodes) <= 2 and not any(map(self.choices.of, nodes))
