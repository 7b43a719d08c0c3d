"""The family of sorting along an axis, and of the elementwise math around it, in registers."""

from __future__ import annotations

import ast

from ...emit.module import Around, Module
from ...lang.ir import Op, Reduce, Scan, ScatterSum, Take, Value, children, is_order
from ...lowering.lower import Lowering
from ...lowering.tile import needed
from ...lowering.views import Kernel
from ...nest.ir import BLANK, Line, Walk
from ...passes.structure import Program, are_apart, lasting_axes
from ...spec.types import Spec
from ...testing.samples import Shapes
from ...testing.tests import FamilyTests, tolerances
from ..family import Step
from ..maps import Maps
from ..rowwise.host import RowsModule
from ..rowwise.kernels import RowKernels
from ..rowwise.rows import Rows


class Sorts(Maps[Program]):
    """Sorting along one axis, each row by itself, and what is taken by the positions."""

    title = "a sort"

    def take(self, op: Op) -> Program | None:
        nodes = {value.name: value.node for value in op.values}
        sorts = [node for node in nodes.values() if isinstance(node, Scan)]
        parts = (part for node in nodes.values() for part in (children(node) if isinstance(node, Scan) else (node,)))
        kinds = frozenset[type]().union(*(part.kinds for part in parts))
        if not sorts or not all(map(is_order, sorts)) or not kinds.isdisjoint((Reduce, Scan, ScatterSum, Take)):
            return None
        over = {node.over for node in sorts}
        every = {axis for node in nodes.values() for axis in node.axes}
        if len(over) > 1 or are_apart(op, set()) or any({*result.axes} != every for result in op.results):
            return None
        return Program(op, tuple(over))

    def module(self, program: Program, before: Step | None, around: Around, autotune: bool) -> Module:
        return RowsModule(program, False, around, plan_sorts).module()

    def tests(self, spec: Spec, program: Program, module: Module) -> FamilyTests:
        declared = {"tolerances": tolerances(program.op, "TOLERANCES", "1e-5", {})}
        return FamilyTests("SortTests", Shapes(spec, program), declared)


def plan_sorts(program: Program, searched: bool) -> RowKernels:
    builder = SortBuilder(program)
    return RowKernels(
        space=builder.space,
        compute=builder.compute,
        registers=None,
        loop=builder.kernel(),
        partial=None,
        combine=None,
        mapping=None,
        are_sums=False,
        states=(),
        passes=1,
        uniform=(),
        table="sort",
    )


class SortBuilder(Rows):
    """The kernel of rows that are sorted."""

    def kernel(self) -> Kernel:
        lowering = self.lowering()
        values = needed(self.op.values, [result.output.name for result in self.op.results])
        setup, reads = self.assembler.bases(self.op.results), self.assembler.reads(values)
        body: list[Line] = []
        for value in values:
            body += self.order(value, value.node, lowering) if isinstance(value.node, Scan) else lowering.line(value)
        inside = [BLANK, Walk("cols"), Walk("tile"), *self.tile.col_decode(), *reads, *body]
        doc = "BLOCK_M rows per program, sorted in registers."
        return self.assembler.kernel("kernel", doc, lowering, setup, inside, self.assembler.stores(self.op.results))

    def order(self, value: Value, node: Scan, lowering: Lowering) -> list[Line]:
        """The columns of the elements in their order; what may lack columns is given them."""
        lowering.begin(value.name)
        text = ast.unparse(lowering.operand(node.arg))
        if node.over not in lasting_axes(self.op, node.arg):
            text = f"tl.where(col_mask, {text}, 0)"
        lowering.put(Line(f"{value.name} = argsort({text}, col_mask, descending={node.reverse})"))
        return lowering.finished(value)


SORTS = Sorts()
