"""Program -> the view of its module, by the family that it belongs to."""

from __future__ import annotations

from ..emit.module import Around, Module
from ..passes.structure import Program
from .contraction.host import Products
from .elementwise.host import MapModule
from .rowwise.host import RowsModule


def module_of(
    program: Program, autotune: bool = False, around: Around | None = None, *, by_gemm: bool = False
) -> Module:
    """The module of a program's kernels; with `autotune`, launches search their configurations.

    With `by_gemm`, a matmul is left to the runtime's gemm.
    """
    around = around or Around(program.op.name)
    if program.contraction:
        return Products(program, around, by_gemm).module()
    family = RowsModule if program.over else MapModule
    return family(program, autotune, around).module()
