"""Kernels over rows: each row is reduced, and may be broadcast back over its columns.

Three shapes of the same math: the row in registers, a loop along the row, and a long row split
between programs and merged by a second kernel, which maps it back where that is asked for. Which one runs is decided
on the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...lang.ir import Path, Reduce, Value
from ...lang.promotion import is_float8
from ...lowering.lower import Compute, Lowering
from ...lowering.positions import TILE, cols_from
from ...lowering.space import Space
from ...lowering.tile import needed
from ...lowering.views import Kernel
from ...nest.ir import BLANK, Line
from ...nest.values import expr
from ...passes.structure import Program
from .splits import Splits


@dataclass(frozen=True, slots=True)
class RowKernels:
    """The kernels of a row program and what the host needs to know of them."""

    space: Space
    compute: Compute
    loop: Kernel
    registers: Kernel | None = None
    partial: Kernel | None = None
    combine: Kernel | None = None
    mapping: Kernel | None = None
    are_sums: bool = False  # whether the loop is along chunks of rows, too, whose partial sums the runtime reduces
    states: tuple[tuple[str, str, Path], ...] = ()  # of the split: workspace name, torch dtype expression, where needed
    passes: int = 1
    uniform: tuple[str, ...] = ()  # the inputs of which a block of columns may have one element
    table: str = "scan"  # the kind of its table, where nothing is reduced


def plan_rows(program: Program, searched: bool) -> RowKernels:
    builder = RowBuilder(program)
    passes = builder.passes()
    alone = len(passes) == 1 and not program.maps_back
    splits = alone or (len(passes) == 1 and builder.may_be_few())
    sums = alone and not searched and builder.are_plain_sums(passes[0])
    return RowKernels(
        space=builder.space,
        compute=builder.compute,
        registers=None if alone and builder.simple(passes[0]) else builder.registers(),
        loop=builder.sums(passes[0]) if sums else builder.loop(passes),
        partial=builder.partial(passes[0]) if splits and not sums else None,
        combine=builder.combine(passes[0]) if alone and not sums else None,
        mapping=builder.mapping(passes[0]) if splits and not alone else None,
        are_sums=sums,
        states=builder.states(passes[0]) if splits else (),
        passes=len(passes) + program.maps_back,
        uniform=builder.uniform(),
    )


class RowBuilder(Splits):
    """The kernels of a row program."""

    placed = "held in registers"  # what is said of rows in registers

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
        return self.assembler.kernel("kernel", doc, lowering, setup, inside, stores)

    def loop(self, passes: list[list[Value]]) -> Kernel:
        lowering = self.lowering()
        known: set[str] = set()
        before = self.before(passes[0], known, lowering)
        walks = self.walks(passes, known, lowering)
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
        return self.assembler.kernel("loop_kernel", doc, lowering, setup, [BLANK, *loops], stores)

    def simple(self, reductions: list[Value]) -> bool:
        """Whether a loop along a row is as good as the row in registers: its states are one number."""
        return all(len(state.states) == 1 for _, state in self.running(reductions))

    def are_plain_sums(self, reductions: list[Value]) -> bool:
        """Whether the results are one or two sums or means along rows that are stored as they are."""
        nodes = {value.name: value.node for value in reductions}
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
