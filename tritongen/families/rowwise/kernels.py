"""Kernels over rows: each row is reduced, and may be mapped back over its columns.

Three shapes of the same math: the row in registers, a loop along the row, and a long row split
between programs and merged by a second kernel, which maps it back where that is asked for. Which one runs is decided
on the host.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ...lang.ir import Path, Reduce, Result, Value
from ...lang.promotion import is_float8
from ...lang.trees import parse
from ...lowering.accumulate import PART, ROW, Running, Span, lane, running, running_exp, running_sum
from ...lowering.lines import Line, after_and, nested, under
from ...lowering.lower import Compute, Lowering
from ...lowering.space import Space
from ...lowering.tile import loads, needed
from ...lowering.views import Argument, Kernel, Pass
from ...passes.exponentials import takes_finite
from ...passes.structure import Program, references
from .rows import Rows

SPLIT_FROM = 32_768  # columns: two parts of a row that is mapped back, as the runtime's heuristics have it


@dataclass(frozen=True, slots=True)
class RowKernels:
    """The kernels of a row program and what the host needs to know of them."""

    space: Space
    compute: Compute
    registers: Kernel | None
    loop: Kernel
    partial: Kernel | None
    combine: Kernel | None
    mapping: Kernel | None
    sums: tuple[tuple[str, bool], ...]  # what the runtime merges in place of `combine`, and whether as means
    states: tuple[tuple[str, str, Path], ...]  # of the split: workspace name, torch dtype expression, where needed
    passes: int
    uniform: tuple[str, ...]  # the inputs of which a block of columns may have one element


def plan_rows(program: Program) -> RowKernels:
    builder = RowBuilder(program)
    passes = builder.passes()
    alone = len(passes) == 1 and not program.maps_back
    splits = alone or (len(passes) == 1 and builder.may_be_few())
    sums = builder.plain_sums(passes[0]) if alone else ()
    return RowKernels(
        space=builder.space,
        compute=builder.compute,
        registers=None if alone and builder.simple(passes[0]) else builder.registers(),
        loop=builder.loop(passes),
        partial=builder.partial(passes[0]) if splits else None,
        combine=builder.combine(passes[0]) if alone and not sums else None,
        mapping=builder.mapping(passes[0]) if splits and not alone else None,
        sums=sums,
        states=builder.states(passes[0]) if splits else (),
        passes=len(passes) + program.maps_back,
        uniform=builder.uniform(),
    )


class RowBuilder(Rows):
    """The kernels of a row program."""

    def registers(self) -> Kernel:
        lowering = self.lowering()
        values = needed(self.op.values, [result.output.name for result in self.op.results])
        setup, reads = self.assembler.bases(self.op.results), self.assembler.reads(values)
        body: list[Line] = []
        for value in self.means_first(values):
            body += lowering.line(value)
        stores = [*self.assembler.stores(r for r in self.op.results if not r.over), *self.barrier()]
        stores += self.assembler.stores(r for r in self.op.results if r.over)
        doc = "One or several rows per program, each whole in registers."
        return self.assembler.kernel("kernel", doc, setup, [*reads, *body], (), stores, lowering)

    def loop(self, passes: list[list[Value]]) -> Kernel:
        lowering = self.lowering()
        known: set[str] = set()
        before = self.before(passes[0], known, lowering)
        walks = self.walks(passes, known, lowering)
        stores: list[Line] = []
        row_results, tile_results = self.row_results(), self.tile_results()
        row_values = needed(self.op.values, [r.output.name for r in row_results])
        if self.barrier():
            last = walks.pop()
            numbers = [*self.finish(row_values, known, lowering), *self.assembler.stores(row_results)]
            walks.append(replace(last, after=(*last.after, *numbers, *self.barrier())))
            row_results = []
        if tile_results:
            walks.append(self.again(tile_results, known, lowering))
        stores += self.finish(row_values, known, lowering)
        stores += self.assembler.stores(row_results)
        reads = self.assembler.reads(list(self.op.values), tiles=False)
        setup = [*self.assembler.bases(self.op.results), *reads, *before]
        doc = "A loop along each row, for rows that do not fit in registers."
        if not self.program.maps_back:
            doc = "A loop along each row; every lane keeps a state of its own, merged at the end."
        return self.assembler.kernel("loop_kernel", doc, setup, [], tuple(walks), stores, lowering)

    def row_results(self) -> list[Result]:
        return [r for r in self.op.results if not set(r.axes) & set(self.program.over)]

    def tile_results(self) -> list[Result]:
        return [r for r in self.op.results if set(r.axes) & set(self.program.over)]

    def again(self, tile_results: list[Result], known: set[str], lowering: Lowering) -> Pass:
        """The loop that maps the columns, once their row is known."""
        left = tuple(value for value in self.op.values if value.name not in known)
        wanted = needed(left, [result.output.name for result in tile_results])
        body = self.assembler.reads(wanted, True, "evict_first", self.first("(last - start)"))
        for value in wanted:
            body += lowering.line(value, comment=bool(value.source))
        body += self.assembler.stores(tile_results)
        comment = "The columns again, last ones first: those are still in the cache."
        return Pass(comment, (), tuple(body), (), backwards=True)

    def may_be_few(self) -> bool:
        """Whether rows that are mapped back may be few and long, as groups of channels are in a picture.

        Rows along a single axis are taken to be as many as tokens are, and windows, whose lengths are told, are short.
        No program may write what others still read.
        """
        return len(self.program.over) > 1 and self.may_be_long() and bool(self.space.rows) and not self.barrier()

    def may_be_long(self) -> bool:
        """Whether the lengths of axes that are told leave it open that programs share a row."""
        sizes = dict(self.op.sizes)
        return math.prod(sizes.get(axis, SPLIT_FROM) for axis in self.program.over) >= SPLIT_FROM

    def barrier(self) -> list[Line]:
        """Of results over inputs: what other threads take from a row must be read before."""
        if not any(result.over for result in self.op.results):
            return []
        names = " and ".join(result.over for result in self.op.results if result.over)
        comment = f"No thread writes over {names} before all have read what they take from the row."
        return [Line("tl.debug_barrier()", comment)]

    def before(self, reductions: list[Value], known: set[str], lowering: Lowering) -> list[Line]:
        """What the first walk reads of the row as a whole; it becomes known."""
        return self.finish(self.arguments(reductions), known, lowering)

    def arguments(self, reductions: list[Value]) -> list[Value]:
        """The values that some reductions are of, and what those need."""
        return needed(self.op.values, [name for value in reductions for name in references(value.node)])

    def walks(self, passes: list[list[Value]], known: set[str], lowering: Lowering, span: Span = ROW) -> list[Pass]:
        """The loops along the columns; what they find out becomes known."""
        walks: list[Pass] = []
        for level, reductions in enumerate(passes):
            states = self.running(reductions, span)
            wanted = [v for v in self.arguments(reductions) if self.along(v) and not self.replaced(v, reductions)]
            policy = "evict_last" if len(passes) > level + 1 or self.program.maps_back else ""
            body = self.assembler.reads([*wanted, *reductions], True, policy, self.first("start"))
            for value in wanted:
                body += lowering.line(value)
            for value, state in states:
                body += self.step(value, state, lowering)
            after = self.each(states, lambda state: (*state.lanes, *state.merge, *state.finish))
            after += self.shared_means(reductions)
            known |= {value.name for value in reductions}
            later = [value for others in passes[level + 1 :] for value in self.arguments(others)]
            if self.program.maps_back:
                later += needed(self.op.values, [r.output.name for r in self.tile_results()])
            if later:
                after += self.finish(list(dict.fromkeys(later)), known, lowering)
            start = self.each(states, lambda state: state.start)
            walks.append(Pass(self.comment(reductions), tuple(start), tuple(body), tuple(after)))
        return walks

    def first(self, text: str) -> str:
        """The first column of a block; "" where vectors of columns share a state, which need an element each."""
        return "" if self.pairs else text

    def uniform(self) -> tuple[str, ...]:
        read = {load.name for load in loads(value.node for value in self.op.values)}
        found = (tensor.name for tensor in self.op.inputs if self.tile.is_uniform(tensor) and tensor.name in read)
        return () if self.pairs else tuple(found)

    def replaced(self, value: Value, reductions: list[Value]) -> bool:
        """Whether a mapped value is needed only by sums that run together with their maximum."""
        users = [r for r in reductions if value.name in {v.name for v in needed(self.op.values, [r.name])}]
        return bool(users) and all(r.name in self.pairs for r in users)

    def comment(self, reductions: list[Value]) -> str:
        lines = [f"{v.name} = {v.source}" for v in reductions if v.source]
        return "; ".join(lines)

    def running(self, reductions: list[Value], span: Span = ROW) -> list[tuple[Value, Running]]:
        paired = {self.pairs[v.name].name: v for v in reductions if v.name in self.pairs}
        shared = self.sharing(reductions)
        states = []
        for value in reductions:
            assert isinstance(value.node, Reduce)
            numbers = self.numbers(value.node, span)
            if value.name in paired:
                total = paired[value.name]
                states.append((value, running_exp(value, total, numbers, takes_finite(self.op, total))))
            elif value.name in self.pairs or value.name in shared:
                continue
            elif not self.space.rows and value.node.kind in ("sum", "mean") and numbers.kind == "float":
                states.append((value, running_sum(value, numbers)))  # Of everything: many numbers to a lane.
            else:
                states.append((value, running(value, numbers, self.plain_max(value))))
        return states

    def sharing(self, reductions: list[Value]) -> dict[str, str]:
        """Means that a variance of the same in the same walk computes anyway."""
        found = {}
        for value in reductions:
            for other in reductions:
                mean, var = value.node, other.node
                if not isinstance(mean, Reduce) or not isinstance(var, Reduce) or mean.arg != var.arg:
                    continue
                if not self.choices.alike(value, other):
                    continue
                if (mean.kind, var.kind) == ("mean", "var"):
                    found[value.name] = f"{other.name}_mean"
        return found

    def shared_means(self, reductions: list[Value]) -> list[Line]:
        shared = self.sharing(reductions).items()
        return [line for name, state in shared for line in under(self.choices.of(name), [Line(f"{name} = {state}")])]

    def step(self, value: Value, state: Running, lowering: Lowering) -> list[Line]:
        node = value.node
        assert isinstance(node, Reduce)
        lowering.begin(value.name)
        lowering.path = self.path(state)
        guard = state.masked and self.needs_guard(node, self.other)
        if value in self.pairs.values() and len(state.states) == 2:
            guard = lane(self.op, node.arg, self.program.over, self.other) != "-inf"
        text = ast.unparse(self.argument(node, lowering, guard))
        lowering.put(*state.step(text))
        return lowering.pending

    def finish(self, wanted: list[Value], known: set[str], lowering: Lowering) -> list[Line]:
        """The values of a row that can be computed now; they become known."""
        lines: list[Line] = []
        for value in self.op.values:
            if value not in wanted or value.name in known or self.along(value):
                continue
            if isinstance(value.node, Reduce) or not references(value.node) <= known:
                continue
            lines += lowering.line(value)
            known.add(value.name)
        return lines

    def simple(self, reductions: list[Value]) -> bool:
        """Whether a loop along a row is as good as the row in registers: its states are one number."""
        return all(len(state.states) == 1 for _, state in self.running(reductions))

    def plain_sums(self, reductions: list[Value]) -> tuple[tuple[str, bool], ...]:
        """The results, if they are one or two sums along rows that are stored as they are; and whether as means."""
        nodes = {value.name: value.node for value in reductions}
        names = {result.output.name for result in self.op.results}
        plain = all(isinstance(node, Reduce) and node.kind in ("sum", "mean") for node in nodes.values())
        stored = all(
            not result.when
            and result.output.name in self.op.by_row
            and result.dtype.kind != "bool"
            and not is_float8(self.op, result.dtype)
            for result in self.op.results
        )
        if not plain or not stored or names != set(nodes) or len(nodes) > 2 or any(map(self.choices.of, nodes)):
            return ()
        return tuple((name, isinstance(node, Reduce) and node.kind == "mean") for name, node in nodes.items())

    def states(self, reductions: list[Value]) -> tuple[tuple[str, str, Path], ...]:
        found = [(state, self.path(run)) for _, run in self.running(reductions) for state in run.states]
        return tuple((state.name, state.dtype, path) for state, path in found)

    def path(self, state: Running) -> Path:
        """Where some states are needed: those of two reductions for either."""
        names = {value.name for value in self.program.reductions} & set(state.names)
        return self.choices.of(*(value.name for value in self.program.reductions if value.name in names))

    def each(self, states: list[tuple[Value, Running]], lines: Callable[[Running], Iterable[Line]]) -> list[Line]:
        """Lines of each of some states, where those are needed."""
        return [line for _, state in states for line in under(self.path(state), lines(state))]

    def partial(self, reductions: list[Value]) -> Kernel:
        """The first stage of a split: the merged states of a part of each row."""
        lowering = self.lowering()
        known: set[str] = set()
        before = self.before(reductions, known, lowering)
        (walk,) = self.walks([reductions], known, lowering, PART)
        running_ = self.running(reductions, PART)
        merges = self.each(running_, lambda state: (*state.lanes, *state.merge))
        if any(state.counts for _, state in running_):
            merges.insert(0, Line(f"{PART.count} = end - {PART.first}"))
        states = [name for _, state in running_ for name in state.names]
        walk = replace(walk, after=tuple(merges))
        to = "_part_ptr + rows * n_splits + split"
        stores = self.each(
            running_,
            lambda state: [Line(f"tl.store({name}{to}, {name}, mask=row_mask)") for name in state.names],
        )
        reads = self.assembler.reads([*self.arguments(reductions), *reductions], tiles=False)
        setup = [*self.assembler.bases(()), *reads, *before]
        doc = "The first stage for few long rows: each program reduces a part of a row."
        kernel = self.assembler.kernel("partial_kernel", doc, setup, [], (walk,), stores, lowering)
        inputs, rest = pointers_of(kernel)
        return replace(kernel, arguments=(*inputs, *part_pointers(states), *SPLITS, *rest))

    def combine(self, reductions: list[Value]) -> Kernel:
        """The second stage of a split: merges the parts of each row and finishes."""
        lowering = self.lowering()
        known = {value.name for value in reductions}
        lines = self.merged("tile_mask", reductions)
        others = tuple(value for value in self.op.values if value not in reductions)
        values = needed(others, [r.output.name for r in self.op.results])
        lines += self.finish(values, known, lowering)
        stores = self.assembler.stores(self.op.results)
        setup = [*self.assembler.bases(self.op.results, inputs=False), *self.row_reads(values)]
        doc = "The second stage for few long rows: merges the parts of each row."
        kernel = self.assembler.kernel("combine_kernel", doc, setup, lines, (), stores, lowering, tiles=False)
        used, rest = pointers_of(kernel)
        more = SPLITS if self.counts(reductions) else SPLITS[:1]
        return replace(kernel, arguments=(*self.parts(reductions), *used, *more, *rest))

    def mapping(self, reductions: list[Value]) -> Kernel:
        """The second stage of a split that is mapped back: each program merges the parts of a row, and maps one."""
        lowering = self.lowering()
        row_results, tile_results = self.row_results(), self.tile_results()
        others = tuple(value for value in self.op.values if value not in reductions)
        values = needed(others, [result.output.name for result in self.op.results])
        setup = [*self.assembler.bases(self.op.results), *self.assembler.reads(values, tiles=False)]
        known: set[str] = set()
        setup += self.finish([v for v in self.arguments(reductions) if v in values], known, lowering)
        # As wide as a block of columns: tiles of the parts alone have a layout of their own, from which Triton 3.6
        # converts what is made of them only after it has made whole blocks of it, in every thread.
        setup += [
            Line("splits = tl.arange(0, BLOCK_N)[None, :]"),
            Line("part_mask = row_mask & (splits < n_splits)"),
            *self.merged("part_mask", reductions),
        ]
        known |= {value.name for value in reductions}
        setup += self.finish(needed(others, [r.output.name for r in tile_results]), known, lowering)
        walk = self.again(tile_results, known, lowering)
        numbers = self.finish(needed(others, [r.output.name for r in row_results]), known, lowering)
        numbers += self.assembler.stores(row_results)
        stores = _once(nested(numbers)) if numbers else []
        doc = "The second stage for few long rows: each program merges the parts of a row, and maps one of them."
        kernel = self.assembler.kernel("map_kernel", doc, setup, [], (walk,), stores, lowering)
        used, rest = pointers_of(kernel)
        return replace(kernel, arguments=(*self.parts(reductions), *used, *SPLITS, *rest))

    def merged(self, mask: str, reductions: list[Value]) -> list[Line]:
        """The states of the parts of a row, read and merged."""
        states = self.running(reductions)
        at = f"_part_ptr + rows * n_splits + splits, mask={mask}"
        lines = self.each(
            states,
            lambda run: [Line(f"{s.name} = tl.load({s.name}{at}, other={s.identity})") for s in run.states],
        )
        lines += self.each(states, lambda run: (*run.parts, *run.merge, *run.finish))
        return lines + self.shared_means(reductions)

    def parts(self, reductions: list[Value]) -> tuple[Argument, ...]:
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


SPLITS = (Argument("n_splits", "n_splits"), Argument("split_cols", "split_cols"))


def part_pointers(states: Iterable[str]) -> tuple[Argument, ...]:
    return tuple(Argument(f"{name}_part_ptr", f"{name}_part") for name in states)


def pointers_of(kernel: Kernel) -> tuple[list[Argument], list[Argument]]:
    """The arguments of a kernel that are pointers, and the others."""
    pointers = [argument for argument in kernel.arguments if argument.spelling.endswith("_ptr")]
    return pointers, [argument for argument in kernel.arguments if argument not in pointers]


def _once(lines: Sequence[Line]) -> list[Line]:
    """What one program of those that share a row does; where that is under an `if` as a whole, the `if` is of both."""
    first, *others = lines
    if first.text.startswith("if ") and all(line.text.startswith("    ") for line in others):
        condition = parse(first.text.removeprefix("if ").removesuffix(":"))
        return [Line(f"if split == 0 and {after_and(condition)}:"), *others]
    return [Line("if split == 0:"), *(replace(line, text=f"    {line.text}") for line in lines)]
