"""Kernels whose CTAs share long rows: each holds a chunk of a row in registers, and exchanges its partial results.

A row is read two iterations before it is written, and its partial results are published one iteration before, so no CTA
waits for memory or for another CTA.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ...lang.ir import Call, Load, Reduce, Value
from ...lowering.accumulate import Running, full_reduction
from ...lowering.lower import Lowering
from ...lowering.tile import needed
from ...lowering.views import Argument, Kernel
from ...nest.access import Access
from ...nest.ir import Let, Line
from ...nest.values import Expr, V, expr, runtime, tl
from ...passes.exponentials import takes_finite
from ...passes.structure import Program
from ...spec.types import Input
from .kernels import RowBuilder

HALF = frozenset(("float16", "bfloat16"))


def share_rows(program: Program) -> SharedRows | None:
    """The kernel for rows that are broadcast back and may be long; None if they are not, or if it is of no use.

    It needs one or two required inputs with rows and columns that may have half precision, so that registers hold three
    rows of them; a single stride between rows; and reductions of floats that do not depend on one another.
    """
    sharing = SharedRows(program) if program.maps_back else None
    return sharing if sharing is not None and sharing.fits() else None


@dataclass
class _Lowering(Lowering):
    """Spells exponentials that flush subnormal results to zero."""

    def call(self, node: Call) -> Expr:
        if node.function == "exp" and self.compute.text == "COMPUTE":
            return runtime.exp_ftz(self.in_compute(node.args[0]))
        return super().call(node)


class SharedRows(RowBuilder):
    """The kernel of a program, whose CTAs hold chunks of the `streamed` tensors."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.exchanged = self.running(self.passes[0]) if len(self.passes) == 1 else []  # the states of a chunk

    def fits(self) -> bool:
        states = [run for _, run in self.exchanged]
        floats = all(state.dtype == self.compute.text for run in states for state in run.states)
        return (
            bool(states)
            and self.may_be_long()
            and self.is_plain()
            and not self.barrier()
            and floats
            and self.compute.text in ("COMPUTE", "tl.float32")
            and not any(self.choices.of(value.name) for value in self.passes[0])
            and not any(isinstance(node, Load) and node.at for node in self.op.nodes)
            and self.reduces_half()
        )

    def reduces_half(self) -> bool:
        """Whether one or two inputs are held, and all are required, may have half precision, and are reduced."""
        streamed = self.streamed()
        reduced = self.assembler.inputs_of(needed(self.op.values, [value.name for value in self.program.reductions]))
        half = all(tensor.default is None and HALF & set(tensor.type.dtypes) for tensor in streamed)
        return half and 1 <= len(streamed) <= 2 and all(tensor in reduced for tensor in streamed)

    def is_plain(self) -> bool:
        """Whether a single stride addresses the rows: each tensor has all row axes, in order, or none."""
        axes = self.space.row_axes
        every = [tensor.type.axes for tensor in self.op.inputs] + [result.axes for result in self.op.results]
        own = [tuple(axis for axis in one if axis in axes) for one in every]
        in_line = len(self.space.rows) == 1 or not any(dim.pinned for dim in self.space.rows)
        return len(self.space.cols) == 1 and bool(axes) and in_line and all(one in ((), axes) for one in own)

    @property
    def merges(self) -> str:
        """How exchanged partial results are merged: as "sums" and the like, as "pairs" if one state rescales the
        other, or as "moments", means and squared distances from them.
        """
        runs = [run for _, run in self.exchanged]
        pairs = "pairs" if any(len(run.states) > 1 for run in runs) else "sums"
        return "moments" if any(run.counts for run in runs) else pairs

    def streamed(self) -> list[Input]:
        """The inputs that vary along rows and columns."""
        return self.assembler.inputs_of(self.op.values, True, True)

    @cached_property
    def kernel(self) -> Kernel:
        lowering, tensors = self.lowering(_Lowering), self.streamed()
        (reductions,), states = self.passes, self.exchanged
        before, ahead = self.assembler.reads(self.op.values, False, False), []
        for tensor in tensors:
            before += [self.unread(tensor, "now"), self.unread(tensor, "next")]
            at, fill = self.tile.address(self.tile.tensor(tensor)), self.tile.fill(tensor)
            ahead.append(Let(f"{tensor.name}_ahead", Access(at, V.tile_mask, fill, by="read_once").value))

        wanted = [v for v in self.arguments(reductions) if v not in reductions and not self.replaced(v, reductions)]
        following = [
            *self.assembler.reads([*wanted, *reductions], True, False),
            *self.assembler.reads([*wanted, *reductions], False, True),
        ]
        following += self.held(tensors, "next")
        for value in wanted:
            following += lowering.line(value, comment=False)
        known = {value.name for value in reductions}
        rest = self.left(self.op.results, known)
        # They arrive while the CTA waits for the partial results of others.
        inside = self.assembler.reads(rest, False, True)
        for word, (value, run) in enumerate(states):
            following += self.chunk_states(value, run, lowering)
            row = V.rows if len(states) == 1 else V.rows * len(states) + word
            absent = [state.identity for state in run.states]
            publish, receive = self.exchange(V.mailbox_ptr + row * V.CTAS_PER_ROW, run.names, absent)
            following += publish
            inside += receive
            if run.counts:
                left = V.n_cols - runtime.columns_of(V.CTAS_PER_ROW, 32) * V.BLOCK_N
                count = tl.minimum(tl.maximum(left, 0), V.BLOCK_N)
                inside.append(Let(f"{value.name}_count", count.to(run.states[0].dtype)))
            inside += run.result
        inside += [*self.assembler.reads(rest, True, False), *self.held(tensors, "now")]
        for value in rest:
            inside += lowering.line(value)
        inside += self.assembler.stores(self.op.results)
        for x in (tensor.name for tensor in tensors):
            inside.append(Let(f"{x}_now, {x}_next", expr((f"{x}_next", f"{x}_ahead"))))
        doc = "Cooperative launch: CTAS_PER_ROW resident CTAs split a row and exchange results through memory."
        stages = (ahead, following, inside)
        further = ((Argument("mailbox_ptr", V.mailbox),), ())
        return self.assembler.along_rows("cooperative_kernel", doc, before, stages, further=further)

    def chunk_states(self, value: Value, run: Running, lowering: Lowering) -> list[Line]:
        """The states of a CTA's chunk of a row."""
        node = value.node
        assert isinstance(node, Reduce)
        lowering.begin(value.name)
        averaged = replace(node, kind="mean") if node.kind == "var" else node
        x = self.argument(node, lowering, self.needs_guard(averaged, self.other))
        names = ", ".join(run.names)
        if run.counts:
            count = tl.minimum(V.n_cols - V.member * V.BLOCK_N, V.BLOCK_N)
            found = runtime.moments(x, V.col_mask, count)
        elif len(run.states) == 2:
            total = next(self.op.value(name) for name, one in self.pairs.items() if one == value)
            found = runtime.exp_sum(x, takes_finite(self.op, total))
        else:
            kind = replace(node, kind="sum") if node.kind == "mean" else node
            found = full_reduction(kind, self.accumulator(node), V.cols, self.plain_max(value), x)
        lowering.put(Let(names, found))
        return lowering.pending
