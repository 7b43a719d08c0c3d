"""Operators that no single family computes: steps of several, with intermediates between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...diagnostics.report import Mistake
from ...emit.module import Around, Module
from ...lang.ir import Op
from ...spec.types import Schedule, Spec
from ...testing.samples import Shapes
from ...testing.tests import SHIFTS, FamilyTests, compares_values, tolerances
from ..family import Step
from ..maps import Maps
from .cut import cut
from .host import SeveralModule
from .program import SeveralProgram


@dataclass(frozen=True)
class Several(Maps[SeveralProgram]):
    """Takes what can be cut into steps that other families take, of which `take_alone` asks."""

    take_alone: Callable[[Op], Step]

    title = "a plan of several steps"
    autocast = "float32"

    def take(self, op: Op) -> SeveralProgram | None:
        found = cut(op, self.take_alone)
        return SeveralProgram(op, (), found.steps) if found else None

    def check(self, schedule: Schedule) -> list[Mistake]:
        if not schedule.autotune:
            return []
        message = "an operator of several kernels is not autotuned: each of them has configurations of its own"
        return [Mistake("TG607", message, ("schedule", "autotune"), 0, hint="leave it out")]

    def module(self, program: SeveralProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return SeveralModule(program, around).module()

    def tests(self, spec: Spec, program: SeveralProgram, module: Module) -> FamilyTests:
        declared = {
            "shifts": SHIFTS if compares_values(spec) else "",
            "splits": "(2, 3, 8)" if any(one.view.get("partial") for one in module.steps) else "",
            "tolerances": tolerances(program.op, "SUMS", "1e-4", {}),
        }
        return FamilyTests("RowwiseTests", Shapes(spec, program), declared)

    def gradient_tests(self, module: Module) -> Mapping[str, str]:
        return {}
