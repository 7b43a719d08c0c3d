"""Program -> the view of its module, by the family that it belongs to."""

from __future__ import annotations

from .map_module import MapModule
from .modules import Around, Module
from .product_module import Products
from .rows_module import RowsModule
from .structure import Program


def module_of(program: Program, autotune: bool = False, around: Around | None = None, calls: str = "") -> Module:
    """The module of a program's kernels; with `autotune`, launches search their configurations.

    With `calls`, the name of a function that multiplies plain matrices, a product leaves its to that.
    """
    around = around or Around(program.op.name)
    if program.contraction:
        return Products(program, around, calls).module()
    family = RowsModule if program.over else MapModule
    return family(program, autotune, around).module()
