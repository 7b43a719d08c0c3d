"""The family of scans along an axis, and of the elementwise math around them."""

from __future__ import annotations

from collections.abc import Mapping

from ...emit.module import Around, Module
from ...lang.ir import Op
from ...spec.types import Spec
from ...testing.samples import Shapes
from ...testing.tests import FamilyTests, tolerances
from ..family import Step
from ..maps import Maps
from ..rowwise.family import SPLITS
from ..rowwise.host import RowsModule
from .kernels import plan_scans
from .program import ScanProgram, recognise_scans


class Scans(Maps[ScanProgram]):
    """Scans that are all along the same axis, each row by itself."""

    title = "a scan"
    autocast = "float32"

    def take(self, op: Op) -> ScanProgram | None:
        return recognise_scans(op)

    def module(self, program: ScanProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return RowsModule(program, autotune, around, plan_scans).module()

    def tests(self, spec: Spec, program: ScanProgram, module: Module) -> FamilyTests:
        declared = {"splits": SPLITS, "cancels": "True", "tolerances": tolerances(program.op, "SUMS", "1e-4", {})}
        return FamilyTests("RowwiseTests", Shapes(spec, program), declared)

    def gradient_tests(self, module: Module) -> Mapping[str, str]:
        return {"backward_splits": SPLITS}


SCANS = Scans()
