"""The sizes that tests and benchmarks of streaming kernels run on."""

from __future__ import annotations

from dataclasses import dataclass

from ...spec.types import Input
from ...testing.samples import Shapes
from ..stream import Stream
from .gluon import is_of_scores
from .program import StreamingProgram


@dataclass(frozen=True)
class StreamingShapes(Shapes):
    """Shapes of so many rows, streamed positions and widths."""

    program: StreamingProgram

    @property
    def stream(self) -> Stream:
        return self.program.stream

    def lengths_of(self, rows: int, streamed: int, widths: int, batch: int = 2) -> tuple[int, ...]:
        lengths = dict.fromkeys(self.axes, batch)
        lengths |= dict.fromkeys(self.stream.widths, widths) | {self.stream.rows: rows} | self.positions(streamed)
        return tuple(self.fitting({axis: lengths[axis] for axis in self.axes}).values())

    def positions(self, streamed: int) -> dict[str, int]:
        """The lengths of the axes of so many streamed positions, or a few more that fill their pages."""
        pages = self.program.pages
        if pages is None:
            return {self.stream.streamed: streamed}
        size = dict(self.program.op.sizes).get(pages.slot, max(1, min(16, streamed // 3)))
        count = -(-streamed // size)
        return {pages.page: count, pages.slot: size} | {one.pages: count + 1 for one in pages.inputs}

    def of(self, batch: tuple[int, ...], middle: int, long: int, others: int = 3) -> tuple[int, ...]:
        """So many rows, at least as many streamed positions, and widths that are odd."""
        lengths = dict(zip(self.axes, self.lengths_of(middle, max(middle, long), 2 * others + 1), strict=True))
        named = [lengths[axis] for axis in self.axes if axis != "..."]
        return (*(batch if self.batch else ()), *named)

    def summed(self, tensor: Input) -> str:
        """Scores of hundreds would leave one of the probabilities, and gradients in which all cancels."""
        over = (one.over for one in self.stream.scores if tensor.name in (one.left.name, one.right.name))
        return next(over, "")

    def small(self) -> list[tuple[int, ...]]:
        cases = [(5, 37, 16), (64, 64, 32), (70, 130, 20), (1, 1, 1), (1, 70, 24), (17, 33, 40)]
        return list(dict.fromkeys([self.ragged, *(self.lengths_of(*case) for case in cases)]))

    def large(self) -> list[tuple[int, ...]]:
        return [
            self.lengths_of(*case) for case in ((1024, 1024, 128), (1000, 1333, 64), (257, 515, 80), (1, 4096, 128))
        ]

    def is_valueless(self, axis: str) -> bool:
        return axis in (*self.program.over, *self.stream.widths)

    def empty(self) -> list[tuple[int, ...]]:
        """None where nothing is streamed: torch's sums of nothing are 0, whatever divides them."""
        over = [self.axes.index(axis) - len(self.axes) for axis in self.axes if axis in self.program.over]
        return [shape for shape in super().empty() if all(shape[place] for place in over)]

    def valueless(self) -> list[tuple[int, ...]]:
        return []

    def tiled(self) -> list[tuple[int, ...]]:
        return [self.lengths_of(40, 72, 32), self.lengths_of(45, 69, 21)]

    def gluon(self) -> list[tuple[int, ...]]:
        """Of heads of up to 128, and of rows of numbers for each score, that TMA reads: of whole 16 bytes."""
        biased = any(is_of_scores(tensor, self.stream) for tensor in self.program.op.inputs)
        multiple = 8 if biased else 1
        cases = [
            self.lengths_of(rows, -(-streamed // multiple) * multiple, widths)
            for rows, streamed, widths in ((200, 333, 64), (300, 130, 128), (129, 257, 80))
        ]
        fixed = dict(self.program.op.sizes)

        def fits(case: tuple[int, ...]) -> bool:
            known = dict(zip(self.axes, case, strict=True)) | fixed
            return all(known[axis] % 8 == 0 and known[axis] <= 128 for axis in self.stream.widths)

        return list(dict.fromkeys(filter(fits, cases)))

    def wide(self) -> tuple[int, ...]:
        return self.lengths_of(37, 90, 24)

    def special(self) -> tuple[int, ...]:
        return self.lengths_of(21, 24, 8, batch=3)
