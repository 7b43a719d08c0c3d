"""The family of sorting along an axis, and of the elementwise math around it, in registers."""

from __future__ import annotations

from dataclasses import replace

from ..emit.module import Around, Module
from ..lang.ir import Op, Scan, Value, is_order
from ..lowering.lower import Lowering
from ..lowering.views import Kernel
from ..nest.ir import Let, Line
from ..nest.values import V, runtime, tl
from ..passes.structure import Program, guaranteed_axes
from ..spec.types import Spec
from ..testing.tests import FamilyTests
from .family import Family, Step
from .rowwise.host import RowsModule
from .rowwise.kernels import RowBuilder
from .scan import scans_alone


class Sorts(Family[Program]):
    """Sorting along one axis, each row by itself, and what is taken by the positions."""

    title = "a sort"

    def take(self, op: Op) -> Program | None:
        sorts = scans_alone(op).values()
        over = {node.over for node in sorts}
        return Program(op, tuple(over)) if len(over) == 1 and all(map(is_order, sorts)) else None

    def module(self, program: Program, before: Step | None, around: Around, autotune: bool) -> Module:
        return RowsModule(program, False, around, SortBuilder).module()

    def tests(self, spec: Spec, program: Program, module: Module) -> FamilyTests:
        return replace(super().tests(spec, program, module), base="SortTests")


class SortBuilder(RowBuilder):
    """The kernel of rows that are sorted."""

    placed = "sorted in registers"
    table = "sort"

    @property
    def kernels(self) -> dict[str, Kernel]:
        return {"loop": self.registers()}

    def line(self, value: Value, lowering: Lowering) -> list[Line]:
        return self.order(value, value.node, lowering) if isinstance(value.node, Scan) else lowering.line(value)

    def order(self, value: Value, node: Scan, lowering: Lowering) -> list[Line]:
        """The columns of the elements in their order; what may lack columns is given them."""
        lowering.begin(value.name)
        sorted_by = lowering.operand(node.arg)
        if node.over not in guaranteed_axes(self.op, node.arg):
            sorted_by = tl.where(V.col_mask, sorted_by, 0)
        lowering.put(Let(value.name, runtime.argsort(sorted_by, V.col_mask, descending=node.reverse)))
        return lowering.finished(value)


SORTS = Sorts()
