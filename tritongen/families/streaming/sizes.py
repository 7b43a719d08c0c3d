"""The benchmark sizes of streaming kernels, and the FLOPs of their matmuls there."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...lang.ir import Constant, Node, Scalar, Size
from ...nest.values import Expr, V, expr, product, runtime
from ...passes.masks.expressions import FALSE, Expression, First, Last, Number, Value, replaced, unheld
from ...passes.masks.tiles import Range
from ...passes.paged import Pages
from ...spec.types import BATCH, Spec
from ...testing.benchmarks import lengths_of, local, sizes_of
from ...testing.samples import required_values
from .program import StreamingProgram
from .spelling import ZERO, Spelling

BATCHES, HEADS, GROUP, WIDTH, PAGE = 4, 32, 4, 128, 64
# Each streamed byte of half precision costs one operation per row; GPUs do hundreds in the time of its load.
FEW_ROWS = 64


class StreamingSizes:
    """The lengths of axes in a benchmark: 32 heads of 128 in 4 batches, rows and columns of one length.

    Heads that share streamed matrices come in groups of 4, or all share them. Floats are small, so that no single score
    dominates a softmax. Lengths of [bench] take precedence. With few rows memory bounds the kernel: rates are of bytes.
    """

    bounds = ("-1", "1")

    def __init__(self, program: StreamingProgram, spec: Spec) -> None:
        self.program, self.stream, pages = program, program.stream, program.pages
        self.merged = program.merged
        along = pages.page if pages else self.stream.streamed
        self.given = lengths_of(spec, self.stream.rows, along)
        self.listed = sizes_of(spec)
        self.fixed = dict(program.op.sizes)
        self.axes = program.op.axes
        self.names = {axis: str(self.fixed[axis]) if axis in self.fixed else local(axis) for axis in self.axes}
        if BATCH in self.names:
            self.names[BATCH] = "*batch"

    @property
    def template(self) -> str:
        return "bench_caches.py.jinja" if self.has_few_rows() else "bench_streams.py.jinja"

    def has_few_rows(self) -> bool:
        """Whether streamed matrices are read for few rows, over all heads that share them."""
        heads = (self.lengths()[axis] for axis in (*self.stream.heads, *self.stream.outer_axes))
        rows = self.given.get(self.stream.rows)
        return rows is not None and rows * math.prod(one for sizes in heads for one in sizes) <= FEW_ROWS

    def lengths(self) -> dict[str, tuple[int, ...]]:
        """The lengths of all axes but the rows and the streamed axis; several for `...`, one per leading axis."""
        stream = self.stream
        lengths: dict[str, tuple[int, ...]] = dict.fromkeys(self.axes, (GROUP,))
        for axis in stream.widths:
            lengths |= {one: (size,) for one, size in self.merged.lengths(axis, WIDTH, self.fixed).items()}
        lengths |= dict.fromkeys(stream.batch, (1,)) | dict.fromkeys(stream.batch[:1], (BATCHES,))
        if len(stream.batch) > 1:
            lengths[stream.batch[-1]] = (HEADS // GROUP if stream.group else HEADS,)
        elif stream.group:
            lengths[stream.group] = (HEADS,)
        elif stream.batch:
            lengths[stream.batch[0]] = (BATCHES, HEADS) if stream.batch == (BATCH,) else (BATCHES * HEADS,)
        return lengths | {axis: (size,) for axis, size in (*self.fixed.items(), *self.given.items())}

    @property
    def typical(self) -> dict[str, int]:
        long = {self.stream.rows, self.stream.streamed, *self.of_pages()}
        return {axis: math.prod(sizes) for axis, sizes in self.lengths().items() if axis not in long}

    def view(self) -> dict[str, Any]:
        lengths = self.lengths()
        texts = {axis: str(sizes if axis == BATCH else sizes[0]) for axis, sizes in lengths.items()}
        texts |= dict.fromkeys((self.stream.rows, self.stream.streamed), "size") | self.of_pages()
        texts |= {axis: str(size) for axis, size in self.given.items()}
        scores = [self.product(one.over, lengths) for one in self.stream.scores]
        sums = [self.product((self.stream.width(matrix),), lengths) for matrix in self.stream.summed]
        widths = f"({' + '.join(map(str, (*scores, *sums)))})"
        axes = (*self.stream.batch, *self.stream.outer_axes, *self.stream.heads)
        heads = [str(size) for axis in axes for size in lengths[axis]]
        return {
            "sizes": self.sizes(),
            "lengths": [(self.names[axis].strip("*"), texts[axis]) for axis in self.axes if axis not in self.fixed],
            "pairs": self.visible() or self.pairs(),
            "masked": bool(self.visible()),
            "counted": " * ".join(["2", *heads, "pairs", widths]),
            "times_backward": f"{2 + sum(scores) / (sum(scores) + sum(sums)):.4g}",
        }

    def product(self, axes: tuple[str, ...], lengths: Mapping[str, tuple[int, ...]]) -> int:
        return math.prod(lengths[axis][0] for axis in self.merged.parted_axes(axes))

    def of_pages(self) -> dict[str, str]:
        """For paged inputs: positions per page, pages per sequence, and pages in all; {} without pages."""
        pages = self.program.pages
        if pages is None:
            return {}
        size, count = self.page_size(pages), self.given.get(pages.page, f"size // {self.page_size(pages)}")
        sequences = math.prod(one for axis in self.stream.batch[:1] for one in self.lengths()[axis])
        every = dict.fromkeys(
            [one.pages for one in pages.inputs], f"{sequences} * {count if pages.page in self.given else f'({count})'}"
        )
        return {pages.slot: str(size), pages.page: str(count), **every}

    def page_size(self, pages: Pages) -> int:
        return (self.fixed | self.given).get(pages.slot, PAGE)

    def sizes(self) -> tuple[int, ...]:
        """The lengths of the streamed axis that [bench] sweeps; in positions, where it is paged."""
        pages = self.program.pages
        return tuple(one * self.page_size(pages) if pages else one for one in self.listed)

    def length(self, axis: str) -> str:
        pages = self.program.pages
        if pages and axis == self.stream.streamed and pages.page in self.given:
            return str(self.given[pages.page] * self.page_size(pages))
        return str((self.fixed | self.given).get(axis, "size"))

    def pairs(self) -> str:
        return f"{self.length(self.stream.rows)} * {self.length(self.stream.streamed)}"

    def visible(self) -> str:
        """The number of unmasked scores per head under a mask by positions; "" where it is not known for every row."""
        rows, columns = map(self.length, (self.stream.rows, self.stream.streamed))
        ends = visible_range(self.program, rows, columns)
        return f"sum(len(range({ends})) for row in range({rows}))" if ends else ""


# The number of unmasked scores per row under a mask by positions: in Python, without tiles.

# How Python spells the functions of `Apply`.
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

    def leaf(self, inner: Expression) -> Expression:
        match inner:
            case Number() | First(axis=self.axis):
                return inner
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
