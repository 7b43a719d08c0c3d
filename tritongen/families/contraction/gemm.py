"""The family of plain matmuls of a gradient, which the runtime's gemm computes."""

from __future__ import annotations

from ...emit.module import Around, Module
from ...lang.ir import Op
from ..family import Step
from .family import Contraction
from .host import Products
from .program import ContractionProgram


class Gemm(Contraction):
    """A matmul of two matrices of one dtype and nothing else: it needs no kernels of its own."""

    def take(self, op: Op) -> ContractionProgram | None:
        if len(op.values) > 1 or len(op.inputs) != 2:
            return None
        program = super().take(op)
        if program is None or not program.contraction.is_plain:
            return None
        variables = {tensor.name: tensor.type.variable for tensor in op.inputs}
        shared = {*variables.values(), *(variables.get(name, "") for name in op.results[0].dtype.of)}
        return program if len(shared) == 1 and all(shared) else None

    def module(self, program: ContractionProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return Products(program, around, by_gemm=True).module()


GEMM = Gemm()
