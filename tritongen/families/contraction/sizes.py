"""The sizes that tests and benchmarks of matmuls run on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...passes.contractions import Contraction
from ...spec.types import Spec
from ...testing.samples import Shapes
from ..family import MultiStepProgram, Step
from ..matmul_sizes import Length, MatmulStepsSizes, number
from .program import ContractionProgram

GATHERED = 64  # matrices that a batch is picked of


@dataclass(frozen=True)
class MatmulShapes(Shapes):
    """Shapes of so many rows, columns and inner elements."""

    program: ContractionProgram
    spread = (3,)  # More would be copied, since they do not fold.

    @property
    def contraction(self) -> Contraction:
        return self.program.contraction

    def with_fixed(self, axis: str, length: int) -> int:
        """How long an axis is where axes of fixed sizes make a side of a matmul with it: two, if any."""
        sides = self.contraction.rows, self.contraction.cols, self.contraction.inner
        sizes = dict(self.program.op.sizes)
        fixed = math.prod(sizes.get(other, 1) for side in sides if axis in side for other in side)
        return max(min(2, length), -(-length // fixed))

    def sides(self, rows: int, cols: int, inner: int) -> tuple[int, ...]:
        """A matmul of such sides, a few in a batch; several axes make a side about so long."""
        contraction = self.contraction
        lengths = dict.fromkeys(contraction.batch, 3) | {one.axis: 4 for one in self.program.gathered}
        for side, length in ((contraction.rows, rows), (contraction.cols, cols), (contraction.inner, inner)):
            free = [axis for axis in side if axis in self.axes]
            lengths |= dict.fromkeys(free[1:], 2)
            lengths |= {axis: self.with_fixed(axis, -(-length // 2 ** (len(free) - 1))) for axis in free[:1]}
        return tuple(self.fitting(lengths)[axis] for axis in self.axes)

    def large(self) -> list[tuple[int, ...]]:
        return [self.sides(*sides) for sides in ((512, 768, 640), (300, 515, 1029), (1, 1000, 4096), (300, 3, 70))]

    def is_valueless(self, axis: str) -> bool:
        """Whether something would have no value if this axis were empty: a sum of no products is 0."""
        return False

    def dense(self) -> tuple[int, ...]:
        return ()

    def tiled(self) -> list[tuple[int, ...]]:
        """Several small tiles along rows and columns, with tails: such as TMA can copy, and others, whose last rows are
        those that the last program of a split-K reduction takes.
        """
        return [self.sides(40, 72, 96), self.sides(45, 69, 101)]

    def gluon(self) -> list[tuple[int, ...]]:
        """Several tiles, the last of them cut off, of results whose rows begin at 16 bytes, as TMA writes them."""
        cases = [self.sides(300, 264, 1040), self.sides(129, 136, 528)]
        fixed = dict(self.program.op.sizes)

        def cols(case: tuple[int, ...]) -> int:
            known = dict(zip(self.axes, case, strict=True)) | fixed
            return math.prod(known[axis] for axis in self.contraction.cols)

        return [case for case in cases if cols(case) % 8 == 0]

    def shared(self) -> tuple[int, ...]:
        """Lengths of eleven small tiles, so that split-K and stream-K split several."""
        return self.sides(165, 21, 101)


class MatmulSizes(MatmulStepsSizes):
    """The lengths of the axes of a matmul: as in a multi-step plan of this one step."""

    def __init__(self, step: Step, program: ContractionProgram, spec: Spec) -> None:
        self.contraction, self.gathered = program.contraction, [one.axis for one in program.gathered]
        super().__init__(MultiStepProgram(program.op, program.over, (step,)), spec)

    def assigned(self, known: Mapping[str, Length], spec: Spec) -> dict[str, Length]:
        return super().assigned({**dict.fromkeys(self.gathered, number(GATHERED)), **known}, spec)

    def view(self) -> dict[str, Any]:
        one = self.contraction
        every = dict.fromkeys((*self.gathered, *one.batch, *one.rows, *one.cols, *one.inner))
        sides = (self.product(side) for side in (one.rows, one.cols, one.inner))
        matrices = number(2 * len(one.products)) * self.product(one.batch)
        return {
            "sizes": self.sizes(),
            "lengths": [(self.names[axis], str(self.lengths[axis])) for axis in every if axis in self.free],
            "operations": " * ".join(map(str, (matrices, *sides))),
        }
