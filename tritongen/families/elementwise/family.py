"""The family of maps, element by element."""

from __future__ import annotations

from ...emit.module import Around, Module
from ...lang.ir import Op
from ...lowering.space import map_space
from ...passes.structure import Program, plain
from ..family import Step
from ..maps import Maps
from .host import MapModule


class Elementwise(Maps[Program]):
    """Elements that are computed each by itself."""

    def take(self, op: Op) -> Program | None:
        program = plain(op)
        return program if program and not program.over else None

    def rows(self, program: Program) -> tuple[str, ...] | None:
        space = map_space(program.op, tuple(value.node for value in program.op.values))
        return space.row_axes if space.split else None

    def module(self, program: Program, before: Step | None, around: Around, autotune: bool) -> Module:
        return MapModule(program, autotune, around).module()


ELEMENTWISE = Elementwise()
