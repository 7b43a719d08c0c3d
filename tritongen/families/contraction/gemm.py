"""The family of plain matmuls of a gradient, which the runtime's gemm computes."""

from __future__ import annotations

from ...diagnostics.report import Mistake
from ...emit.module import Around, Module
from ...lang.ir import Op
from ...spec.types import Schedule
from ..family import Step
from .family import Contraction
from .host import Products
from .program import ContractionProgram, is_one_matmul


class Gemm(Contraction):
    """A matmul of two matrices of one dtype and nothing else: it needs no kernels of its own."""

    def take(self, op: Op) -> ContractionProgram | None:
        if len(op.values) > 1 or len(op.inputs) != 2:
            return None
        program = super().take(op)
        return program if program is not None and is_one_matmul(program) else None

    def check(self, schedule: Schedule) -> list[Mistake]:
        """Nothing: the tiles of the runtime's kernels are those of the runtime."""
        return []

    def leaves(self, program: ContractionProgram) -> tuple[str, ...]:
        """None: matrices of one dtype are multiplied as they are."""
        return ()

    def module(self, program: ContractionProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return Products(program, around, by_gemm=True, search=autotune).module()


GEMM = Gemm()
