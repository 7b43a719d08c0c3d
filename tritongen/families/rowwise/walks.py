"""Walks along the columns of rows: what a loop reduces, what is known after it, and the columns that it maps."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from ...lang.ir import Path, Reduce, Result, Value
from ...lowering.accumulate import ROW, Running, Span, padding_value, running, running_exp, running_sum
from ...lowering.lower import Lowering
from ...lowering.tile import loads, needed
from ...lowering.views import Pass
from ...nest.ir import Do, Line, under
from ...nest.values import Expr, V, tl
from ...passes.exponentials import takes_finite
from ...passes.structure import references
from .rows import Rows


class Walks(Rows):
    """The loops of a row program."""

    def barrier(self) -> list[Line]:
        """Of results over inputs: what other threads take from a row must be read before."""
        if not any(result.over for result in self.op.results):
            return []
        names = " and ".join(result.over for result in self.op.results if result.over)
        comment = f"All threads must have gathered before {names} are overwritten."
        return [Do(tl.debug_barrier(), comment=comment)]

    def row_results(self) -> list[Result]:
        return [r for r in self.op.results if not set(r.axes) & set(self.program.over)]

    def tile_results(self) -> list[Result]:
        return [r for r in self.op.results if set(r.axes) & set(self.program.over)]

    def again(self, tile_results: list[Result], known: set[str], lowering: Lowering) -> Pass:
        """The loop that maps the columns, once their row is known."""
        wanted = needed(self.op.values, [result.output.name for result in tile_results], known)
        body = self.assembler.reads(wanted, True, "read_once", self.first(V.last - V.start))
        for value in wanted:
            body += lowering.line(value, comment=bool(value.source))
        body += self.assembler.stores(tile_results)
        comment = "Second pass, from the last columns, which are still in L2."
        return Pass(comment, (), tuple(body), (), backwards=True)

    def before(self, reductions: list[Value], known: set[str], lowering: Lowering) -> list[Line]:
        """The per-row values that the first pass reads; they become known."""
        return self.finish(self.arguments(reductions), known, lowering)

    def arguments(self, reductions: list[Value], known: Container[str] = ()) -> list[Value]:
        """The values that some reductions are of, and what those need, beside what is known."""
        return needed(self.op.values, [name for value in reductions for name in references(value.node)], known)

    def walks(self, passes: list[list[Value]], known: set[str], lowering: Lowering, span: Span = ROW) -> list[Pass]:
        """The loops along the columns; what they find out becomes known."""
        walks: list[Pass] = []
        for level, reductions in enumerate(passes):
            states = self.running(reductions, span)
            made_of = self.arguments(reductions, known)
            wanted = [v for v in made_of if self.along(v) and not self.replaced(v, reductions)]
            policy = "read_again" if len(passes) > level + 1 or self.program.maps_back else ""
            body = self.assembler.reads([*wanted, *reductions], True, policy, self.first(V.start))
            for value in wanted:
                body += lowering.line(value)
            for value, state in states:
                body += self.step(value, state, lowering)
            after = self.each(states, lambda state: (*state.lanes, *state.result))
            known |= {value.name for value in reductions}
            later = [value for others in passes[level + 1 :] for value in self.arguments(others)]
            if self.program.maps_back:
                later += needed(self.op.values, [r.output.name for r in self.tile_results()])
            if later:
                after += self.finish(list(dict.fromkeys(later)), known, lowering)
            start = self.each(states, lambda state: state.start)
            walks.append(Pass(self.comment(reductions), tuple(start), tuple(body), tuple(after)))
        return walks

    def first(self, at: Expr) -> Expr | None:
        """The first column of a block; None where vectors of columns share a state, which need an element each."""
        return None if self.pairs else at

    @property
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
                states.append((value, running_sum(value, accumulator)))  # Of everything: many values per lane.
            else:
                states.append((value, running(value, accumulator, self.plain_max(value), means.get(value.name, ""))))
        return states

    def means_of_vars(self, reductions: list[Value]) -> dict[str, str]:
        """The means that variances of the same in the same walk compute anyway, by these."""
        means = {value.name: self.mean_of(value.node) for value in reductions}
        return {var: mean.name for var, mean in means.items() if mean in reductions}

    def step(self, value: Value, state: Running, lowering: Lowering) -> list[Line]:
        node = value.node
        assert isinstance(node, Reduce)
        lowering.begin(value.name)
        lowering.path = self.path(state)
        guard = state.masked and self.needs_guard(node, self.other)
        if value in self.pairs.values() and len(state.states) == 2:
            guard = padding_value(self.op, node.arg, self.program.over, self.other) != "-inf"
        lowering.put(*state.step(self.argument(node, lowering, guard)))
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

    def path(self, state: Running) -> Path:
        """Where some states are needed: those of two reductions for either."""
        names = {value.name for value in self.program.reductions} & set(state.names)
        return self.choices.of(*(value.name for value in self.program.reductions if value.name in names))

    def each(self, states: list[tuple[Value, Running]], lines: Callable[[Running], Iterable[Line]]) -> list[Line]:
        """Lines of each of some states, where those are needed."""
        return [line for _, state in states for line in under(self.path(state), lines(state))]
