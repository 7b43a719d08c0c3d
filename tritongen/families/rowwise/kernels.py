"""Kernels over rows: each row is reduced, and may be mapped back over its columns.

Three shapes of the same math: the row in registers, a loop along the row, and a long row split
between programs and merged by a second kernel. Which one runs is decided on the host.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ...lang.ir import Load, Node, Path, Reduce, Value
from ...lang.trees import parse, substitute
from ...lowering.accumulate import (
    PART,
    ROW,
    Numbers,
    Running,
    Span,
    lane,
    running,
    running_exp,
    running_sum,
    whole,
)
from ...lowering.assemble import Assembler
from ...lowering.lines import Line, under
from ...lowering.lower import Compute, Lowering, compute_of
from ...lowering.space import Space, row_space
from ...lowering.tile import Tile, loads, needed
from ...lowering.views import Argument, Kernel, Pass
from ...passes.exponentials import exp_pairs, takes_finite, tells_of_nan
from ...passes.structure import Program, references


@dataclass(frozen=True, slots=True)
class RowKernels:
    """The kernels of a row program and what the host needs to know of them."""

    space: Space
    compute: Compute
    registers: Kernel | None
    loop: Kernel
    partial: Kernel | None
    combine: Kernel | None
    states: tuple[tuple[str, str, Path], ...]  # of the split: workspace name, torch dtype expression, where needed
    passes: int


def plan_rows(program: Program) -> RowKernels:
    builder = _Builder(program)
    passes = builder.passes()
    alone = len(passes) == 1 and not program.maps_back
    return RowKernels(
        space=builder.space,
        compute=builder.compute,
        registers=None if alone and builder.simple(passes[0]) else builder.registers(),
        loop=builder.loop(passes),
        partial=builder.partial(passes[0]) if alone else None,
        combine=builder.combine(passes[0]) if alone else None,
        states=builder.states(passes[0]) if alone else (),
        passes=len(passes) + program.maps_back,
    )


class _Builder:
    def __init__(self, program: Program) -> None:
        self.program, self.op = program, program.op
        nodes = tuple(value.node for value in self.op.values)
        self.space = row_space(self.op, program.over, nodes)
        self.compute = compute_of(self.op)
        self.pairs = exp_pairs(self.op)
        # Of masked lanes, -inf suits a softmax and 0 nearly all else: take what needs fewer guards.
        guards = {other: self.guards(other) for other in ("0.0", 'float("-inf")')}
        self.other = min(guards, key=lambda other: guards[other])
        self.tile = Tile(self.op, self.space, self.compute, self.other)
        self.assembler = Assembler(self.tile)
        self.choices = self.assembler.choices
        self.exact = {v.name for v in self.op.values if v.source} | {r.output.name for r in self.op.results}

    # Values, by how they vary

    def along(self, value: Value) -> bool:
        """Whether a value varies along the columns."""
        return bool(set(value.node.axes) & set(self.program.over))

    def depth(self, name: str) -> int:
        """How many walks along the row come before a value is known."""
        value = self.op.value(name)
        below = max((self.depth(ref) for ref in references(value.node)), default=0)
        if isinstance(value.node, Reduce):
            if name in self.pairs:
                return self.depth(self.pairs[name].name)
            return below + 1
        return below

    def passes(self) -> list[list[Value]]:
        reductions = self.program.reductions
        depth = {value.name: self.depth(value.name) for value in reductions}
        return [[v for v in reductions if depth[v.name] == level] for level in sorted(set(depth.values()))]

    def guards(self, other: str) -> int:
        return sum(self.needs_guard(v.node, other) for v in self.program.reductions if isinstance(v.node, Reduce))

    def needs_guard(self, node: Reduce, other: str) -> bool:
        if node.kind == "var":
            return False
        has = lane(self.op, node.arg, self.program.over, other)
        wanted = {"sum": "0", "mean": "0", "any": "0", "max": "-inf", "argmax": "-inf"}.get(node.kind)
        return has != wanted

    def numbers(self, node: Reduce, span: Span = ROW) -> Numbers:
        """The numbers that a reduction adds up or compares; integers are int64, whatever the rest is."""
        rows = "BLOCK_M" if self.tile.moves(node.arg.axes)[0] else "1"
        if node.arg.dtype.kind in ("int", "bool"):
            return Numbers("tl.int64", "int", rows, span)
        return Numbers(self.compute.text, node.arg.dtype.kind, rows, span)

    def plain_max(self, value: Value) -> bool:
        """Whether NaN may be dropped: a sum of exponentials that goes with it keeps it."""
        total = next((name for name, largest in self.pairs.items() if largest == value), None)
        if total is None or value.name in self.exact:
            return False
        return tells_of_nan(self.op, value, self.op.value(total))

    # Expressions

    def lowering(self, looping: bool) -> Lowering:
        def reduce(node: Reduce, lowering: Lowering) -> ast.expr:
            return self.whole(node, lowering)

        return Lowering(self.op, self.compute, self.tile.index, self.tile.size, self.tile.load, reduce, self.choices)

    def argument(self, node: Reduce, lowering: Lowering, guard: bool) -> ast.expr:
        """The argument of a reduction, with its masked lanes where the reduction ignores them."""
        value = lowering.operand(node.arg)
        has = node.arg.dtype.kind
        if node.kind in ("any", "all") and has != "bool":
            value = ast.Compare(value, [ast.NotEq()], [ast.Constant(0)])
        elif has in ("bool", "int") and node.kind not in ("any", "all") and not self.is_int64(node.arg):
            value = ast.Call(ast.Attribute(value, "to"), [parse("tl.int64")], [])
        if not guard:
            return value
        identity = self.numbers(node).identity(node.kind)
        if (node.kind == "any" and has == "bool") or node.kind in ("any", "all"):
            return parse(f"col_mask & {_atom(value)}" if node.kind == "any" else f"~col_mask | {_atom(value)}")
        return parse(f"tl.where(col_mask, {ast.unparse(value)}, {identity})")

    def is_int64(self, node: Node) -> bool:
        return isinstance(node, Load) and self.op.input(node.name).type.dtypes == ("int64",)

    def whole(self, node: Reduce, lowering: Lowering) -> ast.expr:
        name = next(v.name for v in self.op.values if v.node == node)
        value = self.op.value(name)
        if node.kind == "var":
            known = self.mean_of(node)
            mean = known.name if known else f"{name}_mean"
            x = lowering.operand(node.arg)
            if known is None:
                guarded = self.argument(
                    replace(node, kind="mean"), lowering, lane(self.op, node.arg, self.program.over, self.other) != "0"
                )
                lowering.put(Line(f"{mean} = tl.sum({ast.unparse(guarded)}, axis=1, keep_dims=True) / n_cols"))
            distance = f"{name}_distance"
            text = f"tl.where(col_mask, {ast.unparse(x)} - {mean}, 0.0)"
            lowering.put(Line(f"{distance} = {text}"))
            x = parse(f"{distance} * {distance}")
        else:
            x = self.argument(node, lowering, self.needs_guard(node, self.other))
        template = whole(node, self.numbers(node), "cols", self.plain_max(value))
        tree = lowering.name(template)
        return substitute(tree, {"x": x})

    def mean_of(self, node: Node) -> Value | None:
        """The mean of what a variance is of, if the math takes it too, wherever it takes the variance."""
        if not isinstance(node, Reduce) or node.kind != "var":
            return None
        mean = replace(node, kind="mean", correction=0)
        var = next(value for value in self.program.reductions if value.node == node)
        return next((v for v in self.program.reductions if v.node == mean and self.choices.alike(v, var)), None)

    def means_first(self, values: list[Value]) -> list[Value]:
        """The values in order, but each mean before the variances that go by it."""
        both = [(self.mean_of(value.node), value) for value in values]
        return list(dict.fromkeys(value for pair in both for value in pair if value is not None))

    # Kernels

    def registers(self) -> Kernel:
        lowering = self.lowering(False)
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
        lowering = self.lowering(True)
        known: set[str] = set()
        before = self.before(passes[0], known, lowering)
        walks = self.walks(passes, known, lowering)
        stores: list[Line] = []
        row_results = [r for r in self.op.results if not set(r.axes) & set(self.program.over)]
        tile_results = [r for r in self.op.results if r not in row_results]
        row_values = needed(self.op.values, [r.output.name for r in row_results])
        if self.barrier():
            last = walks.pop()
            numbers = [*self.finish(row_values, known, lowering), *self.assembler.stores(row_results)]
            walks.append(replace(last, after=(*last.after, *numbers, *self.barrier())))
            row_results = []
        if tile_results:
            wanted = [v for v in needed(self.op.values, [r.output.name for r in tile_results]) if v.name not in known]
            body = self.assembler.reads(wanted, tiles=True, policy="evict_first")
            for value in wanted:
                body += lowering.line(value, comment=bool(value.source))
            body += self.assembler.stores(tile_results)
            comment = "The columns again, last ones first: those are still in the cache."
            walks.append(Pass(comment, (), tuple(body), (), backwards=True))
        stores += self.finish(row_values, known, lowering)
        stores += self.assembler.stores(row_results)
        reads = self.assembler.reads(list(self.op.values), tiles=False)
        setup = [*self.assembler.bases(self.op.results), *reads, *before]
        doc = "A loop along each row, for rows that do not fit in registers."
        if not self.program.maps_back:
            doc = "A loop along each row; every lane keeps a state of its own, merged at the end."
        return self.assembler.kernel("loop_kernel", doc, setup, [], tuple(walks), stores, lowering)

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
            body = self.assembler.reads([*wanted, *reductions], tiles=True, policy=policy)
            for value in wanted:
                body += lowering.line(value)
            for value, state in states:
                body += self.step(value, state, lowering)
            after = self.each(states, lambda state: (*state.lanes, *state.merge, *state.finish))
            after += self.shared_means(reductions)
            known |= {value.name for value in reductions}
            later = [value for others in passes[level + 1 :] for value in self.arguments(others)]
            if self.program.maps_back:
                tile_results = [r.output.name for r in self.op.results if set(r.axes) & set(self.program.over)]
                later += needed(self.op.values, tile_results)
            if later:
                after += self.finish(list(dict.fromkeys(later)), known, lowering)
            start = self.each(states, lambda state: state.start)
            walks.append(Pass(self.comment(reductions), tuple(start), tuple(body), tuple(after)))
        return walks

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
        lowering = self.lowering(True)
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
        kernel = self.assembler.kernel("partial_kernel", doc, setup, [], (walk,), stores, lowering, results=False)
        extra = tuple(Argument(f"{name}_part_ptr", f"{name}_part") for name in states)
        more = (Argument("n_splits", "n_splits"), Argument("split_cols", "split_cols"))
        inputs = [a for a in kernel.arguments if a.spelling.endswith("_ptr")]
        rest = [a for a in kernel.arguments if a not in inputs]
        return replace(kernel, arguments=(*inputs, *extra, *more, *rest))

    def combine(self, reductions: list[Value]) -> Kernel:
        """The second stage of a split: merges the parts of each row and finishes."""
        lowering = self.lowering(True)
        running_ = self.running(reductions)
        states = [state for _, run in running_ for state in run.states]
        at = "_part_ptr + rows * n_splits + splits, mask=tile_mask"
        reads = self.each(
            running_,
            lambda run: [Line(f"{s.name} = tl.load({s.name}{at}, other={s.identity})") for s in run.states],
        )
        known = {value.name for value in reductions}
        after = self.each(running_, lambda state: (*state.parts, *state.merge, *state.finish))
        after += self.shared_means(reductions)
        others = tuple(value for value in self.op.values if value not in reductions)
        values = needed(others, [r.output.name for r in self.op.results])
        after += self.finish(values, known, lowering)
        stores = self.assembler.stores(self.op.results)
        setup = [*self.assembler.bases(self.op.results, inputs=False), *self.row_reads(values)]
        doc = "The second stage for few long rows: merges the parts of each row."
        lines = [*reads, *after]
        kernel = self.assembler.kernel("combine_kernel", doc, setup, lines, (), stores, lowering, tiles=False)
        extra = tuple(Argument(f"{state.name}_part_ptr", f"{state.name}_part") for state in states)
        used = [a for a in kernel.arguments if a.spelling.endswith("_ptr")]
        rest = [a for a in kernel.arguments if a not in used]
        more: tuple[Argument, ...] = (Argument("n_splits", "n_splits"),)
        if any(run.counts for _, run in running_):
            more += (Argument("split_cols", "split_cols"),)
        return replace(kernel, arguments=(*extra, *used, *more, *rest))

    def row_reads(self, values: list[Value]) -> list[Line]:
        """The loads that some values of a row need, after what tells where the row is."""
        tensors = {load.name for load in loads(value.node for value in values)}
        bases = [self.tile.base_line(self.tile.tensor(t)) for t in self.op.inputs if t.name in tensors]
        return [*(line for line in bases if line), *self.assembler.reads(values, tiles=False)]


def _atom(value: ast.expr) -> str:
    text = ast.unparse(value)
    return text if isinstance(value, ast.Name) else f"({text})"
