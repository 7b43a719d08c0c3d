"""The family of rows that are reduced, and may be broadcast back."""

from __future__ import annotations

from collections.abc import Mapping

from ...emit.module import Around, Module
from ...lang.ir import Op
from ...lowering.space import row_space
from ...passes.structure import Program, plain
from ...spec.types import Spec
from ...testing.samples import Shapes
from ...testing.tests import SHIFTS, FamilyTests, compares_values, tolerances
from ..family import Family, Step
from .host import RowsModule
from .kernels import RowBuilder

TESTED_SPLITS = "(2, 3, 8)"  # programs that share a row
_SPLITTING = {"rowwise.Split", "rowwise.run_sums", "streaming.Split"}  # what hosts call to have programs share rows


def splits(*modules: Module) -> str:
    """The numbers of chunks into which tests split rows, if some module splits them; else ""."""
    return TESTED_SPLITS if any(_SPLITTING & one.called for one in modules) else ""


class Rowwise(Family[Program]):
    """Reductions that are all over the same axes, each row by itself."""

    title = "row-wise"
    autocast = "float32"
    rows_are_independent = True

    def take(self, op: Op) -> Program | None:
        program = plain(op)
        return program if program and program.over else None

    def rows(self, program: Program) -> tuple[str, ...]:
        return row_space(program.op, program.over).row_axes

    def module(self, program: Program, before: Step | None, around: Around, autotune: bool) -> Module:
        return RowsModule(program, autotune, around, RowBuilder).module()

    def tests(self, spec: Spec, program: Program, module: Module) -> FamilyTests:
        declared = {
            "shifts": SHIFTS if compares_values(spec) else "",
            "splits": splits(module),
            **tolerances(program.op),
        }
        if "rowwise.run_cooperative" in module.called:
            declared["ctas_per_row"] = "(1, 3, 8)"
        return FamilyTests("RowwiseTests", Shapes(spec, program), declared)

    def gradient_tests(self, module: Module) -> Mapping[str, str]:
        return {"backward_splits": TESTED_SPLITS} if splits(module) else {}


ROWWISE = Rowwise()
