"""How many scores a mask by positions leaves of a row, as benchmarks count them: in Python, without tiles."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass

from ...lang.ir import Constant, Node, Scalar, Size
from ...nest.values import Expr, V, expr, product, runtime
from ...passes.masks.expressions import FALSE, Expression, First, Last, Number, Value, replaced, unheld
from ...passes.masks.tiles import Range
from ...testing.samples import required_values
from .program import StreamingProgram
from .spelling import ZERO, Spelling

# How Python spells what `Apply` applies.
PYTHON = {"floor_divide": operator.floordiv, "mul": product, "minimum": runtime.min, "maximum": runtime.max}


def visible_range(program: StreamingProgram, rows: str, columns: str) -> str:
    """The arguments of `range` for the scores that are left of a `row`, where there are so many rows and columns.

    "" where no range of positions is all that is left, or only a call tells it. Params are as benchmarks have them.
    """
    tiles = program.blocks.tiles
    if tiles is None or tiles.rest is not None or tiles.empty != FALSE:
        return ""
    given = {param.name: param.default for param in program.op.params} | required_values(program.op)
    row = _Row(program.stream.rows, {program.stream.rows: rows, program.stream.streamed: columns}, given)
    try:
        some, every = (Range(row.alone(one.first), row.alone(one.last)) for one in (tiles.some, tiles.every))
        first, last = Spelling(program.blocks, row.length, V.row, PYTHON).ends_of(some)
    except LookupError:
        return ""
    if some != every:
        return ""
    return last.text if first == ZERO else f"{first}, {last}"


@dataclass(frozen=True)
class _Row:
    """Expressions of tiles for a tile of one row. All methods raise LookupError for what is not known before a call."""

    axis: str
    lengths: Mapping[str, str]
    params: Mapping[str, object]

    def alone(self, expression: Expression) -> Expression:
        """The expression where the first row of the tile is its last, and params have their values."""
        return unheld(replaced(expression, self.leaf))

    def leaf(self, part: Expression) -> Expression:
        match part:
            case Number() | First(axis=self.axis):
                return part
            case Last(axis=self.axis):
                return First(self.axis)
            case Value(node=Size(over=(axis,))) if axis in self.lengths:
                same = next(other for other, length in self.lengths.items() if length == self.lengths[axis])
                return Value(Size((same,)))
            case Value(node=Constant(value=int() as value)):
                return Number(value)
            case Value(node=Scalar(name=name)) if isinstance(given := self.params[name], int):
                return Number(given)
        raise LookupError

    def length(self, node: Node) -> Expr:
        assert isinstance(node, Size)
        return expr(self.lengths[node.over[0]])
