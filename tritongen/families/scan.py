"""The family of scans along an axis, and of the elementwise math around them.

Each program iterates over a few rows in blocks, and carries the state of the scan from block to block.

Few long rows are split between programs, in two stages: the first computes the final state of each chunk, and the
second scans the chunk with the carry of the chunks before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..emit.module import Around, Module
from ..lang.ir import Node, Op, Path, Reduce, Result, Scan, ScatterSum, Take, Value, children, is_order
from ..lang.names import fresh
from ..lowering.accumulate import State, full_reduction
from ..lowering.lower import Lowering
from ..lowering.positions import SPLIT_LANES
from ..lowering.tile import needed
from ..lowering.views import Argument, Kernel, Pass
from ..nest.access import Access, Address
from ..nest.ir import BLANK, Accumulate, Let, Line, under
from ..nest.values import Expr, V, expr, runtime
from ..passes.structure import Program, guaranteed_axes, reached
from ..spec.types import Spec
from ..testing.samples import Shapes
from ..testing.tests import FamilyTests, tolerances
from .family import Family, Step
from .rowwise.family import TESTED_SPLITS
from .rowwise.host import RowsModule
from .rowwise.kernels import SPLITS, partial_pointers, store_partial
from .rowwise.rows import Rows


@dataclass(frozen=True, slots=True)
class ScanProgram(Program):
    """An operator whose `scans` are all along the same axis, in the same direction, and independent."""

    scans: tuple[Value, ...]
    reverse: bool


def scans_alone(op: Op) -> dict[str, Scan]:
    """The scans of an operator with only elementwise math in addition; {} if it has more, or if a result lacks axes."""
    nodes = {value.name: value.node for value in op.values}
    scans = {name: node for name, node in nodes.items() if isinstance(node, Scan)}
    operands = (arg for node in nodes.values() for arg in (children(node) if isinstance(node, Scan) else (node,)))
    kinds = frozenset[type]().union(*(arg.kinds for arg in operands))
    every = {axis for node in nodes.values() for axis in node.axes}
    is_alone = kinds.isdisjoint((Reduce, Scan, ScatterSum, Take))
    return scans if is_alone and all({*result.axes} == every for result in op.results) else {}


# The reductions that equal the last element of a scan; a linear recurrence ends with a sum, decayed by a product.
_ENDS = {"cumsum": "sum", "cumprod": "prod", "recurrence": "sum"}

_LONGEST = 40  # characters of an argument that has no name of its own


@dataclass(frozen=True, slots=True)
class Carry:
    """The state that a scan carries from block to block, and its initial value. The first stage of a split also
    computes `decay`, the factor by which a chunk scales the state before it.
    """

    name: str
    decay: str  # "" where nothing decays
    start: Expr
    dtype: str
    rows: str  # of a tile, or 1 if the scan does not vary along rows

    @property
    def starts(self) -> tuple[tuple[str, Expr], ...]:
        """The names of the states of a chunk, with their initial values."""
        return ((self.decay, expr(1.0)), (self.name, self.start)) if self.decay else ((self.name, self.start),)

    def filled(self, name: str, number: Expr) -> Line:
        """The initial line of a state: a tile filled with `number`."""
        return State(name, number, self.dtype, lanes="1", rows=self.rows).line


class ScanBuilder(Rows):
    """The kernels of a scan."""

    def __init__(self, program: ScanProgram, searched: bool = False) -> None:
        super().__init__(program)
        self.scans, self.reverse = program.scans, program.reverse
        taken = self.op.names
        self.carries = {scan.name: self.carry(scan, taken) for scan in program.scans}

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        return {"loop": self.loop(), "partial": self.partial(), "mapping": self.mapping()}

    @property
    def states(self) -> tuple[tuple[str, str, Path], ...]:
        carries = ((self.choices.of(scan), carry) for scan, carry in self.carries.items())
        return tuple((name, carry.dtype, path) for path, carry in carries for name, _ in carry.starts)

    def carry(self, scan: Value, taken: set[str]) -> Carry:
        accumulator = self.accumulator(_summed(scan))
        name = fresh(f"{scan.name}_carry", taken)
        decay = fresh(f"{name}_decay", taken) if _scan(scan).decay else ""
        rows = "BLOCK_M" if self.tile.moves(scan.node.axes)[0] else "1"
        return Carry(name, decay, accumulator.identity(_summed(scan).kind), accumulator.dtype, rows)

    def loop(self) -> Kernel:
        lowering = self.lowering()
        start = self.each(lambda scan, carry: [carry.filled(carry.name, carry.start)])
        walk = self.walk(start, lowering)
        setup = self.setup(self.left(self.op.results), self.op.results, lowering)
        doc = "Loops along each row and carries the state of the scan from block to block."
        return self.assembler.kernel("loop_kernel", doc, setup, [BLANK, *self.assembler.walked(walk)])

    def partial(self) -> Kernel:
        """The first stage of a split: computes the final state of each chunk of a row."""
        lowering = self.lowering()
        values = needed(self.op.values, [scan.name for scan in self.scans])
        setup = self.setup(values, (), lowering)
        body = self.assembler.reads(values, cols=True)
        for value in filter(self.along, values):
            body += self.end(value, lowering) if value in self.scans else lowering.line(value)
        starts = self.each(lambda _, carry: [carry.filled(*one) for one in carry.starts])
        stores = self.each(
            lambda _, carry: [store_partial(name, V.rows * V.n_splits, V.split) for name, _ in carry.starts]
        )
        walk = Pass("", tuple(starts), tuple(body), (), self.reverse)
        doc = "First stage for few long rows: each program computes the final state of its part of a row."
        further = ((), (*self.partials(), *SPLITS))
        return self.assembler.by_chunks("partial_kernel", doc, setup, walk, stores, further)

    def mapping(self) -> Kernel:
        """The second stage of a split: each program scans a chunk, starting from the carry of the chunks before it."""
        lowering = self.lowering()
        is_behind = (V.splits > V.split) & (V.splits < V.n_splits)
        is_before = Let("is_before", is_behind if self.reverse else V.splits < V.split)
        start = [SPLIT_LANES, is_before, *self.each(self.before)]
        walk = self.walk(start, lowering)
        doc = "Second stage for few long rows: each program scans its part, from the state before it."
        setup = self.setup(self.left(self.op.results), self.op.results, lowering)
        return self.assembler.by_chunks("map_kernel", doc, setup, walk, (), (self.partials(), SPLITS))

    def partials(self) -> tuple[Argument, ...]:
        return partial_pointers(name for carry in self.carries.values() for name, _ in carry.starts)

    def each(self, lines: Callable[[Value, Carry], list[Line]]) -> list[Line]:
        """Lines of each scan, where it is needed."""
        found = ((self.choices.of(scan.name), lines(scan, self.carries[scan.name])) for scan in self.scans)
        return [line for path, some in found for line in under(path, some)]

    def setup(self, values: list[Value], results: tuple[Result, ...], lowering: Lowering) -> list[Line]:
        """The per-row values that a kernel of some values loads and computes."""
        lines = [line for value in values if not self.along(value) for line in lowering.line(value)]
        return [*self.assembler.bases(results), *self.assembler.reads(values, cols=False), *lines]

    def walk(self, start: list[Line], lowering: Lowering) -> Pass:
        """The loop along a row that stores the results."""
        body = self.assembler.reads(self.left(self.op.results), cols=True)
        for value in filter(self.along, self.left(self.op.results)):
            body += self.scanned(value, lowering) if value in self.scans else lowering.line(value)
        body += self.assembler.stores(self.op.results)
        return Pass("", tuple(start), tuple(body), (), self.reverse)

    def scanned(self, scan: Value, lowering: Lowering) -> list[Line]:
        """The scan of a block, and the carry into the next one."""
        carry = self.carries[scan.name].name
        arguments = self.arguments(scan, lowering, self.reverse)
        call = runtime[_scan(scan).kind](*arguments, carry, reverse=self.reverse)
        lowering.put(Let(f"{scan.name}, {carry}", call))
        return lowering.finished(scan)

    def end(self, scan: Value, lowering: Lowering) -> list[Line]:
        """Updates the state of a chunk with a block: the last element of its scan."""
        carry, summed = self.carries[scan.name], _summed(scan)
        arguments = self.arguments(scan, lowering, True)
        if carry.decay:
            end = runtime.end_of_recurrence(*arguments, carry.decay, carry.name, reverse=self.reverse)
            lowering.put(Let(f"{carry.decay}, {carry.name}", end))
        else:
            end = full_reduction(summed, self.accumulator(summed), V.cols, False, arguments[0])
            lowering.put(Accumulate(carry.name, "+" if summed.kind == "sum" else "*", end))
        return lowering.pending

    def before(self, scan: Value, carry: Carry) -> list[Line]:
        """Merges the states of the chunks before a program's own into its carry."""
        at: tuple[Expr, ...] = (V.rows * V.n_splits, V.splits)
        mask = V.row_mask & V.is_before
        if carry.rows == "1":
            at, mask = (V.splits,), V.is_before
        lines: list[Line] = [
            Let(name, Access(Address(f"{name}_partial_ptr", at), mask, start).value) for name, start in carry.starts
        ]
        if carry.decay:
            call = runtime.recurrence(carry.decay, carry.name, 0.0, reverse=self.reverse)
            return [*lines, Let(f"_, {carry.name}", call)]
        summed = _summed(scan)
        total = full_reduction(summed, self.accumulator(summed), V.cols, False, V[carry.name])
        return [*lines, Let(carry.name, total)]

    def arguments(self, scan: Value, lowering: Lowering, counts: bool) -> list[Expr]:
        """The arguments of a scan; lanes after the end of a row are neutral if they `count`, or if no argument is
        guaranteed to be a tile without the mask.
        """
        node = _scan(scan)
        lowering.begin(scan.name)
        decays = [_as_reduction("prod", node.decay, node)] if node.decay else []
        reductions = [*decays, _summed(scan)]
        is_tile = any(self.program.over[0] in guaranteed_axes(self.op, one.arg) for one in reductions)
        guards = (not is_tile or (counts and self.needs_guard(one, self.other)) for one in reductions)
        values = [self.argument(one, lowering, guard) for one, guard in zip(reductions, guards, strict=True)]
        names = ["decay", "term"][-len(values) :]
        return [
            lowering.hoist(name, one) if len(one.text) > _LONGEST else one
            for name, one in zip(names, values, strict=True)
        ]


def _scan(value: Value) -> Scan:
    assert isinstance(value.node, Scan)
    return value.node


def _summed(scan: Value) -> Reduce:
    """The reduction that is the last element of a scan along a row, if nothing decays."""
    node = _scan(scan)
    return _as_reduction(_ENDS[node.kind], node.arg, node)


def _as_reduction(kind: str, arg: Node, node: Scan) -> Reduce:
    axes = tuple(axis for axis in node.axes if axis != node.over)
    return Reduce(kind, arg, (node.over,), axes, node.dtype)


class Scans(Family[ScanProgram]):
    """Scans that are all along the same axis, each row by itself."""

    title = "a scan"
    autocast = "float32"

    def take(self, op: Op) -> ScanProgram | None:
        """The program, where an operator has scans and elementwise math, and nothing else."""
        scans = scans_alone(op)
        if not scans or any(map(is_order, scans.values())):
            return None
        directions = {(node.over, node.reverse) for node in scans.values()}
        refs = op.refs
        chained = any(scans.keys() & reached(refs, refs[name], ()) for name in scans)
        if len(directions) > 1 or chained:
            return None
        ((over, reverse),) = directions
        return ScanProgram(op, (over,), tuple(map(op.value, scans)), reverse)

    def module(self, program: ScanProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return RowsModule(program, autotune, around, ScanBuilder).module()

    def tests(self, spec: Spec, program: ScanProgram, module: Module) -> FamilyTests:
        declared = {"splits": TESTED_SPLITS, "cancels": "True", **tolerances(program.op)}
        return FamilyTests("RowwiseTests", Shapes(spec, program), declared)

    def gradient_tests(self, module: Module) -> Mapping[str, str]:
        return {"backward_splits": TESTED_SPLITS}


SCANS = Scans()
