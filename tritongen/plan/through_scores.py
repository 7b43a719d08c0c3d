"""The gradient of an attention by what its means and lse are made of, through the scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from ..autodiff.gradient import Gradient, derive
from ..lang.ir import Call, Constant, Load, Node, Op, Reduce, Ref, Result, Value, children
from ..lang.names import fresh
from ..lang.rewrite import rebuild
from ..lang.unparse import spelled
from ..lowering.tile import needed
from ..passes.contractions import applied
from ..passes.structure import reads, references
from ..spec.types import Grad, Input, Output
from .means_of_rows import FLOAT, Mean, MeansOfRows, by_name, load, where_equal
from .streaming_steps import own_result


@dataclass(frozen=True, slots=True)
class _Results:
    """The values and results of an operator as they are added, and the gradients of the results."""

    values: list[Value]
    results: list[Result]
    gradients: dict[str, Node]
    taken: set[str]

    def named(self, name: str, node: Node, says: bool = True) -> Ref:
        name = fresh(name, self.taken)
        self.values.append(Value(name, node, spelled(node) if says else ""))
        return Ref(name, node.axes, node.dtype)

    def add(self, ref: Ref, gradient: Node) -> None:
        """A result, and its gradient: summed over axes of means that what they are made of lacks."""
        over = tuple(axis for axis in gradient.axes if axis not in ref.axes)
        self.results.append(Result(Output(ref.name), ref, ref.axes, ref.dtype))
        summed = Reduce("sum", gradient, over, ref.axes, gradient.dtype)
        self.gradients[ref.name] = summed if over else gradient


class ThroughScores(MeansOfRows):
    """Derives the gradient by scores and matrices, by those of means and the sums of rows that these make."""

    def through_scores(self, means: tuple[Mean, ...]) -> Gradient:
        """The gradient by what means are made of, those of the means and delta among its inputs."""
        scores, given = self.scores(means) if self.score is not None else self.of_sums(means)
        read = read_by(scores)
        wrt = tuple(name for name in self.grad.wrt if name in read)
        found = derive(scores, Grad(wrt), given, saves=False)
        op = replace(_plain(found.op), name=self.outgoing.name)
        outputs = tuple(mean.tensor.name for mean in means)
        saved = ((self.shift, self.shift),) if self.shift else ()
        return Gradient(self.op, op, wrt, self.outgoing.pairs, saved, outputs, made=self.outgoing.made(self.op))

    def of_sums(self, means: tuple[Mean, ...]) -> tuple[Op, dict[str, Node]]:
        """The sums, and their gradients."""
        names = [mean.name for mean in means]
        results = tuple(own_result(self.op.value(name)) for name in names)
        inputs = by_name(*(mean.gradient for mean in means), *self.op.inputs, *self.known)
        op = replace(self.op, inputs=inputs, values=tuple(needed(self.op.values, names)), results=results)
        return op, {mean.name: mean.seed for mean in means}

    def scores(self, means: tuple[Mean, ...]) -> tuple[Op, dict[str, Node]]:
        """The scores and the means, with probabilities that are recomputed, and the gradients of both."""
        score = self.score
        assert score is not None
        weights = (weight for weight in self.weights.values() if weight is not None)
        sums = [mean for mean in means if mean.is_sum]
        averaged = [mean for mean in means if not mean.is_sum]
        roots = {score.name, *(mean.name for mean in sums)}
        values = needed(self.op.values, roots.union(*map(references, (*self.sinks, *weights))))
        taken = {*self.taken} - {value.name for value in self.op.values} | {value.name for value in values}
        results = [own_result(self.op.value(mean.name)) for mean in sums]
        found = _Results(values, results, {mean.name: mean.seed for mean in sums}, taken)
        lse, delta = load(self.shift, self.rows), load(self.delta, self.rows)
        below = applied("sub", score, lse)
        power: Node = Call("exp", (below,), below.axes, score.dtype)
        p = found.named("p", power)
        dp, weighted = self.by_probabilities(found, p, averaged, delta)
        found.add(score, found.named("ds", applied("mul", p, dp)))
        for mean in averaged:
            if mean.matrix is not None:
                node = self.sum_of(weighted.get(mean.name, p), mean.matrix)
                found.add(found.named(f"{mean.tensor.name}_mean", node, says=False), mean.seed)
        for sink in self.sinks:
            power = applied("sub", sink, lse)
            x = found.named("p_sink", Call("exp", (power,), power.axes, power.dtype))
            found.add(x, Call("neg", (delta,), delta.axes, delta.dtype))
        inputs = by_name(
            *(mean.gradient for mean in means),
            *self.op.inputs,
            *map(self.of_rows, (self.shift, self.delta)),
            *self.known,
        )
        return replace(self.op, inputs=inputs, values=tuple(values), results=tuple(results)), found.gradients

    def sum_of(self, factor: Node, matrix: Load) -> Reduce:
        """The sum along what streams of a matrix times a factor, which has no gradient by it."""
        product = applied("mul", Call("detach", (factor,), factor.axes, factor.dtype), matrix)
        over = tuple(axis for axis in self.op.axes if axis in self.stream.positions)
        axes = tuple(axis for axis in product.axes if axis not in over)
        return Reduce("sum", product, over, axes, product.dtype)

    def by_probabilities(
        self, found: _Results, p: Ref, means: Sequence[Mean], delta: Node
    ) -> tuple[Node, dict[str, Node]]:
        """The gradient by the power of a score, over p, and p times the weights of the means that have such."""
        weighted: dict[str, Node] = {}
        terms: list[Node] = []
        for mean in means:
            term: Node = mean.seed
            if mean.matrix is not None:
                product = applied("mul", mean.seed, mean.matrix)
                axes = tuple(axis for axis in p.axes if axis in product.axes and axis not in mean.own)
                term = found.named("dp", Reduce("sum", product, mean.own, axes, product.dtype))
            if weight := self.weights[mean.name]:
                w = found.named(f"{mean.name}_weight", weight, says=False)
                found.add(w, applied("mul", p, term))
                term, weighted[mean.name] = applied("mul", term, w), applied("mul", p, w)
            terms.append(term)
        return applied("sub", reduce(partial(applied, "add"), terms), delta), weighted

    def delta_of(self, means: tuple[Mean, ...], lse: Result | None) -> tuple[tuple[Input, ...], Value]:
        """The sums of the rows of do * o, less the gradient of lse, and the inputs that it is made of."""
        means = tuple(mean for mean in means if not mean.is_sum)
        inputs = [one for mean in means for one in (mean.gradient, mean.tensor)]
        less: Node | None = None
        if lse is not None:
            inputs.append(self.seeds[lse.output.name])
            less = load(inputs[-1].name, lse.node.axes)
        return tuple(inputs), self.delta_value({mean: mean.seed for mean in means}, less)

    def delta_value(self, gradients: Mapping[Mean, Node], less: Node | None) -> Value:
        node: Node | None = None
        for mean, seed in gradients.items():
            product = applied("mul", seed, mean.load)
            term = Reduce("sum", product, mean.own, self.rows, product.dtype) if mean.own else product
            node = term if node is None else applied("add", node, term)
        assert node is not None
        node = node if less is None else applied("sub", node, less)
        inf, zero = (Constant(number, FLOAT) for number in (math.inf, 0.0))
        node = replace(where_equal(load(self.shift, self.rows), inf, zero, node), axes=self.rows)
        return Value(self.delta, node, spelled(node))


def read_by(op: Op) -> set[str]:
    """The inputs that an operator reads."""
    return {name for value in op.values for name in reads(value.node)}


def _plain(op: Op) -> Op:
    """The operator, in which nothing is marked as constant."""

    def plain(node: Node) -> Node:
        if isinstance(node, Call) and node.function == "detach":
            return plain(node.args[0])
        return rebuild(node, tuple(map(plain, children(node))))

    values = (replace(v, source=v.source and spelled(v.node)) for v in op.with_nodes(plain).values)
    return replace(op, values=tuple(values))
