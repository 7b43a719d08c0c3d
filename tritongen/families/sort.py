"""The family of sorting along an axis, and of the elementwise math around it, in registers."""

from __future__ import annotations

from dataclasses import replace

from ..diagnostics.report import Mistake, Mistakes
from ..emit.configs import SORTED
from ..emit.module import Around, Module
from ..lang.ir import Op, is_order
from ..passes.structure import Program, line_of
from ..spec.types import Spec
from ..testing.tests import FamilyTests
from .family import Family, Step
from .rowwise.host import RowsModule
from .rowwise.kernels import RowBuilder
from .scan import scans_alone


class Sorts(Family[Program]):
    """Sorting along one axis, each row by itself, and gathers at the sorted positions."""

    title = "a sort"

    def take(self, op: Op) -> Program | None:
        sorts = scans_alone(op)
        over = {node.over for node in sorts.values()}
        if len(over) != 1 or not all(map(is_order, sorts.values())):
            return None
        (axis,) = over
        if (length := dict(op.sizes).get(axis, 0)) > SORTED:
            line = line_of(op, op.value(next(iter(sorts))))
            says = f"{line} sorts rows of {length:,} elements, and registers hold up to {SORTED:,}"
            hint = "sort in torch, and make the positions an input: take(x, i, N)"
            raise Mistakes(Mistake("TG601", says, ("compute", line), hint=hint))
        return Program(op, (axis,))

    def module(self, program: Program, before: Step | None, around: Around, autotune: bool) -> Module:
        return RowsModule(program, False, around, RowBuilder).module()

    def tests(self, spec: Spec, program: Program, module: Module) -> FamilyTests:
        return replace(super().tests(spec, program, module), base="SortTests")


SORTS = Sorts()
