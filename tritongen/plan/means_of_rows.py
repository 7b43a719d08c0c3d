"""The gradient of an attention by what its means and lse are made of, through the scores; and what it reads of the
forward: the means, their gradients and lse, as results or saved beside them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce

from ..autodiff.gradient import Gradient, derive
from ..families.family import Families
from ..families.stream import Stream, multiplied_as, of_bytes
from ..lang.ir import BOOL, Call, Constant, Dtype, Load, Node, Op, Reduce, Ref, Result, Value, children
from ..lang.names import fresh
from ..lang.rewrite import rebuild, renamed_values
from ..lang.unparse import spelled
from ..lowering.tile import needed
from ..passes.contractions import applied
from ..passes.divided_powers import power_below
from ..passes.structure import reads, references
from ..spec.types import COMPUTED, FLOATS, AxisTerm, Grad, Input, Output, TensorType, are_alike, plain_shape
from .streaming_steps import own_result
from .weighted_means import Means

FLOAT = Dtype("float")


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean along the rows and axes of its own, or a plain sum: its value, and the tensors that hold it and its
    gradient.

    Where it is a sum of rows, it has no matrix and no axes of its own.
    """

    name: str
    is_sum: bool
    matrix: Load | None
    own: tuple[str, ...]
    axes: tuple[str, ...]
    tensor: Input
    gradient: Input

    @property
    def load(self) -> Load:
        return load(self.tensor.name, self.axes)

    @property
    def seed(self) -> Load:
        return load(self.gradient.name, self.axes)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What a gradient goes on from: the gradients of results, and those by inputs that are added to its own.

    `between` are inputs that other steps have computed, which go on from the gradients by them, each with its dtype.
    `name` is that of the gradient's operator, `enclosing` the forward; `known` is what steps so far have computed and
    read besides. Of all that the forward has computed before, `dtypes` has the dtypes; what follows reads the values
    `shapes_of`, in the shapes in which they are stored.
    """

    seeds: Mapping[str, Input]
    others: Mapping[str, Input]
    between: Mapping[str, Dtype]
    name: str
    enclosing: Op
    known: tuple[Input, ...] = ()
    dtypes: Mapping[str, Dtype] = field(default_factory=dict)
    shapes_of: Mapping[str, tuple[AxisTerm, ...]] = field(default_factory=dict)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple((result, seed.name) for result, seed in self.seeds.items())

    def made(self, op: Op) -> frozenset[str]:
        """The inputs of an operator that steps have computed, and the full forward does not get."""
        return frozenset(t.name for t in op.inputs) - {t.name for t in self.enclosing.inputs}

    @property
    def results(self) -> frozenset[str]:
        """The results of the full forward, as other steps of the gradient may read them."""
        return frozenset(result.output.name for result in self.enclosing.results)


def part_of_gradient(tensor: Input, name: str, shape: tuple[AxisTerm, ...], vanishes: bool) -> Input:
    """A gradient by an input as steps read it that add to it: by one that is left out there is none, which adds 0."""
    default = None if tensor.default is None else 0.0
    return Input(name, replace(tensor.type, shape=shape), default, vanishes)


def outgoing_of(op: Op) -> Outgoing:
    """What the gradient of the full operator starts from."""
    taken = op.names
    names = {one.output.name: fresh(f"d{one.output.name}", taken) for one in op.results}
    zeros = len(op.results) > 1
    seeds = {one.output.name: replace(like(op, one, names[one.output.name]), vanishes=zeros) for one in op.results}
    return Outgoing(seeds, {}, {}, f"{op.name}_backward", op)


@dataclass(frozen=True, slots=True)
class _Results:
    """The values and results of an operator as they are added, and the gradients of the results."""

    values: list[Value]
    results: list[Result]
    gradients: dict[str, Node]
    taken: set[str]

    def named(self, name: str, node: Node, says: bool = True) -> Ref:
        self.values.append(Value(fresh(name, self.taken), node, spelled(node) if says else ""))
        return self.values[-1].ref

    def add(self, ref: Ref, gradient: Node) -> None:
        """A result, and its gradient: summed over axes of means that what they are made of lacks."""
        over = tuple(axis for axis in gradient.axes if axis not in ref.axes)
        self.results.append(Result(Output(ref.name), ref, ref.axes, ref.dtype))
        summed = Reduce("sum", gradient, over, ref.axes, gradient.dtype)
        self.gradients[ref.name] = summed if over else gradient


class MeansOfRows:
    """The means and the lse of an operator, the tensors that gradients read of them, and the gradient by what means and
    lse are made of, through the scores.
    """

    def __init__(self, means: Means, stream: Stream, grad: Grad, families: Families, outgoing: Outgoing) -> None:
        self.score, self.sinks = means.score, means.sinks
        self.matrices = {mean.name: mean.matrix for mean in means.means}
        self.weights = {mean.name: mean.weight for mean in means.means}
        self.sums = {mean.name for mean in means.means if mean.is_sum}
        self.op, self.lse = means.op, means.lse
        self.stream, self.grad, self.families = stream, grad, families
        self.outgoing, self.seeds = outgoing, outgoing.seeds
        self.known = (*self.seeds.values(), *outgoing.known)
        self.taken = self.op.names | {tensor.name for tensor in self.known}
        axes = {axis for one in stream.sums for axis in one.factor.axes} - {*stream.positions}
        self.rows = tuple(axis for axis in self.op.axes if axis in axes)
        self.saved = self.fresh(f"{self.lse}_exact") if self.lse in outgoing.results else self.lse
        self.shift = ""  # lse as gradients read it
        self.delta = self.fresh("delta")

    def fresh(self, name: str) -> str:
        return fresh(name, self.taken)

    def add_shift(self) -> None:
        """Give the operator lse as gradients read it: inf, and p = 0, where it tells no probabilities of a row. That is
        where all scores are -inf, and where lse is so far from 0 that adding 1 to it changes nothing.

        It has the name of lse, unless that is saved, or results are made of it beside the means.
        """
        ends = (replace(v, node=Constant(0.0, FLOAT)) if v.name in self.matrices else v for v in self.op.values)
        roots = {name for result in self.op.results for name in references(result.node)}
        if self.lse in self.outgoing.shapes_of or any(value.name == self.lse for value in needed(tuple(ends), roots)):
            self.shift = self.fresh(f"{self.lse}_or_inf")
        else:
            self.shift = self.lse
            self.saved = self.lse = self.fresh(f"{self.lse}_raw")
            self.op = renamed_values(self.op, {self.shift: self.lse})
        ref = self.op.value(self.lse).ref
        more = applied("add", ref, Constant(1.0, FLOAT))
        why = "lse is -inf (a row without keys), or + 1 is lost in it: inf makes exp(s - lse) 0 in the backward."
        value = Value(self.shift, where_equal(more, ref, Constant(math.inf, FLOAT), ref), "", why)
        self.op = replace(self.op, values=(*self.op.values, value))

    def plain_results(self) -> dict[str, Result]:
        """The results by the means and lse that they are; none where any of them is made of these otherwise."""
        ends = {*self.matrices, *([self.lse] if self.lse else [])}
        found: dict[str, Result] = {}
        for result in self.op.results:
            name = _end(self.op, result.node, ends)
            if name not in ends or name in found:
                return {}
            matrix = self.matrices.get(name)
            exact = name == self.lse or name in self.sums
            if not exact and (matrix is None or not self.is_alike(result, matrix)):
                return {}
            found[name] = result
        return found

    def is_alike(self, result: Result, matrix: Load) -> bool:
        """Whether a result and its gradient are sure to have the dtype of a mean, or that of any floats, as it does."""
        types = like(self.op, result, "").type, self.seeds[result.output.name].type, self.type_of(matrix)
        return are_alike(types) or all({*one.dtypes} == {*FLOATS} for one in types)

    def type_of(self, matrix: Load) -> TensorType:
        return self.op.input(self.multiplied_as(matrix)).type

    def multiplied_as(self, matrix: Load) -> str:
        """The matrix in whose dtype one is multiplied."""
        return (of_bytes(self.op, matrix) and multiplied_as(self.op, self.stream)) or matrix.name

    def of_rows(self, name: str) -> Input:
        """A tensor with a value for each row."""
        return Input(name, TensorType(COMPUTED, self.outgoing.shapes_of.get(name, plain_shape(self.rows))))

    def own_axes(self, mean: str) -> tuple[str, ...]:
        return tuple(axis for axis in self.op.value(mean).node.axes if axis not in self.rows)

    def mean_of_result(self, name: str, result: Result) -> Mean:
        tensor = result.output.name
        inputs = like(self.op, result, tensor), self.seeds[tensor]
        return Mean(name, name in self.sums, self.matrices[name], self.own_axes(name), result.node.axes, *inputs)

    def mean_saved(self, name: str) -> Mean:
        """A mean that the forward saves, where it is no result of its dtype."""
        own, axes = self.own_axes(name), self.op.value(name).node.axes
        matrix = self.matrices[name]
        dtypes = TensorType(COMPUTED, ()) if matrix is None else self.type_of(matrix)
        own_type = replace(dtypes, shape=self.outgoing.shapes_of.get(name, plain_shape((*self.rows, *own))))
        result = next((result for result in self.op.results if result.output.name == name), None)
        tensor = Input(self.fresh("mean") if name in self.outgoing.results else name, own_type)
        if result is not None and matrix is not None and self.is_alike(result, matrix):
            tensor = like(self.op, result, name)
        # Its gradient has the same shape, as that by any input has.
        gradient = Input(self.fresh(f"d{tensor.name}"), replace(own_type, shape=tensor.type.shape))
        return Mean(name, name in self.sums, matrix, own, axes, tensor, gradient)

    # Through the scores: by those and by matrices, by the gradients of means and the sums of rows that these make

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
            x = found.named("p_sink", power_below(sink, lse))
            found.add(x, Call("neg", (delta,), delta.axes, delta.dtype))
        zeros = all(mean.gradient.vanishes for mean in averaged)
        inputs = by_name(
            *(mean.gradient for mean in means),
            *self.op.inputs,
            self.of_rows(self.shift),
            replace(self.of_rows(self.delta), vanishes=zeros),
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


def by_name(*inputs: Input) -> tuple[Input, ...]:
    """Inputs, each once."""
    found: dict[str, Input] = {}
    for tensor in inputs:
        found.setdefault(tensor.name, tensor)
    return tuple(found.values())


def load(name: str, axes: tuple[str, ...]) -> Load:
    return Load(name, axes, Dtype("float", (name,)))


def where_equal(x: Node, y: Node, then: Node, other: Node) -> Call:
    """One node where two are equal, and another elsewhere."""
    test = Call("eq", (x, y), x.axes, BOOL)
    return Call("where", (test, then, other), other.axes, other.dtype)


def _end(op: Op, node: Node, ends: Container[str]) -> str:
    """The value that a node refers to, down to some; "" if there is none."""
    if not isinstance(node, Ref) or node.name in ends:
        return node.name if isinstance(node, Ref) else ""
    return _end(op, op.value(node.name).node, ends)


def like(op: Op, result: Result, name: str) -> Input:
    """An input of the shape of a result, and of its type if that is an input's."""
    types = [tensor.type for tensor in op.inputs if result.dtype.of == (tensor.name,)]
    shape = op.grouping(result)
    return Input(name, replace(types[0], shape=shape) if types else TensorType(FLOATS, shape))


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
