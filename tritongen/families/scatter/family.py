"""The family of scatter-adds, which the runtime's kernels compute for all operators."""

from __future__ import annotations

from ...emit.module import Around, Module
from ...lang.ir import Load, Op, ScatterSum
from ...passes.exponentials import resolve
from ..family import Step
from ..maps import Maps
from .host import ScatterModule
from .program import ScatterProgram


class Scatter(Maps[ScatterProgram]):
    """A tensor that is scattered to the positions in another; where they are computed, steps before store them."""

    title = "a scatter-add"

    def take(self, op: Op) -> ScatterProgram | None:
        node = resolve(op, op.results[0].node)
        if len(op.results) > 1 or not isinstance(node, ScatterSum):
            return None
        optional = {tensor.name for tensor in op.inputs if tensor.default is not None}
        plain = all(isinstance(one, Load) and not one.at and one.name not in optional for one in (node.arg, node.at))
        return ScatterProgram(op, (), node) if plain else None

    def module(self, program: ScatterProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return ScatterModule(program, around).module()


SCATTER = Scatter()
