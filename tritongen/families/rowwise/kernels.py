"""Kernels over rows: each row is reduced, and may be broadcast back over its columns.

Three kernels for the same math: the row in registers, a loop along the row, and a long row split between programs. Of a
split row, each program reduces a chunk, and a second kernel merges the partial states and, if results have columns,
broadcasts them back. The host decides which one runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from functools import cached_property

from ...lang.ir import Path, Reduce, Value, is_order
from ...lang.promotion import is_float8
from ...lowering.accumulate import CHUNK, ROW, Running, Span, State, running, running_exp, running_sum
from ...lowering.lower import Lowering
from ...lowering.positions import CHUNKS, SPLIT_LANES, TILE, cols_from
from ...lowering.tile import needed
from ...lowering.views import Argument, Kernel, Pass
from ...nest.access import Access, Address
from ...nest.ir import BLANK, Accumulate, Branch, Do, Let, Line, Nest, nested, under
from ...nest.values import Expr, Term, V, expr, tl
from ...passes.exponentials import takes_finite
from ...passes.structure import Program, references
from .rows import Rows

SPLIT_FROM = 32_768  # columns: two chunks of a row that is broadcast back, as in the runtime's heuristics
SPLITS = (Argument("n_splits", V.n_splits), Argument("split_cols", V.split_cols))


class RowBuilder(Rows):
    """The kernels of a row program; `searched` leaves out the kernel of plain sums, whose launch is not tuned."""

    def __init__(self, program: Program, searched: bool = False) -> None:
        super().__init__(program)
        self.sorts = any(is_order(value.node) for value in self.op.values)
        self.table = "sort" if self.sorts else self.table
        self.is_alone = len(self.passes) == 1 and not program.maps_back  # whether one loop along a row is enough
        self.are_sums = not searched and self.is_alone and self.are_plain_sums()
        over = {*program.over}
        self.row_results = [result for result in self.op.results if over.isdisjoint(result.axes)]
        self.tile_results = [result for result in self.op.results if not over.isdisjoint(result.axes)]

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        if self.sorts:
            return {"loop": self.registers("sorted")}
        found = {} if self.is_alone and self.is_simple() else {"registers": self.registers("held")}
        if self.are_sums:
            return found | {"loop": self.sums()}
        found["loop"] = self.loop()
        if self.is_alone:
            return found | {"partial": self.partial(), "combine": self.combine()}
        may_split = len(self.passes) == 1 and self.may_be_few()
        return found | ({"partial": self.partial(), "mapping": self.mapping()} if may_split else {})

    @property
    def states(self) -> tuple[tuple[str, str, Path], ...]:
        found = [(one, self.path(run)) for _, run in self.running(self.reductions) for one in run.states]
        return tuple((one.name, one.dtype, path) for one, path in found)

    def registers(self, placed: str) -> Kernel:
        lowering, results = self.lowering(), self.op.results
        values = self.left(results)
        setup, reads = self.assembler.bases(results), self.assembler.reads(values)
        body = [line for value in self.means_first(values) for line in lowering.line(value)]
        stores, over = (self.assembler.stores(r for r in results if bool(r.over) == kind) for kind in (False, True))
        doc = f"BLOCK_M rows per program, {placed} in registers."
        cols = cols_from(expr(0), self.assembler.end, wide=True)
        inside = [BLANK, *cols, TILE, *self.tile.col_decode(), *reads, *body]
        return self.assembler.kernel("kernel", doc, setup, inside, [*stores, *self.barrier(), *over])

    def loop(self) -> Kernel:
        lowering, known = self.lowering(), set[str]()
        before = self.finish(self.arguments(self.reductions), known, lowering)
        walks = self.walks(self.passes, known, lowering)
        stores = self.finish(self.left(self.row_results, known), known, lowering)
        stores += self.assembler.stores(self.row_results)
        if barrier := self.barrier():
            walks[-1] = replace(walks[-1], after=(*walks[-1].after, *stores, *barrier))
            stores = []
        if self.tile_results:
            walks.append(self.again(known, lowering))
        reads = self.assembler.reads(self.op.values, cols=False)
        setup = [*self.assembler.bases(self.op.results), *reads, *before]
        doc = "Loops along each row, for rows that do not fit in registers."
        if not self.program.maps_back:
            doc = "Loops along each row; each lane accumulates its own columns, and lanes are merged at the end."
        loops = [one for walk in walks for one in self.assembler.walked(walk)]
        return self.assembler.kernel("loop_kernel", doc, setup, [BLANK, *loops], stores)

    def is_simple(self) -> bool:
        """Whether each reduction has a single state, so that a loop along a row is as good as the row in registers."""
        return all(len(state.states) == 1 for _, state in self.running(self.reductions))

    def are_plain_sums(self) -> bool:
        """Whether the results are one or two sums or means along rows, stored without further math."""
        nodes = {value.name: value.node for value in self.reductions}
        names = {result.output.name for result in self.op.results}
        plain = all(isinstance(node, Reduce) and node.kind in ("sum", "mean") for node in nodes.values())
        stored = all(
            not result.when
            and result.output.name in self.op.by_row
            and result.dtype.kind != "bool"
            and not is_float8(self.op, result.dtype)
            for result in self.op.results
        )
        return plain and stored and names == set(nodes) and len(nodes) <= 2 and not any(map(self.choices.of, nodes))

    # Walks along the columns

    def barrier(self) -> list[Line]:
        """The barrier before results overwrite inputs, whose rows other threads may still gather from."""
        if not any(result.over for result in self.op.results):
            return []
        names = " and ".join(result.over for result in self.op.results if result.over)
        comment = f"All threads must have gathered before {names} are overwritten."
        return [Do(tl.debug_barrier(), comment=comment)]

    def again(self, known: set[str], lowering: Lowering) -> Pass:
        """The loop that computes the results with columns, once the row is reduced."""
        wanted = self.left(self.tile_results, known)
        body = self.assembler.reads(wanted, None, True, "read_once", self.first(V.last - V.start))
        for value in wanted:
            body += lowering.line(value, comment=bool(value.source))
        body += self.assembler.stores(self.tile_results)
        comment = "Second pass, from the last columns, which are still in L2."
        return Pass(comment, (), tuple(body), (), backwards=True)

    def arguments(self, reductions: list[Value], known: Container[str] = ()) -> list[Value]:
        """The operands of `reductions` and the values that these need, except those in `known`."""
        return needed(self.op.values, [name for value in reductions for name in references(value.node)], known)

    def walks(self, passes: list[list[Value]], known: set[str], lowering: Lowering, span: Span = ROW) -> list[Pass]:
        """The loops along the columns, one for each pass; adds what they compute to `known`."""
        walks: list[Pass] = []
        for level, reductions in enumerate(passes):
            states = self.running(reductions, span)
            made_of = self.arguments(reductions, known)
            wanted = [v for v in made_of if self.along(v) and not self.replaced(v, reductions)]
            policy = "read_again" if len(passes) > level + 1 or self.program.maps_back else ""
            body = self.assembler.reads([*wanted, *reductions], None, True, policy, self.first(V.start))
            for value in wanted:
                body += lowering.line(value)
            for value, state in states:
                body += self.step(value, state, lowering)
            after = self.each(states, lambda state: (*state.lanes, *state.result))
            known |= {value.name for value in reductions}
            later = [value for others in passes[level + 1 :] for value in self.arguments(others)]
            later += self.left(self.tile_results)
            after += self.finish(later, known, lowering)
            start = self.each(states, lambda state: state.start)
            comment = "; ".join(f"{v.name} = {v.source}" for v in reductions if v.source)
            walks.append(Pass(comment, tuple(start), tuple(body), tuple(after)))
        return walks

    def first(self, at: Expr) -> Expr | None:
        """The first column of a block; None if vectors of columns share a state, since each column needs an element."""
        return None if self.pairs else at

    @property
    def uniform(self) -> tuple[str, ...]:
        found = (one.name for one in self.assembler.inputs_of(self.op.values) if self.tile.is_uniform(one))
        return () if self.pairs else tuple(found)

    def replaced(self, value: Value, reductions: list[Value]) -> bool:
        """Whether only sums that are accumulated together with their maximum need a mapped value."""
        users = [r for r in reductions if value.name in {v.name for v in needed(self.op.values, [r.name])}]
        return bool(users) and all(r.name in self.pairs for r in users)

    def running(self, reductions: list[Value], span: Span = ROW) -> list[tuple[Value, Running]]:
        paired = {self.pairs[v.name].name: v for v in reductions if v.name in self.pairs}
        means = self.means_of_vars(reductions)
        states = []
        for value in reductions:
            assert isinstance(value.node, Reduce)
            accumulator = self.accumulator(value.node, span)
            if value.name in paired:
                total = paired[value.name]
                states.append((value, running_exp(value, total, accumulator, takes_finite(self.op, total))))
            elif value.name in self.pairs or value.name in means.values():
                continue
            elif not self.space.rows and value.node.kind in ("sum", "mean") and accumulator.kind == "float":
                states.append((value, running_sum(value, accumulator)))  # A full reduction: many values per lane.
            else:
                states.append((value, running(value, accumulator, self.plain_max(value), means.get(value.name, ""))))
        return states

    def means_of_vars(self, reductions: list[Value]) -> dict[str, str]:
        """The means that variances of the same operand in the same pass compute anyway, by the variances' names."""
        means = {value.name: self.mean_of(value.node) for value in reductions}
        return {var: mean.name for var, mean in means.items() if mean in reductions}

    def step(self, value: Value, state: Running, lowering: Lowering) -> list[Line]:
        node = value.node
        assert isinstance(node, Reduce)
        lowering.begin(value.name)
        lowering.path = self.path(state)
        lowering.put(*state.step(self.argument(node, lowering, None if state.masked else False)))
        return lowering.pending

    def finish(self, wanted: list[Value], known: set[str], lowering: Lowering) -> list[Line]:
        """The per-row values in `wanted` that can be computed now; adds them to `known`."""
        lines: list[Line] = []
        for value in self.op.values:
            if value not in wanted or value.name in known or self.along(value):
                continue
            if isinstance(value.node, Reduce) or not references(value.node) <= known:
                continue
            lines += lowering.line(value)
            known.add(value.name)
        return lines

    def path(self, state: Running) -> Path:
        """The conditions under which states are needed: if two reductions share them, if either is needed."""
        names = {value.name for value in self.program.reductions} & set(state.names)
        return self.choices.of(*(value.name for value in self.program.reductions if value.name in names))

    def each(self, states: list[tuple[Value, Running]], lines: Callable[[Running], Iterable[Line]]) -> list[Line]:
        """The `lines` of each state, under the conditions that need it."""
        return [line for _, state in states for line in under(self.path(state), lines(state))]

    # Rows split between programs

    def may_be_few(self) -> bool:
        """Whether rows that are broadcast back may be few and long, such as groups of channels of an image.

        Rows that are contiguous along a single axis are assumed to be as many as tokens, and windows of fixed lengths
        are short. No program may overwrite what others still read.
        """
        over = self.program.over
        having = [tensor.type.axes for tensor in self.op.inputs if {*over} & {*tensor.type.axes}]
        ends_before = bool(having) and not any(axes[-1] in over for axes in having)
        may_be_few = len(over) > 1 or ends_before
        return may_be_few and self.may_be_long() and bool(self.space.rows) and not self.barrier()

    def may_be_long(self) -> bool:
        """Whether a row may be long enough to be split between programs, given the fixed lengths of its axes."""
        sizes = dict(self.op.sizes)
        return math.prod(sizes.get(axis, SPLIT_FROM) for axis in self.program.over) >= SPLIT_FROM

    @property
    def reductions(self) -> list[Value]:
        """The reductions of the first, here the only, pass along a row."""
        return self.passes[0]

    def partial(self) -> Kernel:
        """The first stage of a split: each program stores the merged states of a chunk of each row."""
        running = self.running(self.reductions, CHUNK)
        merges = self.each(running, lambda state: (*state.lanes, *state.merge))
        if any(state.counts for _, state in running):
            merges.insert(0, Let(CHUNK.count, V.end - CHUNK.first))
        stores = self.each(running, lambda state: [store_partial(name, V.slots) for name in state.names])
        stores.insert(0, Let("slots", V.rows * V.n_splits + V.split))
        doc = "First stage for few long rows: each program reduces a part of a row."
        names = [name for _, state in running for name in state.names]
        return self.reducing_chunks("partial_kernel", doc, merges, stores, (*partial_pointers(names), *SPLITS))

    def sums(self) -> Kernel:
        """The loop along full rows, or chunks of few long ones, whose partial sums the runtime reduces."""
        merges = self.each(self.running(self.reductions, CHUNK), lambda run: (*run.lanes, *run.merge))
        finish = self.each(self.running(self.reductions), lambda run: run.finish)
        stores = [*finish, Accumulate("rows", "+", V.split * V.n_rows), *self.assembler.stores(self.op.results)]
        doc = "Loops along each row, or a part of it if rows are few; each lane accumulates its own columns."
        return self.reducing_chunks("loop_kernel", doc, merges, stores, SPLITS[1:])

    def reducing_chunks(
        self, suffix: str, doc: str, merges: list[Line], stores: list[Line], further: tuple[Argument, ...]
    ) -> Kernel:
        """A kernel that reduces a chunk of each row, and merges the states of its lanes."""
        lowering, known = self.lowering(), set[str]()
        before = self.finish(self.arguments(self.reductions), known, lowering)
        (walk,) = self.walks([self.reductions], known, lowering, CHUNK)
        reads = self.assembler.reads([*self.arguments(self.reductions), *self.reductions], cols=False)
        setup = [*self.assembler.bases(()), *reads, *before]
        return self.assembler.by_chunks(suffix, doc, setup, replace(walk, after=tuple(merges)), stores, ((), further))

    def combine(self) -> Kernel:
        """The second stage of a split: merges the partial states of each row and finishes."""
        known = {value.name for value in self.reductions}
        values = self.left(self.op.results, known)
        lines = [*self.merged(V.tile_mask), *self.finish(values, known, self.lowering())]
        stores = self.assembler.stores(self.op.results)
        bases = [*self.assembler.bases(self.op.results, inputs=False), *self.assembler.bases(())]
        setup = [*bases, *self.assembler.reads(values, cols=False)]
        doc = "Second stage for few long rows: merges the partial results of each row."
        counts = any(run.counts for _, run in self.running(self.reductions))  # how many columns a chunk has
        further = (self.partials(), SPLITS if counts else SPLITS[:1])
        return self.assembler.kernel("combine_kernel", doc, setup, [BLANK, *CHUNKS, *lines], stores, further=further)

    def mapping(self) -> Kernel:
        """The second stage of a split that is broadcast back: each program merges the partial states of a row, and
        maps one chunk.
        """
        lowering, known = self.lowering(), set[str]()
        reduced = {value.name for value in self.reductions}
        values = self.left(self.op.results, reduced)
        setup = [*self.assembler.bases(self.op.results), *self.assembler.reads(values, cols=False)]
        setup += self.finish([v for v in self.arguments(self.reductions) if v in values], known, lowering)
        # As wide as a block of columns: tiles of partial states alone have another layout, and Triton 3.6 broadcasts
        # their results to full blocks, in every thread, before it converts the layout.
        mask = Let("split_mask", V.row_mask & (V.splits < V.n_splits))
        setup += [SPLIT_LANES, mask, *self.merged(V.split_mask)]
        known |= reduced
        setup += self.finish(self.left(self.tile_results, known), known, lowering)
        walk = self.again(known, lowering)
        row_lines = self.finish(self.left(self.row_results, known), known, lowering)
        row_lines += self.assembler.stores(self.row_results)
        stores = _once(nested(row_lines)) if row_lines else []
        doc = "Second stage for few long rows: each program merges the partial results of a row and maps its part."
        return self.assembler.by_chunks("map_kernel", doc, setup, walk, stores, (self.partials(), SPLITS))

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
        """The pointers to the partial states that a split stores."""
        return partial_pointers([state.name for _, run in self.running(self.reductions) for state in run.states])


def partial_pointers(states: Iterable[str]) -> tuple[Argument, ...]:
    return tuple(Argument(f"{name}_partial_ptr", V[f"{name}_partial"]) for name in states)


def store_partial(name: str, *at: Term) -> Line:
    """The store of a program's partial state of a row."""
    return Do(tl.store(Address(f"{name}_partial_ptr", at).value, name, mask=V.row_mask))


def _once(nest: Nest) -> Nest:
    """Runs `nest` in the first program of a split row only; merges that test with a single `if` around all of it."""
    is_first = V.split.equals(0)
    match nest:
        case [Branch(test=test, other=()) as branch]:
            return (replace(branch, test=is_first.and_(test)),)
    return (Branch(is_first, nest),)
