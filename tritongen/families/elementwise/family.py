"""The family of maps, element by element."""

from __future__ import annotations

from dataclasses import replace

from ...emit.module import Around, Module
from ...lang.ir import Op
from ...lowering.space import map_space
from ...passes.structure import Program, plain
from ...spec.types import Spec
from ...testing.samples import Shapes
from ...testing.tests import FamilyTests, tolerances
from ..family import Family, Step
from .host import MapModule
from .windows import is_windowed, shared_axes


class Elementwise(Family[Program]):
    """Elements that are each computed independently."""

    maps_in_place = True

    def take(self, op: Op) -> Program | None:
        program = plain(op)
        return program if program and not program.over else None

    def rows(self, program: Program) -> tuple[str, ...] | None:
        space = map_space(program.op)
        return space.row_axes if space.split else None

    def module(self, program: Program, before: Step | None, around: Around, autotune: bool) -> Module:
        return MapModule(program, autotune, around).module()


class Windows(Elementwise):
    """Elements that are reductions of a few neighbours each, or that a few neighbours share."""

    title = "windowed"
    maps_in_place = False

    def take(self, op: Op) -> Program | None:
        program = plain(replace(op, by_row=frozenset()))  # Tiles have no row of their own for each element.
        if program and not program.over:
            program = replace(program, over=shared_axes(op))
        return program if program and program.over and is_windowed(program) else None

    def rows(self, program: Program) -> tuple[str, ...] | None:
        return None

    def tests(self, spec: Spec, program: Program, module: Module) -> FamilyTests:
        shapes = Shapes(spec, replace(program, over=()))  # None that the tests choose is of an axis that is reduced.
        return FamilyTests("ElementwiseTests", shapes, tolerances(program.op))


ELEMENTWISE = Elementwise()
WINDOWS = Windows()
