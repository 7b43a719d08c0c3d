"""Kernels that map rows and at the same time sum over them, as the gradient by a weight does.

Each program loops over rows and keeps partial sums; a second kernel reduces them. So everything is read
once, and the order of the additions is always the same.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...lang.ir import Op, Reduce, Value
from ...lang.names import shown
from ...lowering.accumulate import padding_value
from ...lowering.lower import Compute, Lowering
from ...lowering.space import Space
from ...lowering.tile import needed
from ...lowering.views import Argument, Kernel
from ...nest.ir import Accumulate, Branch, Do, Let, Line, nested, under
from ...nest.values import Expr, Term, V, runtime, tl
from ...passes.structure import Program, references
from ...spec.types import Input
from ..rowwise.rows import Rows
from ..rowwise.splits import part_pointers
from .program import SumsProgram


@dataclass(frozen=True, slots=True)
class SumsKernel:
    """A kernel; `slots` are the mailboxes in which CTAs that share rows publish partial sums, and `reads` the inputs
    that each iteration reads along the columns, those that it reads twice twice.
    """

    kernel: Kernel
    slots: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SumsKernels:
    """`full` and `shared` reduce the rows themselves; `tiles` takes what the rows reduce to as inputs."""

    space: Space
    compute: Compute
    full: SumsKernel | None
    shared: SumsKernel | None
    tiles: SumsKernel


def plan_sums(program: SumsProgram, given: Op) -> SumsKernels:
    """The kernels; `given` is the operator with what the rows reduce to as inputs, the same if they do not."""
    full, shared = None, None
    if program.reductions:
        full = _full(program)
        shared = _shared(program)
    rows = Rows(Program(_mapped(program, program.op), program.cols))
    tiles = _tiles(program, given, rows.space)
    return SumsKernels(rows.space, rows.compute, full, shared, tiles)


def _mapped(program: SumsProgram, op: Op) -> Op:
    """The operator with what is summed in place of the sums."""
    values = tuple(_summand(v) if v.name in program.sums else v for v in op.values)
    return replace(op, values=values, results=tuple(r for r in op.results if r.output.name not in program.sums))


def _summand(value: Value) -> Value:
    assert isinstance(value.node, Reduce)
    return replace(value, node=value.node.arg)


class _Sums:
    """The lines of one kernel of an operator that accumulates sums beside what it maps."""

    def __init__(self, program: SumsProgram, op: Op, space: Space | None = None) -> None:
        self.program, self.op = program, _mapped(program, op)
        self.rows = Rows(Program(self.op, program.cols), space)
        self.tile, self.assembler = self.rows.tile, self.rows.assembler
        self.lowering = self.rows.lowering()

    def zeros(self) -> list[Line]:
        zeros = tl.zeros([V.BLOCK_M, V.BLOCK_N], self.rows.compute.text)
        return [Let(name, zeros) for name in self.program.sums]

    def reads(self, values: list[Value], rows: bool, cols: bool, policy: str = "") -> list[Line]:
        """The loads of some values that step along rows or do not, and along columns or not."""
        return [
            line
            for tensor in self.read(values, rows, cols)
            for line in under(self.rows.choices.reading(tensor.name, values), self.tile.load_lines(tensor, policy))
        ]

    def read(self, values: list[Value], rows: bool, cols: bool) -> list[Input]:
        """The inputs that some values are of and that step along rows or do not, and along columns or not."""
        return self.rows.inputs_of(values, rows, cols)

    def empty(self, tensors: list[Input]) -> list[Line]:
        """The next rows before any is read."""
        pointers = ((tensor.name, self.tile.tensor(tensor).pointer) for tensor in tensors)
        return [
            Let(f"{name}_next", tl.zeros([V.BLOCK_M, V.BLOCK_N], f"{at}.dtype.element_ty")) for name, at in pointers
        ]

    def held(self, values: list[Value]) -> list[Line]:
        """The next rows that some values are of, in the dtype of the computation."""
        return [Let(t.name, V[f"{t.name}_next"].to(*self.tile.widen(t))) for t in self.read(values, True, True)]

    def left(self, known: Container[str]) -> list[Value]:
        """The values that results and sums need beside what is known."""
        return needed(self.op.values, [result.output.name for result in self.program.op.results], known)

    def finish(self, values: list[Value], first: Expr | None = None) -> list[Line]:
        """What is mapped and what is added to the sums; of the programs that share a row, the `first` stores what is of
        the row alone.
        """
        lines: list[Line] = []
        for value in values:
            summed = value.name in self.program.sums
            lines += _added(self.rows, value, self.lowering) if summed else self.lowering.line(value)
        for result in self.op.results:
            lines += self.assembler.store(result, first if {*result.axes}.isdisjoint(self.program.cols) else None)
        return lines

    def reduced(self, values: list[Value], full: bool) -> list[Line]:
        """Some values, two sums of a row at a time where that can be; without `full`, the partial sums of a chunk of
        it.
        """
        lines: list[Line] = []
        waiting: list[Value] = []
        for value in self.rows.means_first(values):
            mean = self.rows.mean_of(value.node)  # that a variance goes by
            needs = references(value.node) | ({mean.name} if mean else set())
            if needs & {other.name for other in waiting}:
                lines += self.sums(waiting, full)
                waiting = []
            if _is_sum(value):
                waiting.append(value)
            else:
                lines += self.lowering.line(value)
        return lines + self.sums(waiting, full)

    def sums(self, values: list[Value], full: bool) -> list[Line]:
        """The sums that are needed under the same conditions, two at a time."""
        lines: list[Line] = []
        paths = {value.name: self.rows.choices.of(value.name) for value in values}
        for path in dict.fromkeys(paths.values()):
            alike = [value for value in values if paths[value.name] == path]
            given: list[Expr] = []
            for value in alike:
                assert isinstance(value.node, Reduce)
                self.lowering.begin(value.name)
                guard = self.rows.needs_guard(value.node, self.rows.other)
                given.append(self.rows.argument(value.node, self.lowering, guard))
                lines += self.lowering.pending
            names = [value.name for value in alike]
            sums: list[Line] = []
            for place in range(0, len(names) - 1, 2):
                both = slice(place, place + 2)
                sums.append(Let(", ".join(names[both]), runtime.sum_pair(*given[both])))
            if len(names) % 2:
                sums.append(Let(names[-1], tl.sum(given[-1], axis=1, keep_dims=True)))
            lines += [*under(path, sums), *(self.means(alike) if full else ())]
        return lines

    def means(self, values: list[Value]) -> list[Line]:
        """What turns sums into means, where those are wanted."""
        means = [v.name for v in values if isinstance(v.node, Reduce) and v.node.kind == "mean"]
        paths = map(self.rows.choices.of, means)
        return [replace(Let(name, V[name] / V.n_cols), path=path) for name, path in zip(means, paths, strict=True)]

    def shares(self, program: Expr) -> list[Any]:
        """The stores of a program's partial sums."""
        lines: list[Any] = [Let("partial_cols", program * V.n_cols + V.cols)]
        for name in self.program.sums:
            total = Let(name, tl.sum(name, axis=0, keep_dims=True))
            pointer = V[f"{name}_partial_ptr"]
            store = Do(tl.store(pointer + V.partial_cols, name, mask=V.col_mask))
            lines.append(Branch(pointer.is_given, (total, store)))
        return lines

    def kernel(
        self,
        suffix: str,
        doc: str,
        before: Sequence[Line],
        inside: Sequence[Line],
        after: Sequence[Line],
        ahead: Sequence[Line] = (),
        following: Sequence[Line] = (),
        slots: tuple[str, ...] = (),
        reads: tuple[str, ...] = (),
    ) -> SumsKernel:
        """The kernel of some lines."""
        stages = (ahead, following, inside) if suffix == "cooperative_kernel" else (inside,)
        before = (*self.tile.col_decode(), *before)
        first = [Argument(f"{name}_slots_ptr", f"{name}_slots") for name in slots]
        further = (first, part_pointers(self.program.sums))
        kernel = self.assembler.along_rows(suffix, doc, self.lowering, before, stages, after, further)
        return SumsKernel(kernel, slots, reads)


def _tiles(program: SumsProgram, given: Op, space: Space) -> SumsKernel:
    """Tiles of the `space` of the other kernels, whose dimensions the host folds once, for all of them."""
    builder = _Sums(program, given, space)
    values = list(builder.op.values)
    before = [*builder.reads(values, False, False), *builder.reads(values, False, True), *builder.zeros()]
    inside = [*builder.reads(values, True, False), *builder.reads(values, True, True)]
    inside += builder.finish(values, runtime.second_id(V.INDEX).equals(0))
    doc = "Grid-stride over tiles of rows; each program writes its partial column sums."
    return builder.kernel("tiles_kernel", doc, before, inside, builder.shares(tl.program_id(0)))


def _full(program: SumsProgram) -> SumsKernel:
    """Rows are read twice, the second time from the cache: so they take no registers while they are reduced. If nothing
    waits for what they reduce to, they are read once.
    """
    builder = _Sums(program, program.op)
    values = list(builder.op.values)
    first = needed(builder.op.values, [value.name for value in program.reductions])
    known = {value.name for value in first if not program.waits or not builder.rows.along(value)}
    rest = builder.left(known)
    before = [*builder.reads(values, False, False), *builder.zeros()]
    early, late = (first, rest) if program.waits else (values, [])
    inside = [
        *builder.reads(values, True, False),
        *builder.reads(early, True, True),
        *builder.reads(values, False, True),
    ]
    inside += builder.reduced(first, full=True)
    again = builder.reads(late, True, True, "read_once")
    comment = "Reload (L1 or L2 hits) instead of holding these across the reduction: frees registers for the sums."
    inside += [*(replace(line, comment=comment) for line in again[:1]), *again[1:], *builder.finish(rest)]
    doc = "Persistent: each step holds full rows in registers; each program writes its partial column sums."
    reads = [*builder.read(early, True, True), *builder.read(values, False, True), *builder.read(late, True, True)]
    names = tuple(tensor.name for tensor in reads)
    return builder.kernel("kernel", doc, before, inside, builder.shares(tl.program_id(0)), reads=names)


def _shared(program: SumsProgram) -> SumsKernel | None:
    """CTAs that split the columns; None where the rows' statistics are not plain sums, or where what is
    read of the rows may be absent.
    """
    builder = _Sums(program, program.op)
    reductions = [value for value in builder.op.values if value in program.reductions]
    values, names = list(builder.op.values), {value.name for value in reductions}
    first = needed(builder.op.values, names)
    full = builder.read(first, True, True)
    if len(builder.rows.passes) > 1 or not all(map(_is_sum, reductions)) or any(t.default is not None for t in full):
        return None
    rest = builder.left(names)
    before = [
        *builder.reads(values, False, False),
        *builder.reads(values, False, True),
        *builder.empty(full),
        *builder.zeros(),
    ]
    ahead = [Let(f"{tensor.name}_ahead", builder.tile.raw(tensor).value) for tensor in full]
    following = [*builder.reads(first, True, False), *builder.held(first), *builder.reduced(first, full=False)]
    inside = [*builder.reads(rest, True, False), *builder.reads(rest, True, True, "read_once")]
    statistics = sorted(names, key=shown)
    pairs = [tuple(statistics[place : place + 2]) for place in range(0, len(statistics), 2)]
    for pair in pairs:
        slots = Let("slots", V[f"{pair[0]}_slots_ptr"] + V.rows * V.CTAS_PER_ROW)
        suffix = "_pair" if len(pair) == 2 else ""
        following += [slots, Do(runtime[f"publish{suffix}"](V.slots + V.member, *pair, V.row_mask))]
        absent: dict[str, Term] = {"least": 1} if len(pair) == 2 else {}
        received = runtime[f"receive{suffix}"](V.slots, V.CTAS_PER_ROW, V.row_mask, *(0.0 for _ in pair), **absent)
        inside += [slots, Let(", ".join(pair), received)]
        inside += [Let(name, tl.sum(name, axis=1, keep_dims=True)) for name in pair]
    inside += [*builder.means(reductions), *builder.finish(rest, V.member.equals(0))]
    inside += [Let(f"{tensor.name}_next", V[f"{tensor.name}_ahead"]) for tensor in full]
    doc = "Cooperative launch: CTAS_PER_ROW resident CTAs split a row and exchange sums through global memory."
    own, reads = tuple(pair[0] for pair in pairs), tuple(tensor.name for tensor in full)
    return builder.kernel(
        "cooperative_kernel", doc, before, inside, builder.shares(V.group), ahead, following, own, reads
    )


def _is_sum(value: Value) -> bool:
    """Whether a value is a sum or a mean of floating-point numbers."""
    node = value.node
    return isinstance(node, Reduce) and node.kind in ("sum", "mean") and node.arg.dtype.kind == "float"


def _added(rows: Rows, value: Value, lowering: Lowering) -> list[Any]:
    """Takes a tile into a sum, where the sum is asked for."""
    lowering.begin(value.name)
    added = Expr(lowering.expression(value.node))
    # Masked rows have another padding value where that suits a maximum along the columns.
    if rows.other != "0.0" or padding_value(rows.op, value.node, rows.space.row_axes, rows.other) != "0":
        added = tl.where(V.row_mask, added, 0.0)
    lines = nested([*lowering.pending, Accumulate(value.name, "+", added)])
    said = f"{value.name} = {value.source}" if value.source else ""
    return [Branch(V[f"{value.name}_partial_ptr"].is_given, lines, comment=said)]
