"""The stages for few long rows: programs reduce a part of each, and a second kernel merges these, and may map them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...lang.ir import Path, Value
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

    def states(self, reductions: list[Value]) -> tuple[tuple[str, str, Path], ...]:
        found = [(state, self.path(run)) for _, run in self.running(reductions) for state in run.states]
        return tuple((state.name, state.dtype, path) for state, path in found)

    def partial(self, reductions: list[Value]) -> Kernel:
        """The first stage of a split: the merged states of a part of each row."""
        lowering = self.lowering()
        known: set[str] = set()
        before = self.before(reductions, known, lowering)
        (walk,) = self.walks([reductions], known, lowering, PART)
        running_ = self.running(reductions, PART)
        merges = self.each(running_, lambda state: (*state.lanes, *state.merge))
        if any(state.counts for _, state in running_):
            merges.insert(0, Let(PART.count, V.end - PART.first))
        states = [name for _, state in running_ for name in state.names]
        walk = replace(walk, after=tuple(merges))
        stores = self.each(running_, lambda state: [store_part(name, V.slots) for name in state.names])
        stores.insert(0, Let("slots", V.rows * V.n_splits + V.split))
        reads = self.assembler.reads([*self.arguments(reductions), *reductions], tiles=False)
        setup = [*self.assembler.bases(()), *reads, *before]
        doc = "First stage for few long rows: each program reduces a part of a row."
        further = ((), (*part_pointers(states), *SPLITS))
        return self.assembler.part("partial_kernel", doc, lowering, setup, walk, stores, further)

    def sums(self, reductions: list[Value]) -> Kernel:
        """The loop along full rows, or chunks of few long ones, whose partial sums the runtime reduces."""
        lowering = self.lowering()
        known: set[str] = set()
        before = self.before(reductions, known, lowering)
        (walk,) = self.walks([reductions], known, lowering, PART)
        states = self.running(reductions, PART)
        walk = replace(walk, after=tuple(self.each(states, lambda run: (*run.lanes, *run.merge))))
        finish = self.each(self.running(reductions), lambda run: run.finish)
        stores = [*finish, Accumulate("rows", "+", V.split * V.n_rows), *self.assembler.stores(self.op.results)]
        reads = self.assembler.reads([*self.arguments(reductions), *reductions], tiles=False)
        setup = [*self.assembler.bases(()), *reads, *before]
        doc = "Loops along each row, or a part of it if rows are few; each lane accumulates its own columns."
        return self.assembler.part("loop_kernel", doc, lowering, setup, walk, stores, ((), SPLITS[1:]))

    def combine(self, reductions: list[Value]) -> Kernel:
        """The second stage of a split: merges the partial states of each row and finishes."""
        lowering = self.lowering()
        known = {value.name for value in reductions}
        lines = self.merged(V.tile_mask, reductions)
        values = needed(self.op.values, [r.output.name for r in self.op.results], known)
        lines += self.finish(values, known, lowering)
        stores = self.assembler.stores(self.op.results)
        setup = [*self.assembler.bases(self.op.results, inputs=False), *self.row_reads(values)]
        doc = "Second stage for few long rows: merges the partial results of each row."
        inside = [BLANK, *PARTS, *lines]
        further = (self.partials(reductions), SPLITS if self.counts(reductions) else SPLITS[:1])
        own = "combine_kernel", doc, lowering, setup
        return self.assembler.kernel(*own, inside, stores, further=further)

    def mapping(self, reductions: list[Value]) -> Kernel:
        """The second stage of a split that is broadcast back: each program merges the partial states of a row, and
        maps one chunk.
        """
        lowering = self.lowering()
        row_results, tile_results = self.row_results(), self.tile_results()
        reduced = {value.name for value in reductions}
        values = needed(self.op.values, [result.output.name for result in self.op.results], reduced)
        setup = [*self.assembler.bases(self.op.results), *self.assembler.reads(values, tiles=False)]
        known: set[str] = set()
        setup += self.finish([v for v in self.arguments(reductions) if v in values], known, lowering)
        # As wide as a block of columns: tiles of partial states alone have a layout of their own, from which Triton 3.6
        # converts what is made of them only after it has made full blocks of it, in every thread.
        setup += [
            SPLIT_LANES,
            Let("split_mask", V.row_mask & (V.splits < V.n_splits)),
            *self.merged(V.split_mask, reductions),
        ]
        known |= reduced
        setup += self.finish(needed(self.op.values, [r.output.name for r in tile_results], known), known, lowering)
        walk = self.again(tile_results, known, lowering)
        row_lines = self.finish(needed(self.op.values, [r.output.name for r in row_results], known), known, lowering)
        row_lines += self.assembler.stores(row_results)
        stores = _once(nested(row_lines)) if row_lines else []
        doc = "Second stage for few long rows: each program merges the partial results of a row and maps its part."
        further = (self.partials(reductions), SPLITS)
        return self.assembler.part("map_kernel", doc, lowering, setup, walk, stores, further)

    def merged(self, mask: Expr, reductions: list[Value]) -> list[Line]:
        """The partial states of a row, loaded and merged."""
        states = self.running(reductions)

        def load(state: State) -> Line:
            at = Address(f"{state.name}_partial_ptr", (V.slots,))
            return Let(state.name, Access(at, mask, state.identity).value)

        lines = self.each(states, lambda run: map(load, run.states))
        lines.insert(0, Let("slots", V.rows * V.n_splits + V.splits))
        return lines + self.each(states, lambda run: (*run.partials, *run.result))

    def partials(self, reductions: list[Value]) -> tuple[Argument, ...]:
        """The states that a split stores."""
        return part_pointers([state.name for _, run in self.running(reductions) for state in run.states])

    def counts(self, reductions: list[Value]) -> bool:
        """Whether merging has to know how many columns a part has."""
        return any(run.counts for _, run in self.running(reductions))

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
