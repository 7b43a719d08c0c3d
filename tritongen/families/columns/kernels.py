"""Kernels that map rows and sum over them in one pass, as for the gradient of a weight.

Each program loops over rows and accumulates partial sums; a second kernel reduces them. So everything is read once, and
the order of the additions is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...lang.ir import Op, Reduce, Value
from ...lang.names import shown
from ...lowering.accumulate import padding_value
from ...lowering.space import Space
from ...lowering.tile import needed
from ...lowering.views import Argument, Kernel
from ...nest.ir import Accumulate, Branch, Do, Let, Line, nested, under
from ...nest.values import Expr, V, runtime, tl
from ...passes.structure import Program, references
from ...spec.types import Input
from ..rowwise.kernels import partial_pointers
from ..rowwise.rows import Rows
from .program import SumsProgram


@dataclass(frozen=True, slots=True)
class SumsKernel:
    """A kernel; CTAs that share rows publish partial sums in the mailboxes `slots`, and `reads` lists the inputs that
    each iteration reads along the columns, twice if it reads them twice.
    """

    kernel: Kernel
    slots: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


def _mapped(program: SumsProgram, op: Op) -> Op:
    """The operator with each column sum replaced by its summand, and without the sums as results."""
    values = tuple(
        replace(v, node=v.node.arg) if v.name in program.sums and isinstance(v.node, Reduce) else v for v in op.values
    )
    return replace(op, values=values, results=tuple(r for r in op.results if r.output.name not in program.sums))


class Sums(Rows):
    """The kernels that accumulate column sums and compute mapped results: of the operator itself, or of `given`, which
    has the row statistics as inputs, in the operator's space.
    """

    def __init__(self, program: SumsProgram, given: Op | None = None, space: Space | None = None) -> None:
        self.entire, self.sums = program, program.sums
        super().__init__(Program(_mapped(program, given or program.op), program.cols), space)
        self.lines = self.lowering()
        self.statistics = [value for value in self.op.values if value in program.reductions]
        self.first = needed(self.op.values, [value.name for value in self.statistics])

    def zeros(self) -> list[Line]:
        zeros = tl.zeros([V.BLOCK_M, V.BLOCK_N], self.compute.text)
        return [Let(name, zeros) for name in self.sums]

    def finish(self, values: Iterable[Value], first: Expr | None = None) -> list[Line]:
        """Computes `values`, adds to the column sums, and stores the results; if programs share a row, only the `first`
        stores the per-row results.
        """
        lines: list[Line] = []
        for value in values:
            summed = value.name in self.sums
            lines += self.added(value) if summed else self.lines.line(value)
        for result in self.op.results:
            lines += self.assembler.store(result, first if {*result.axes}.isdisjoint(self.program.over) else None)
        return lines

    def reduced(self, values: list[Value], full: bool) -> list[Line]:
        """Computes `values`, with independent sums two at a time; without `full`, the partial sums of a chunk."""
        lines: list[Line] = []
        waiting: list[Value] = []
        for value in self.means_first(values):
            mean = self.mean_of(value.node)  # that a variance uses
            needs = references(value.node) | ({mean.name} if mean else set())
            if needs & {other.name for other in waiting}:
                lines += self.summed(waiting, full)
                waiting = []
            if _is_sum(value):
                waiting.append(value)
            else:
                lines += self.lines.line(value)
        return lines + self.summed(waiting, full)

    def summed(self, values: list[Value], full: bool) -> list[Line]:
        """Reduces sums two at a time if they are needed under the same conditions."""
        lines: list[Line] = []
        paths = {value.name: self.choices.of(value.name) for value in values}
        for path in dict.fromkeys(paths.values()):
            same = [value for value in values if paths[value.name] == path]
            given: list[Expr] = []
            for value in same:
                assert isinstance(value.node, Reduce)
                self.lines.begin(value.name)
                given.append(self.argument(value.node, self.lines))
                lines += self.lines.pending
            names = [value.name for value in same]
            sums: list[Line] = []
            for place in range(0, len(names) - 1, 2):
                both = slice(place, place + 2)
                sums.append(Let(", ".join(names[both]), runtime.sum_pair(*given[both])))
            if len(names) % 2:
                sums.append(Let(names[-1], tl.sum(given[-1], axis=1, keep_dims=True)))
            lines += [*under(path, sums), *(self.means(same) if full else ())]
        return lines

    def added(self, value: Value) -> list[Any]:
        """Adds a tile to a column sum, if the sum is requested."""
        self.lines.begin(value.name)
        added = self.lines.expression(value.node)
        # Masked rows may have a padding value other than 0, which suits a maximum along the columns.
        if self.other != 0 or padding_value(self.op, value.node, self.space.row_axes, self.other) != "0":
            added = tl.where(V.row_mask, added, 0.0)
        lines = nested([*self.lines.pending, Accumulate(value.name, "+", added)])
        said = f"{value.name} = {value.source}" if value.source else ""
        return [Branch(V[f"{value.name}_partial_ptr"].is_given, lines, comment=said)]

    def means(self, values: list[Value]) -> list[Line]:
        """Divides the sums of means by the number of columns."""
        means = [v.name for v in values if isinstance(v.node, Reduce) and v.node.kind == "mean"]
        paths = map(self.choices.of, means)
        return [replace(Let(name, V[name] / V.n_cols), path=path) for name, path in zip(means, paths, strict=True)]

    def shares(self, program: Expr) -> list[Any]:
        """The stores of a program's partial sums."""
        lines: list[Any] = [Let("partial_cols", program * V.n_cols + V.cols)]
        for name in self.sums:
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
        stages: Sequence[Sequence[Line]],
        program: Expr,
        slots: tuple[str, ...] = (),
        reads: Iterable[Input] = (),
    ) -> SumsKernel:
        before = (*self.tile.col_decode(), *before)
        first = [Argument(f"{name}_slots_ptr", V[f"{name}_slots"]) for name in slots]
        further = (first, partial_pointers(self.sums))
        kernel = self.assembler.along_rows(suffix, doc, before, stages, self.shares(program), further)
        return SumsKernel(kernel, slots, tuple(tensor.name for tensor in reads))

    def by_tiles(self) -> SumsKernel:
        """The kernel on tiles, of an operator without row statistics, or `given` them."""
        values, reads = self.op.values, self.assembler.reads
        before = [*reads(values, False, False), *reads(values, False, True), *self.zeros()]
        inside = [*reads(values, True, False), *reads(values, True, True)]
        inside += self.finish(values, runtime.second_id(V.INDEX).equals(0))
        doc = "Grid-stride over tiles of rows; each program writes its partial column sums."
        return self.kernel("tiles_kernel", doc, before, [inside], tl.program_id(0))

    def in_full(self) -> SumsKernel:
        """The kernel that reads rows twice, the second time from the cache, so that they take no registers during the
        reduction. It reads them once if no value depends on the row statistics.
        """
        values, reads, inputs_of = self.op.values, self.assembler.reads, self.assembler.inputs_of
        waits = self.entire.waits
        rest = self.left(
            self.entire.op.results, {value.name for value in self.first if not (waits and self.along(value))}
        )
        early, late = (self.first, rest) if waits else (values, [])
        inside = [*reads(values, True, False), *reads(early, True, True), *reads(values, False, True)]
        inside += self.reduced(self.first, full=True)
        again = reads(late, True, True, "read_once")
        comment = "Reload (L1 or L2 hits) instead of holding these across the reduction: frees registers for the sums."
        inside += [*(replace(line, comment=comment) for line in again[:1]), *again[1:], *self.finish(rest)]
        doc = "Persistent: each step holds full rows in registers; each program writes its partial column sums."
        before = [*reads(values, False, False), *self.zeros()]
        read = [*inputs_of(early, True, True), *inputs_of(values, False, True), *inputs_of(late, True, True)]
        return self.kernel("kernel", doc, before, [inside], tl.program_id(0), reads=read)

    def by_ctas(self) -> SumsKernel | None:
        """The kernel whose CTAs split the columns; None if row statistics are not sums or means computed in one pass,
        or if they read optional inputs.
        """
        values, reads = self.op.values, self.assembler.reads
        held = self.assembler.inputs_of(self.first, True, True)
        fits = len(self.passes) == 1 and all(map(_is_sum, self.statistics))
        if not fits or any(tensor.default is not None for tensor in held):
            return None
        names = {value.name for value in self.statistics}
        rest = self.left(self.entire.op.results, names)
        before = [*reads(values, False, False), *reads(values, False, True)]
        before += [*(self.unread(tensor, "next") for tensor in held), *self.zeros()]
        ahead = [Let(f"{tensor.name}_ahead", self.tile.raw(tensor).value) for tensor in held]
        following = [*reads(self.first, True, False), *self.held(held, "next"), *self.reduced(self.first, full=False)]
        inside = [*reads(rest, True, False), *reads(rest, True, True, "read_once")]
        ordered = sorted(names, key=shown)
        pairs = [tuple(ordered[place : place + 2]) for place in range(0, len(ordered), 2)]
        for pair in pairs:
            at = V[f"{pair[0]}_slots_ptr"] + V.rows * V.CTAS_PER_ROW
            least = {"least": 1} if len(pair) == 2 else {}
            publish, receive = self.exchange(at, pair, [0.0] * len(pair), **least)
            following += publish
            inside += [*receive, *(Let(name, tl.sum(name, axis=1, keep_dims=True)) for name in pair)]
        inside += [*self.means(self.statistics), *self.finish(rest, V.member.equals(0))]
        inside += [Let(f"{tensor.name}_next", V[f"{tensor.name}_ahead"]) for tensor in held]
        doc = "Cooperative launch: CTAS_PER_ROW resident CTAs split a row and exchange sums through global memory."
        slots, stages = tuple(pair[0] for pair in pairs), (ahead, following, inside)
        return self.kernel("cooperative_kernel", doc, before, stages, V.group, slots, held)


def _is_sum(value: Value) -> bool:
    """Whether a value is a sum or a mean of floats."""
    node = value.node
    return isinstance(node, Reduce) and node.kind in ("sum", "mean") and node.arg.dtype.kind == "float"
