"""The stages for few long rows: programs reduce a part of each, and a second kernel merges these, and may map them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...lang.ir import Value
from ...lowering.accumulate import PART, State
from ...lowering.positions import PARTS, SPLIT_LANES
from ...lowering.tile import loads, needed
from ...lowering.views import Argument, Kernel
from ...nest.access import Access, Address
from ...nest.ir import BLANK, Accumulate, Branch, Do, Let, Line, Nest, nested
from ...nest.values import Expr, Term, V, tl
from .walks import Walks

SPLIT_FROM = 32_768  # columns: two chunks of a row that is broadcast back, as the runtime's heuristics have it
SPLITS = (Argument("n_splits", "n_splits"), Argument("split_cols", "split_cols"))


class Splits(Walks):
    """The kernels of a row program whose rows are split between programs."""

    def may_be_few(self) -> bool:
        """Whether rows that are broadcast back may be few and long: groups of channels of a picture, features of
        tokens.

        Rows that are contiguous along a single axis are taken to be as many as tokens, and windows of fixed lengths
        are short. No program may write what others still read.
        """
        over = self.program.over
        may_be_few = len(over) > 1 or self.ends_before(over)
        return may_be_few and self.may_be_long() and bool(self.space.rows) and not self.barrier()

    def ends_before(self, over: Sequence[str]) -> bool:
        """Whether these are the leading axes of all inputs that have them, and another axis is the innermost one."""
        having = [tensor.type.axes for tensor in self.op.inputs if set(over) & {*tensor.type.axes}]
        return bool(having) and not any(axes[-1] in over for axes in having)

    def may_be_long(self) -> bool:
        """Whether known lengths allow a row to be split among programs."""
        sizes = dict(self.op.sizes)
        return math.prod(sizes.get(axis, SPLIT_FROM) for axis in self.program.over) >= SPLIT_FROM

    @property
    def reductions(self) -> list[Value]:
        """What the only walk along a row reduces."""
        return self.passes[0]

    def partial(self) -> Kernel:
        """The first stage of a split: the merged states of a part of each row."""
        running = self.running(self.reductions, PART)
        merges = self.each(running, lambda state: (*state.lanes, *state.merge))
        if any(state.counts for _, state in running):
            merges.insert(0, Let(PART.count, V.end - PART.first))
        stores = self.each(running, lambda state: [store_part(name, V.slots) for name in state.names])
        stores.insert(0, Let("slots", V.rows * V.n_splits + V.split))
        doc = "First stage for few long rows: each program reduces a part of a row."
        names = [name for _, state in running for name in state.names]
        return self.of_parts("partial_kernel", doc, merges, stores, (*part_pointers(names), *SPLITS))

    def sums(self) -> Kernel:
        """The loop along full rows, or chunks of few long ones, whose partial sums the runtime reduces."""
        merges = self.each(self.running(self.reductions, PART), lambda run: (*run.lanes, *run.merge))
        finish = self.each(self.running(self.reductions), lambda run: run.finish)
        stores = [*finish, Accumulate("rows", "+", V.split * V.n_rows), *self.assembler.stores(self.op.results)]
        doc = "Loops along each row, or a part of it if rows are few; each lane accumulates its own columns."
        return self.of_parts("loop_kernel", doc, merges, stores, SPLITS[1:])

    def of_parts(
        self, suffix: str, doc: str, merges: list[Line], stores: list[Line], further: tuple[Argument, ...]
    ) -> Kernel:
        """A kernel that reduces a part of each row, and merges the states of its lanes."""
        lowering, known = self.lowering(), set[str]()
        before = self.before(self.reductions, known, lowering)
        (walk,) = self.walks([self.reductions], known, lowering, PART)
        reads = self.assembler.reads([*self.arguments(self.reductions), *self.reductions], tiles=False)
        setup = [*self.assembler.bases(()), *reads, *before]
        return self.assembler.part(suffix, doc, setup, replace(walk, after=tuple(merges)), stores, ((), further))

    def combine(self) -> Kernel:
        """The second stage of a split: merges the partial states of each row and finishes."""
        lowering = self.lowering()
        known = {value.name for value in self.reductions}
        lines = self.merged(V.tile_mask)
        values = needed(self.op.values, [r.output.name for r in self.op.results], known)
        lines += self.finish(values, known, lowering)
        stores = self.assembler.stores(self.op.results)
        setup = [*self.assembler.bases(self.op.results, inputs=False), *self.row_reads(values)]
        doc = "Second stage for few long rows: merges the partial results of each row."
        inside = [BLANK, *PARTS, *lines]
        counts = any(run.counts for _, run in self.running(self.reductions))  # how many columns a part has
        further = (self.partials(), SPLITS if counts else SPLITS[:1])
        own = "combine_kernel", doc, setup
        return self.assembler.kernel(*own, inside, stores, further=further)

    def mapping(self) -> Kernel:
        """The second stage of a split that is broadcast back: each program merges the partial states of a row, and
        maps one chunk.
        """
        lowering = self.lowering()
        row_results, tile_results = self.row_results(), self.tile_results()
        reduced = {value.name for value in self.reductions}
        values = needed(self.op.values, [result.output.name for result in self.op.results], reduced)
        setup = [*self.assembler.bases(self.op.results), *self.assembler.reads(values, tiles=False)]
        known: set[str] = set()
        setup += self.finish([v for v in self.arguments(self.reductions) if v in values], known, lowering)
        # As wide as a block of columns: tiles of partial states alone have a layout of their own, from which Triton 3.6
        # converts what is made of them only after it has made full blocks of it, in every thread.
        setup += [
            SPLIT_LANES,
            Let("split_mask", V.row_mask & (V.splits < V.n_splits)),
            *self.merged(V.split_mask),
        ]
        known |= reduced
        setup += self.finish(needed(self.op.values, [r.output.name for r in tile_results], known), known, lowering)
        walk = self.again(tile_results, known, lowering)
        row_lines = self.finish(needed(self.op.values, [r.output.name for r in row_results], known), known, lowering)
        row_lines += self.assembler.stores(row_results)
        stores = _once(nested(row_lines)) if row_lines else []
        doc = "Second stage for few long rows: each program merges the partial results of a row and maps its part."
        further = (self.partials(), SPLITS)
        return self.assembler.part("map_kernel", doc, setup, walk, stores, further)

    def merged(self, mask: Expr) -> list[Line]:
        """The partial states of a row, loaded and merged."""
        states = self.running(self.reductions)

        def load(state: State) -> Line:
            at = Address(f"{state.name}_partial_ptr", (V.slots,))
            return Let(state.name, Access(at, mask, state.identity).value)

        lines = self.each(states, lambda run: map(load, run.states))
        lines.insert(0, Let("slots", V.rows * V.n_splits + V.splits))
        return lines + self.each(states, lambda run: (*run.partials, *run.result))

    def partials(self) -> tuple[Argument, ...]:
        """The states that a split stores."""
        return part_pointers([state.name for _, run in self.running(self.reductions) for state in run.states])

    def row_reads(self, values: list[Value]) -> list[Line]:
        """The loads that some values of a row need, after what tells where the row is."""
        tensors = {load.name for load in loads(value.node for value in values)}
        bases = [self.tile.base_line(self.tile.tensor(t)) for t in self.op.inputs if t.name in tensors]
        return [*(line for line in bases if line), *self.assembler.reads(values, tiles=False)]


def part_pointers(states: Iterable[str]) -> tuple[Argument, ...]:
    return tuple(Argument(f"{name}_partial_ptr", f"{name}_partial") for name in states)


def store_part(name: str, *at: Term) -> Line:
    """The store of what a program has of a row."""
    return Do(tl.store(Address(f"{name}_partial_ptr", at).value, name, mask=V.row_mask))


def _once(nest: Nest) -> Nest:
    """What one program of a split row does; where all of it is under one `if`, the `if` is of both."""
    is_first = V.split.equals(0)
    match nest:
        case [Branch(test=test, other=()) as branch]:
            return (replace(branch, test=is_first.and_(test)),)
    return (Branch(is_first, nest),)
