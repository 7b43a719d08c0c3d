"""The sizes that tests and benchmarks of streaming kernels run on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...lang.integers import bounds_in
from ...lang.ir import Call, Load, Node, Op, Reduce, Take
from ...passes.exponentials import resolve
from ...passes.merged_axes import MergedAxes
from ...spec.types import BATCH, INTS, AxisTerm, Input
from ...testing.samples import Shapes, range_of
from ..stream import Scores, Stream
from .gluon_shared import kind_of_scores
from .program import StreamingProgram


@dataclass(frozen=True)
class StreamShapes(Shapes):
    """Shapes of so many rows, streamed positions and widths, of a step that streams an axis."""

    leading = (2, 3, 2)  # Of heads, kernels step through two such axes.

    @property
    def streaming(self) -> StreamingProgram:
        raise NotImplementedError

    @property
    def stream(self) -> Stream:
        return self.streaming.stream

    @property
    def merged(self) -> MergedAxes:
        return self.streaming.merged

    @property
    def axes_of_steps(self) -> tuple[str, ...]:
        """The axes of other steps alone."""
        op = self.streaming.op
        known = {axis for tensor in op.inputs for axis in tensor.type.axes}
        return tuple(axis for axis in self.axes if axis not in known)

    def lengths_of(self, rows: int, streamed: int, widths: int, batch: int = 2) -> tuple[int, ...]:
        lengths = dict.fromkeys(self.axes, batch) | dict.fromkeys(self.axes_of_steps, widths)
        for axis in self.stream.widths:
            lengths |= self.merged.lengths(axis, widths, dict(self.program.op.sizes))
        lengths |= {self.stream.rows: rows} | self.positions(streamed)
        return tuple(self.fitting({axis: lengths[axis] for axis in self.axes}).values())

    def positions(self, streamed: int) -> dict[str, int]:
        """The lengths of the axes of so many streamed positions, or a few more that fill their pages."""
        pages = self.streaming.pages
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
        scores = (one for one in self.stream.scores if tensor.name in (one.left.name, one.right.name))
        return next(map(self.longest, scores), "")

    def longest(self, score: Scores) -> str:
        """The axis over which a score is a sum; of several the one of any length."""
        axes, fixed = self.merged.parted_axes(score.over), dict(self.program.op.sizes)
        return max(axes, key=lambda axis: (axis not in fixed, fixed.get(axis, 0)))

    def small(self) -> list[tuple[int, ...]]:
        cases = [(5, 37, 16), (64, 64, 32, 1), (70, 130, 20), (1, 1, 1), (1, 70, 24), (17, 33, 40)]
        return list(dict.fromkeys([self.ragged, *(self.lengths_of(*case) for case in cases)]))

    def large(self) -> list[tuple[int, ...]]:
        return [
            self.lengths_of(*case) for case in ((1024, 1024, 128), (1000, 1333, 64), (257, 515, 80), (1, 4096, 128))
        ]

    def tiled(self) -> list[tuple[int, ...]]:
        return [self.lengths_of(40, 72, 32), self.lengths_of(45, 69, 21, batch=1)]

    @property
    def uneven(self) -> tuple[int, int]:
        """Rows and streamed positions, fewer than rows where the oracle knows what rows without keys are."""
        return (300, 130)

    def gluon(self) -> list[tuple[int, ...]]:
        """Of heads of up to 128, and of rows of values for each score, that TMA reads: of whole 16 bytes."""
        biased = any(kind_of_scores(tensor, self.stream) == "scores" for tensor in self.program.op.inputs)
        multiple = 8 if biased else 1
        cases = [
            self.lengths_of(rows, -(-streamed // multiple) * multiple, widths)
            for rows, streamed, widths in ((200, 333, 64), (*self.uneven, 128), (129, 257, 80))
        ]
        fixed = dict(self.program.op.sizes)

        def fits(case: tuple[int, ...]) -> bool:
            known = self.with_computed(case) | fixed
            widths = [math.prod(known[one] for one in self.merged.parted_axes((axis,))) for axis in self.stream.widths]
            return all(width % 8 == 0 and width <= 128 for width in widths)

        return list(dict.fromkeys(filter(fits, cases)))

    def wide(self) -> tuple[int, ...]:
        return self.lengths_of(37, 90, 24)

    def special(self) -> tuple[int, ...]:
        return self.lengths_of(21, 24, 8, batch=3)


@dataclass(frozen=True)
class StreamingShapes(StreamShapes):
    """Shapes of an operator that is one such step."""

    program: StreamingProgram

    @property
    def streaming(self) -> StreamingProgram:
        return self.program

    def valueless(self) -> list[tuple[int, ...]]:
        return []

    def few_keys(self) -> tuple[int, ...]:
        """Fewer streamed positions than rows, of which a mask then may leave some none; not where rows may be NaN by
        positions outside of a table.
        """
        return () if _reads_outside(self.program.op) else self.lengths_of(45, 20, 24)

    # Rows without keys

    def hiding(self) -> list[tuple[str, float, int, int]]:
        """The inputs by which rows have nothing to stream: with which value, along which of their dimensions and of the
        results', counted from the first or from the last.
        """
        op, rows, found = self.program.op, self.stream.rows, []
        for tensor in op.inputs:
            value = self.hides(tensor)
            if value is None:
                continue
            axis = rows if rows in tensor.type.axes else tensor.type.axes[0]
            own = _places(axis, tensor.type.shape)
            results = [_places(axis, op.grouping(result)) for result in op.results]
            same = next((places[0] for places in zip(*results, strict=False) if len({*places}) == 1), None)
            if own and same is not None:
                found.append((tensor.name, value, own[-1], same))
        return found

    def hides(self, tensor: Input) -> float | None:
        """The value of an input with which scores are minus infinity, if it has one."""
        op, streamed = self.program.op, self.stream.streamed
        if not self.stream.largest or tensor.default is not None or not tensor.type.axes:
            return None
        if tensor.type.dtypes == ("bool",):
            return False
        if {self.stream.rows, streamed} <= set(tensor.type.axes) and self.adds(
            op.value(self.stream.largest).node, tensor
        ):
            return float("-inf")
        low = found.low if (found := range_of(tensor, self.spec)) else None
        is_compared = set(tensor.type.dtypes) <= set(INTS) and streamed not in tensor.type.axes
        return low - 1 if is_compared and isinstance(low, int) and self.program.pages is None else None

    def adds(self, node: Node, tensor: Input) -> bool:
        """Whether a score, or the largest of scores, has an input as one of its terms."""
        match resolve(self.program.op, node):
            case Load(name=tensor.name):
                return True
            case Reduce(arg=arg):
                return self.adds(arg, tensor)
            case Call(function="add", args=args):
                return any(self.adds(arg, tensor) for arg in args)
            case Call(function="where", args=(_, score, _)):
                return self.adds(score, tensor)
        return False


def _places(axis: str, shape: Sequence[AxisTerm]) -> tuple[int, int] | tuple[()]:
    """Which dimension an axis is, from the first and from the last; the former counts for nothing beside `...`."""
    names = [term.names for term in shape]
    if (axis,) not in names or axis == BATCH:
        return ()
    place = names.index((axis,))
    return place if (BATCH,) not in names else place - len(names), place - len(names)


def _reads_outside(op: Op) -> bool:
    """Whether something may be taken from outside of a table of a fixed length."""
    bounds, sizes = bounds_in(op), dict(op.sizes)
    nodes = (node for node in op.nodes if isinstance(node, Load | Take))
    at = (pair for node in nodes for pair in node.at if pair[0] in sizes)
    return any(any(bounds.may_be_outside(index, axis)) for axis, index in at if not isinstance(index, Load))
