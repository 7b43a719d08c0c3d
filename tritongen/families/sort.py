"""The family of sorting along an axis, and of the elementwise math around it, in registers."""

from __future__ import annotations

from dataclasses import replace

from ..emit.module import Around, Module
from ..lang.ir import Op, is_order
from ..passes.structure import Program
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
        sorts = scans_alone(op).values()
        over = {node.over for node in sorts}
        return Program(op, tuple(over)) if len(over) == 1 and all(map(is_order, sorts)) else None

    def module(self, program: Program, before: Step | None, around: Around, autotune: bool) -> Module:
        return RowsModule(program, False, around, RowBuilder).module()

    def tests(self, spec: Spec, program: Program, module: Module) -> FamilyTests:
        return replace(super().tests(spec, program, module), base="SortTests")


SORTS = Sorts()
