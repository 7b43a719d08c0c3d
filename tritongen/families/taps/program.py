"""An operator that is a sum for each tap of a window, as its family sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...lang.ir import Choose, Op, Reduce, Value
from ...lang.promotion import is_float8
from ...lowering.space import LINE, Space, pinned_axes, row_space
from ...passes.structure import Program, plain
from ...spec.types import BATCH
from ..elementwise.windows import shared_axes

MOST = 32  # taps, since every lane keeps a sum for each


@dataclass(frozen=True, slots=True)
class TapsProgram(Program):
    """A sum for each row and each of its `taps`, axes of fixed lengths that only positions depend on.

    Programs loop over an `outer` axis, on which no position depends, for all that they compute of their columns; "" if
    there is none.
    """

    taps: tuple[str, ...]
    outer: str

    @property
    def total(self) -> Value:
        """The sum."""
        (value,) = self.reductions
        return value

    @property
    def count(self) -> int:
        """The number of taps."""
        lengths = dict(self.op.sizes)
        return math.prod(lengths[axis] for axis in self.taps)

    @property
    def cols(self) -> tuple[str, ...]:
        """The axes that are reduced in tiles."""
        return tuple(axis for axis in self.over if axis != self.outer)

    @property
    def space(self) -> Space:
        """Tiles of rows by columns, and the axes of the loops outside and inside of them."""
        nodes = tuple(value.node for value in self.op.values)
        return row_space(self.op, self.cols, nodes, (self.outer, *self.taps))


def recognise_taps(op: Op) -> TapsProgram | None:
    """The program, where an operator is a single sum of floats, stored row after row, and tap after tap in each."""
    program = plain(op)
    if program is None or len(op.results) > 1 or len(program.reductions) != 1:
        return None
    (result,) = op.results
    node = op.value(result.output.name).node
    if not isinstance(node, Reduce) or node.kind != "sum" or node.arg.dtype.kind != "float":
        return None
    if any(Choose in value.node.kinds for value in op.values) or is_float8(op, result.dtype):
        return None
    taps = shared_axes(op)
    rows = tuple(axis for axis in result.axes if axis not in taps)
    found = TapsProgram(op, program.over, taps, _outer(op, program.over))
    fits = taps and found.count <= MOST and result.axes == (*rows, *taps)
    return found if fits and found.space.row_axes == rows else None


def _outer(op: Op, over: tuple[str, ...]) -> str:
    """The first of the reduced axes in memory, if positions depend on others alone, which may be long; else ""."""
    pinned = pinned_axes(tuple(value.node for value in op.values)) & {*over}
    orders = {tuple(a for a in t.type.axes if a in over) for t in op.inputs if {*over} <= {*t.type.axes}}
    if len(orders) != 1 or not pinned:
        return ""
    ((first, *others),) = orders
    lengths = dict(op.sizes)
    is_short = math.prod(lengths.get(axis, LINE) for axis in others) < LINE
    return "" if first in (BATCH, *pinned) or is_short else first
