"""The family of rows that are multiplied by a number each, in place."""

from __future__ import annotations

from ...emit.module import Around, Module
from ...lang.ir import Call, Load, Op
from ...passes.structure import Program
from ..family import Step
from ..maps import Maps
from .host import ScaledModule


class Scaled(Maps[Program]):
    """A result that is an input times another, which lacks the columns, and takes the memory of the first."""

    title = "in-place scaling"

    def take(self, op: Op) -> Program | None:
        if len(op.results) > 1 or op.results[0].output.name not in {tensor.name for tensor in op.inputs}:
            return None
        node = op.results[0].node
        assert isinstance(node, Call)
        factor, rows = node.args
        assert isinstance(factor, Load)
        return Program(op, tuple(axis for axis in rows.axes if axis not in factor.axes))

    def module(self, program: Program, before: Step | None, around: Around, autotune: bool) -> Module:
        return ScaledModule(program, around).module()


SCALED = Scaled()
