"""The family of sums with an element for each tap of a window."""

from __future__ import annotations

from ...emit.module import Around, Module
from ...lang.ir import Op
from ..family import Step
from ..maps import Maps
from .host import TapsModule
from .program import TapsProgram, recognise_taps


class Taps(Maps[TapsProgram]):
    """Sums for taps, as the gradient of a convolution's weights is: inputs are gone through once for all of them."""

    title = "sums for taps"

    def take(self, op: Op) -> TapsProgram | None:
        return recognise_taps(op)

    def rows(self, program: TapsProgram) -> tuple[str, ...]:
        return program.op.results[0].axes

    def module(self, program: TapsProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return TapsModule(program, around).module()


TAPS = Taps()
