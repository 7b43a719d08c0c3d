"""The sizes that tests and benchmarks of matmuls run on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...passes.contractions import Contraction
from ...spec.types import Spec
from ...testing.benchmarks import lengths_of, local, sizes_of
from ...testing.samples import Shapes
from .program import ContractionProgram


@dataclass(frozen=True)
class MatmulShapes(Shapes):
    """Shapes of so many rows, columns and inner elements."""

    program: ContractionProgram
    spread = (3,)  # More would be copied, since they do not fold.

    @property
    def contraction(self) -> Contraction:
        return self.program.contraction

    def beside_fixed(self, axis: str, length: int) -> int:
        """How long an axis is where axes of fixed sizes make a side of a matmul with it: two, if any."""
        sides = self.contraction.rows, self.contraction.cols, self.contraction.inner
        sizes = dict(self.program.op.sizes)
        fixed = math.prod(sizes.get(beside, 1) for side in sides if axis in side for beside in side)
        return max(min(2, length), -(-length // fixed))

    def sides(self, rows: int, cols: int, inner: int) -> tuple[int, ...]:
        """A matmul of such sides, a few in a batch; several axes make a side about so long."""
        contraction = self.contraction
        lengths = dict.fromkeys(contraction.batch, 3) | {one.axis: 4 for one in self.program.picked}
        for side, length in ((contraction.rows, rows), (contraction.cols, cols), (contraction.inner, inner)):
            free = [axis for axis in side if axis in self.axes]
            lengths |= dict.fromkeys(free[1:], 2)
            lengths |= {axis: self.beside_fixed(axis, -(-length // 2 ** (len(free) - 1))) for axis in free[:1]}
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
        """Eleven small tiles, of which split-K and stream-K divide several."""
        return self.sides(165, 21, 101)


class MatmulSizes:
    """How long the axes of a matmul are: each side of so many elements, and 8 matrices in a batch.

    Where several axes make a side, the last of them is a head of 128 and the rest are of 1, but for the first. Those to
    which [bench] gives a length have that.
    """

    template = "bench_products.py.jinja"
    bounds = ()

    def __init__(self, program: ContractionProgram, spec: Spec) -> None:
        self.contraction = program.contraction
        sides = (self.contraction.rows, self.contraction.cols, self.contraction.inner)
        given = lengths_of(spec, *(side[0] for side in sides if len(side) == 1))
        self.sizes = sizes_of(spec)
        self.picked = [(local(one.axis), "64") for one in program.picked if one.axis not in given]
        self.fixed = dict(program.op.sizes) | given
        self.names = {axis: str(self.fixed[axis]) if axis in self.fixed else local(axis) for axis in program.op.axes}

    @property
    def typical(self) -> dict[str, int]:
        return {axis: 8 if place == 0 else 1 for place, axis in enumerate(self.contraction.batch)}

    def view(self) -> dict[str, Any]:
        sides = [self.contraction.batch, self.contraction.rows, self.contraction.cols, self.contraction.inner]
        free = any(axis not in self.fixed for axis in sides[0])
        matrices = math.prod([8 if free else 1, *(self.fixed[axis] for axis in sides[0] if axis in self.fixed)])
        counts = [self.length(side) for side in sides[1:]]
        return {
            "sizes": self.sizes,
            "lengths": [*self.picked, *(pair for side in sides for pair in self.assigned(side, side == sides[0]))],
            "operations": " * ".join([str(2 * len(self.contraction.products) * matrices), *counts]),
        }

    def length(self, side: tuple[str, ...]) -> str:
        """Of all axes of a side together."""
        free = any(axis not in self.fixed for axis in side)
        return "size" if free else str(math.prod(self.fixed[axis] for axis in side))

    def assigned(self, side: tuple[str, ...], batch: bool) -> list[tuple[str, str]]:
        free = [axis for axis in side if axis not in self.fixed]
        fixed = math.prod(self.fixed[axis] for axis in side if axis in self.fixed)
        lengths = dict.fromkeys(free, "1")
        if batch:
            return [(self.names[axis], "8" if axis == free[0] else "1") for axis in free]
        head = 128 if len(free) > 1 else 1
        if free:
            lengths[free[-1]] = str(head)
            lengths[free[0]] = f"size // {head * fixed}" if head * fixed > 1 else "size"
        return [(self.names[axis], length) for axis, length in lengths.items()]
