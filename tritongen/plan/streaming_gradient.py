"""The gradient of a stream: scores are recomputed, and with lse, their logsumexp, the probabilities of a softmax.

With p = exp(s - lse), o = sum(p * v, N) and the gradient do of o, the gradient of the scores is ds = p * (dp - delta),
where dp = sum(do * v, E), and delta = sum(do * o, E) less the gradient of lse is one value per row. If v has a weight
in the sum, dp is multiplied by it, and its gradient is p * dp. A sink x has the gradient -exp(x - lse) * delta. The
rest is the gradient of the math of the scores, an operator of its own with ds as an input. One kernel computes the
gradients along the rows, and passes delta to another, which computes those along the streamed axis. If results are
computed from means, steps that differentiate this math come first, for do and delta.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce

from ..autodiff.gradient import Gradient, changes_smoothly, derive
from ..diagnostics.report import Mistakes
from ..families.family import Families, Step
from ..families.stream import NotStreamed, Stream, multiplied_as, of_bytes, power_below, write_instead
from ..lang.ir import COMPUTE, Call, Cast, Constant, Dtype, Load, Node, Op, Reduce, Ref, Result, Value, children
from ..lang.names import fresh
from ..lang.rewrite import as_loads, rebuild, renamed_values
from ..lang.unparse import spelled
from ..lowering.tile import needed
from ..nest.values import Expr
from ..passes.contractions import applied
from ..passes.exponentials import resolve
from ..passes.structure import reads, references
from ..planner.steps import restricted
from ..spec.types import COMPUTED, FLOATS, AxisTerm, Grad, Input, Output, TensorType, have_same_dtype, plain_shape
from .backward import Backward, Plan, Planner
from .lost_rows import FLOAT, LostRows, where_equal
from .streaming_steps import StreamPlanner, computed_result, own_result
from .weighted_means import Mean, Means, means_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMean(Mean):
    """A mean along the rows and its `own` axes (none without a matrix), with the tensors of it and of its gradient."""

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
    """The inputs of a gradient: `seeds` by result, and gradients `others` by inputs, which are added to its own.

    `between` are inputs that earlier steps compute, with their dtypes: other steps read the gradients by them. `name`
    is the name of the gradient's operator, `enclosing` the full forward, `known` further tensors that steps so far have
    computed or read. `dtypes` has the dtypes of the values that the forward computed before, and `shapes_of` the shapes
    in which values that later steps read are stored.
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
        """The inputs of an operator that steps have computed, so that the full forward does not have them."""
        return frozenset(t.name for t in op.inputs) - {t.name for t in self.enclosing.inputs}

    @property
    def results(self) -> frozenset[str]:
        """The results of the full forward, as other steps of the gradient may read them."""
        return frozenset(result.output.name for result in self.enclosing.results)


def gradient_input(tensor: Input, name: str, shape: tuple[AxisTerm, ...], vanishes: bool) -> Input:
    """A gradient by an input, as an input of steps that add to it; without an optional input it defaults to 0."""
    default = None if tensor.default is None else 0.0
    return Input(name, replace(tensor.type, shape=shape), default, vanishes)


def outgoing_of(op: Op) -> Outgoing:
    """The seeds from which the gradient of the full operator starts."""
    used = op.names
    names = {one.output.name: fresh(f"d{one.output.name}", used) for one in op.results}
    zeros = len(op.results) > 1
    seeds = {one.output.name: replace(like(op, one, names[one.output.name]), vanishes=zeros) for one in op.results}
    return Outgoing(seeds, {}, {}, f"{op.name}_backward", op)


def plan_streaming_backward(
    op: Op, stream: Stream, grad: Grad, families: Families, outgoing: Outgoing | None = None
) -> Backward:
    """Raises `NotStreamed` for pages, for `save`, without a plan, and if results read sums but means and lse."""
    if stream.is_paged:
        raise NotStreamed(f"gradients gather what lies in pages along {stream.streamed}")
    if grad.save is not None:
        raise NotStreamed(f"`save` lists {', '.join(grad.save) or 'nothing'}")
    outgoing = outgoing or outgoing_of(op)
    means = means_of(op, stream, {*outgoing.enclosing.names, *(tensor.name for tensor in outgoing.known)})
    if means is None:
        what = f"its sums along {stream.streamed} otherwise than by means and the logarithm of what divides them"
        names = [result.output.name for result in op.results]
        what += write_instead(op, stream.streamed) or _without_total(op, stream)
        raise NotStreamed(f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} made of {what}")
    try:
        return _Planner(means, stream, grad, families, outgoing).backward()
    except Mistakes as refused:
        raise NotStreamed(refused.mistakes[0].message) from None


def _without_total(op: Op, stream: Stream) -> str:
    """The hint to add log(w) to scores instead of multiplying exponentials by w, if the divisor sums such products."""
    factors = (resolve(op, one.factor) for one in stream.sums if one.matrix is None)
    if any(isinstance(factor, Call) and factor.function == "exp" for factor in factors):
        return ""
    return ". Add log(w) to scores, and do not multiply their exponentials by w"


@dataclass(frozen=True, slots=True)
class _Results:
    """The values and results of an operator as they are added, and the gradients of the results."""

    values: list[Value]
    results: list[Result]
    gradients: dict[str, Node]
    used: set[str]

    def named(self, name: str, node: Node, says: bool = True) -> Ref:
        self.values.append(Value(fresh(name, self.used), node, spelled(node) if says else ""))
        return self.values[-1].ref

    def add(self, ref: Ref, gradient: Node) -> None:
        """Add a result, and its gradient summed over the axes of means that the result lacks."""
        over = tuple(axis for axis in gradient.axes if axis not in ref.axes)
        self.results.append(Result(Output(ref.name), ref, ref.axes, ref.dtype))
        summed = Reduce("sum", gradient, over, ref.axes, gradient.dtype)
        self.gradients[ref.name] = summed if over else gradient


class _Planner:
    """Plans the gradient from results to means and lse, and from these through the scores. It reads means, their
    gradients and lse, which are results or saved.
    """

    def __init__(self, means: Means, stream: Stream, grad: Grad, families: Families, outgoing: Outgoing) -> None:
        self.score, self.sinks = means.score, means.sinks
        self.means = {mean.name: mean for mean in means.means}
        self.op, self.lse = means.op, means.lse
        self.stream, self.grad, self.families = stream, grad, families
        self.outgoing, self.seeds = outgoing, outgoing.seeds
        self.known = (*self.seeds.values(), *outgoing.known)
        self.used = self.op.names | {tensor.name for tensor in self.known}
        axes = {axis for one in stream.sums for axis in one.factor.axes} - {*stream.positions}
        self.rows = tuple(axis for axis in self.op.axes if axis in axes)
        self.saved = self.fresh(f"{self.lse}_exact") if self.lse in outgoing.results else self.lse
        self.shift = ""  # lse as gradients read it
        self.delta = self.fresh("delta")

    def backward(self) -> Backward:
        if self.lse:
            self.add_shift()
        results = self.plain_results()
        if results:
            means = tuple(self.mean_of_result(name, result) for name, result in results.items() if name != self.lse)
            return self.planned(means, self.delta_of(means, results.get(self.lse)) if self.lse else None)
        return self.planned_behind(tuple(map(self.mean_saved, self.means)))

    def fresh(self, name: str) -> str:
        return fresh(name, self.used)

    def add_shift(self) -> None:
        """Add lse as gradients read it to the operator: inf, so that p = 0, for rows whose lse determines no
        probabilities. In these all scores are -inf, or lse is so far from 0 that adding 1 to it changes nothing.

        It has the name of lse, unless lse is stored for other steps, or results read it other than through means.
        """
        ends = (replace(v, node=Constant(0.0, FLOAT)) if v.name in self.means else v for v in self.op.values)
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
        """The results by the mean or lse that each equals; empty if any result is something else."""
        ends = {*self.means, self.lse} - {""}
        found: dict[str, Result] = {}
        for result in self.op.results:
            name = _end(self.op, result.node, ends)
            if name not in ends or name in found:
                return {}
            mean = self.means.get(name)
            if mean and not mean.is_sum and (mean.matrix is None or not self.has_same_dtype(result, mean.matrix)):
                return {}
            found[name] = result
        return found

    def has_same_dtype(self, result: Result, matrix: Load) -> bool:
        """Whether a result and its gradient surely have the dtype of a matrix, or each of these may be any float."""
        types = like(self.op, result, "").type, self.seeds[result.output.name].type, self.type_of(matrix)
        return have_same_dtype(types) or all({*one.dtypes} == {*FLOATS} for one in types)

    def type_of(self, matrix: Load) -> TensorType:
        return self.op.input(self.multiplied_as(matrix)).type

    def multiplied_as(self, matrix: Load) -> str:
        """The name of the matrix in whose dtype a matrix is multiplied: another if its own elements are bytes."""
        return (of_bytes(self.op, matrix) and multiplied_as(self.op, self.stream)) or matrix.name

    def of_rows(self, name: str) -> Input:
        """A tensor with a value for each row."""
        return Input(name, TensorType(COMPUTED, self.outgoing.shapes_of.get(name, plain_shape(self.rows))))

    def mean_of_result(self, name: str, result: Result) -> StoredMean:
        tensor = result.output.name
        return self.stored(name, result.node.axes, like(self.op, result, tensor), self.seeds[tensor])

    def stored(self, name: str, axes: tuple[str, ...], tensor: Input, gradient: Input) -> StoredMean:
        mean, own = self.means[name], tuple(axis for axis in self.op.value(name).node.axes if axis not in self.rows)
        given = mean.name, mean.matrix, mean.weight, mean.is_sum
        return StoredMean(*given, own=own, axes=axes, tensor=tensor, gradient=gradient)

    def mean_saved(self, name: str) -> StoredMean:
        """A mean that the forward saves, unless a result in the dtype of its matrix holds it."""
        axes, matrix = self.op.value(name).node.axes, self.means[name].matrix
        dtypes = TensorType(COMPUTED, ()) if matrix is None else self.type_of(matrix)
        shape = plain_shape((*self.rows, *(axis for axis in axes if axis not in self.rows)))
        result = next((result for result in self.op.results if result.output.name == name), None)
        is_copy = name in self.outgoing.results
        own_type = replace(dtypes, shape=shape if is_copy else self.outgoing.shapes_of.get(name, shape))
        tensor = Input(self.fresh("mean") if is_copy else name, own_type)
        if result is not None and matrix is not None and self.has_same_dtype(result, matrix):
            tensor = like(self.op, result, name)
        # As for any input, its gradient has the same shape.
        gradient = Input(self.fresh(f"d{tensor.name}"), replace(own_type, shape=tensor.type.shape))
        return self.stored(name, axes, tensor, gradient)

    # Through the scores: gradients by scores and matrices, from the gradients of means and delta

    def through_scores(self, means: tuple[StoredMean, ...]) -> Gradient:
        """The gradient by the inputs of means, with the gradients of the means and delta as inputs."""
        scores, given = self.scores(means) if self.score is not None else self.of_sums(means)
        read = read_by(scores.values)
        wrt = tuple(name for name in self.grad.wrt if name in read)
        found = derive(scores, Grad(wrt), given, saves=False)
        op = replace(_plain(found.op), name=self.outgoing.name)
        outputs = tuple(mean.tensor.name for mean in means)
        saved = ((self.shift, self.shift),) if self.shift else ()
        return Gradient(self.op, op, wrt, self.outgoing.pairs, saved, outputs, made=self.outgoing.made(self.op))

    def of_sums(self, means: tuple[StoredMean, ...]) -> tuple[Op, dict[str, Node]]:
        names = [mean.name for mean in means]
        results = tuple(own_result(self.op.value(name)) for name in names)
        inputs = by_name(*(mean.gradient for mean in means), *self.op.inputs, *self.known)
        op = replace(self.op, inputs=inputs, values=tuple(needed(self.op.values, names)), results=results)
        return op, {mean.name: mean.seed for mean in means}

    def scores(self, means: tuple[StoredMean, ...]) -> tuple[Op, dict[str, Node]]:
        """The scores and the means, with probabilities that are recomputed, and the gradients of both."""
        score = self.score
        assert score is not None
        weights = (mean.weight for mean in means if mean.weight is not None)
        sums = [mean for mean in means if mean.is_sum]
        averaged = [mean for mean in means if not mean.is_sum]
        roots = {score.name, *(mean.name for mean in sums)}
        values = needed(self.op.values, roots.union(*map(references, (*self.sinks, *weights))))
        used = {*self.used} - {value.name for value in self.op.values} | {value.name for value in values}
        results = [own_result(self.op.value(mean.name)) for mean in sums]
        found = _Results(values, results, {mean.name: mean.seed for mean in sums}, used)
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
        """The sum along the streamed axis of a matrix times a detached factor."""
        product = applied("mul", Call("detach", (factor,), factor.axes, factor.dtype), matrix)
        over = tuple(axis for axis in self.op.axes if axis in self.stream.positions)
        axes = tuple(axis for axis in product.axes if axis not in over)
        return Reduce("sum", product, over, axes, product.dtype)

    def by_probabilities(
        self, found: _Results, p: Ref, means: Sequence[StoredMean], delta: Node
    ) -> tuple[Node, dict[str, Node]]:
        """dp - delta, the gradient by a score over p; and p times the weight of each mean that has one."""
        weighted: dict[str, Node] = {}
        terms: list[Node] = []
        for mean in means:
            term: Node = mean.seed
            if mean.matrix is not None:
                product = applied("mul", mean.seed, mean.matrix)
                axes = tuple(axis for axis in p.axes if axis in product.axes and axis not in mean.own)
                term = found.named("dp", Reduce("sum", product, mean.own, axes, product.dtype))
            if mean.weight is not None:
                w = found.named(f"{mean.name}_weight", mean.weight, says=False)
                found.add(w, applied("mul", p, term))
                term, weighted[mean.name] = applied("mul", term, w), applied("mul", p, w)
            terms.append(term)
        return applied("sub", reduce(partial(applied, "add"), terms), delta), weighted

    def delta_of(self, means: tuple[StoredMean, ...], lse: Result | None) -> tuple[tuple[Input, ...], Value]:
        """The inputs of delta; and delta, the sum of do * o for each row less the gradient of lse."""
        inputs = [one for mean in means if not mean.is_sum for one in (mean.gradient, mean.tensor)]
        less: Node | None = None
        if lse is not None:
            inputs.append(self.seeds[lse.output.name])
            less = load(inputs[-1].name, lse.node.axes)
        return tuple(inputs), self.delta_value(means, less, {})

    def delta_value(self, means: Sequence[StoredMean], less: Node | None, computed: Mapping[str, Node]) -> Value:
        """Delta from the outgoing gradients of means, or for tensors in `computed` from the nodes given there."""
        node: Node | None = None
        averaged = (mean for mean in means if not mean.is_sum)
        for mean in sorted(averaged, key=lambda one: one.tensor.name in computed):
            name = mean.tensor.name
            seed = _as_stored(computed[name], mean) if name in computed else mean.seed
            product = applied("mul", seed, mean.load)
            term = Reduce("sum", product, mean.own, self.rows, product.dtype) if mean.own else product
            node = term if node is None else applied("add", node, term)
        assert node is not None
        node = node if less is None else applied("sub", node, less)
        inf, zero = (Constant(number, FLOAT) for number in (math.inf, 0.0))
        node = replace(where_equal(load(self.shift, self.rows), inf, zero, node), axes=self.rows)
        return Value(self.delta, node, spelled(node))

    # The gradient if all results are means and lse

    def planned(self, means: tuple[StoredMean, ...], delta: tuple[tuple[Input, ...], Value] | None) -> Backward:
        gradient = added(self.through_scores(means), self.outgoing.others)
        read = {tensor.name for tensor in gradient.op.inputs}  # empty if all gradients come from another stream
        gradient = replace(gradient, saved=tuple(pair for pair in gradient.saved if pair[0] in read))
        planner = StreamPlanner(gradient, self.stream, self.families, delta, self.outgoing.between)
        forward = planner.forward()
        steps, texts = planner.plan()
        return Backward(gradient, forward, Plan(steps, texts), stored=planner.stored)

    # The gradient if results are computed from means and lse

    def planned_behind(self, means: tuple[StoredMean, ...]) -> Backward:
        """Plan the steps from results to means first; the gradient through the scores is added to their gradients."""
        others = self.outgoing.others
        behind, means = self.behind(means)
        gradient = self.through_scores(means)
        # Unread gradients are dropped, such as delta if only gradients by v are needed.
        passed_on = {self.delta: self.delta, **{mean.tensor.name: mean.gradient.name for mean in means}}
        read = read_by(gradient.op.values)
        by = {name: one for name, one in behind.by.items() if name not in passed_on or passed_on[name] in read}
        behind = added(behind.of(by), others)
        behind, unstreamed = self.separate_gradients(behind, [name for name in behind.wrt if name in gradient.wrt])
        gradient = added(gradient, {**others, **unstreamed})
        stored = {mean.tensor.name: self.dtype_of(mean.matrix) if mean.matrix else COMPUTE for mean in means}
        inner = self.outgoing.between
        own_sums = {name: inner.get(name, Dtype("float", (name,))) for name in unstreamed}
        separate = {
            name: dtype for name, dtype in inner.items() if name in behind.wrt and not self.is_unchanged(behind, name)
        }
        between = {**stored, **own_sums, self.delta: COMPUTE} if gradient.wrt else {}
        first, texts = self.steps_behind(behind, {**separate, **between})
        gradient = self.read_with(gradient, first, means)
        planner = StreamPlanner(gradient, self.stream, self.families, between=inner)
        steps, own = planner.plan()
        texts = {name: {**texts, **own}[name] for name in self.grad.wrt}
        forward = planner.step_of(planner.saving(stored))
        backward = Backward(replace(gradient, wrt=self.grad.wrt), forward, Plan((*first, *steps), texts))
        return replace(backward, stored=planner.stored)

    def read_with(self, gradient: Gradient, first: tuple[Step, ...], means: tuple[StoredMean, ...]) -> Gradient:
        """The gradient with the inputs of `first` among its own, and in `saved` those that the forward saves."""
        known = {tensor.name for tensor in gradient.op.inputs}
        more = (tensor for step in first for tensor in step.op.inputs if tensor.name not in known)
        inputs = dict.fromkeys((*more, *gradient.op.inputs))
        read = {tensor.name for tensor in inputs}
        lse = ((self.saved, self.lse),) if self.lse else ()
        saved = (*lse, *gradient.saved, *((mean.tensor.name, mean.name) for mean in means))
        outputs = tuple(result.output.name for result in self.op.results if result.output.name in read)
        saved = tuple((tensor, name) for tensor, name in saved if tensor in read and tensor not in outputs)
        return replace(gradient, saved=saved, outputs=outputs, op=replace(gradient.op, inputs=tuple(inputs)))

    def dtype_of(self, matrix: Load) -> Dtype:
        """The dtype in which a matrix is multiplied, expressed by inputs of the forward."""
        name = self.multiplied_as(matrix)
        return self.outgoing.dtypes.get(name, Dtype("float", (name,)))

    def steps_behind(self, behind: Gradient, between: Mapping[str, Dtype]) -> tuple[tuple[Step, ...], dict[str, Expr]]:
        """The steps from results to means: planned in one piece, or `between` and the rest separately if fewer."""
        inner = [name for name in behind.wrt if name in between]
        others = [name for name in behind.wrt if name in self.grad.wrt and name not in between]
        plans = []
        for groups in ([[*inner, *others]], [inner, others]):
            planners = (Planner(_by(behind, group), (), self.families, between) for group in groups if group)
            plans.append([planner.plan() for planner in planners])
        best = min(plans, key=lambda plan: sum(len(steps) for steps, _ in plan))
        steps = tuple(step for found, _ in best for step in found)
        return steps, {name: text for _, texts in best for name, text in texts.items()}

    def separate_gradients(self, behind: Gradient, names: Sequence[str]) -> tuple[Gradient, dict[str, Input]]:
        """The gradient from results to means, with fresh names for the gradients by `names`; and these as inputs of
        other steps. One that equals an outgoing gradient is no result.
        """
        found: dict[str, Input] = {}
        results: dict[str, Result] = {}
        used = {*self.used, *behind.op.names}
        calls = {r.output.name: fresh(f"d{name}_behind", used) for name, r in behind.by.items() if name in names}
        op = renamed_values(behind.op, calls)
        for name, result in behind.by.items():
            if name not in names:
                results[name] = result
                continue
            value = op.value(calls[result.output.name])
            if isinstance(value.node, Load) and not value.node.at and value.node.axes == result.axes:
                found[name] = behind.op.input(value.node.name)
                continue
            ref = Ref(value.name, result.node.axes, result.node.dtype)
            results[name] = replace(result, output=replace(result.output, name=value.name), node=ref)
            tensor = self.op.input(name)
            found[name] = gradient_input(tensor, value.name, tensor.type.shape, result.vanishes)
        return replace(behind, op=op).of(results), found

    def behind(self, means: tuple[StoredMean, ...]) -> tuple[Gradient, tuple[StoredMean, ...]]:
        """The gradient by means and other inputs, with delta among its results; and the means with these gradients."""
        after = self.after(means)
        read = read_by(after.values)
        tensors = tuple(mean.tensor.name for mean in means)
        lse = (self.saved,) if self.saved in read and changes_smoothly(after, self.saved) else ()
        direct = tuple(name for name in self.grad.wrt if name in read)
        given = {one.output.name: load(self.seeds[one.output.name].name, one.node.axes) for one in after.results}
        found = derive(after, Grad((*tensors, *lse, *direct)), given, saves=False)
        found = self.without_lost(found, means)
        results = found.by
        names = [results[tensor].output.name for tensor in tensors]
        means = tuple(
            replace(mean, gradient=self.seed_of(mean, found.op.value(name).node) or own)
            for mean, name in zip(means, names, strict=True)
            for own in (replace(mean.gradient, name=name, vanishes=results[mean.tensor.name].vanishes),)
        )
        tensors = tuple(m.tensor.name for m, name in zip(means, names, strict=True) if m.gradient.name == name)
        passed_on: tuple[Value, ...] = ()
        shift: tuple[Input, ...] = ()
        if self.lse:
            less = next((results[name].node for name in lse), None)
            shift = (self.of_rows(self.shift),)
            passed_on = (self.delta_value(means, less, {tensor: results[tensor].node for tensor in tensors}),)
        op = replace(
            found.op,
            name=self.outgoing.name,
            inputs=by_name(*found.op.inputs, *(mean.tensor for mean in means), *shift),
            values=(*found.op.values, *passed_on),
        )
        results |= {value.name: computed_result(value) for value in passed_on}
        by = {name: results[name] for name in (*tensors, *(value.name for value in passed_on), *direct)}
        made = self.outgoing.made(self.op)
        return replace(found, forward=self.op, op=op, seeds=self.outgoing.pairs, saved=(), made=made).of(by), means

    def without_lost(self, behind: Gradient, means: Sequence[StoredMean]) -> Gradient:
        """The gradient, with 0 in place of NaN for lost rows."""
        lost = (load(self.shift, self.rows), math.inf) if self.lse else self.empty_sum(means)
        if lost is None:
            return behind
        by = {mean.tensor.name for mean in means if not (self.lse and mean.is_sum)}
        rows = LostRows(self.rows, *lost, {self.saved, *(mean.tensor.name for mean in means)})
        return rows.zero_in(behind, by, self.outgoing.between)

    def empty_sum(self, means: Sequence[StoredMean]) -> tuple[Load, float] | None:
        """The sum of exponentials without the largest subtracted, and its value for lost rows, 0; else None."""
        factors = {one.name: resolve(self.op, one.factor) for one in self.stream.sums if one.matrix is None}
        for mean in means:
            factor = factors.get(mean.name)
            if isinstance(factor, Call) and factor.function == "exp":
                return mean.load, 0.0
        return None

    def is_unchanged(self, behind: Gradient, name: str) -> bool:
        """Whether the gradient by an intermediate is an unchanged outgoing gradient of the same dtype."""
        result = behind.by[name]
        node = behind.op.value(result.output.name).node
        if not isinstance(node, Load) or node.at or not Planner(behind, (), self.families).is_seed(node, result):
            return False
        seed = next(seed for seed in self.seeds.values() if seed.name == node.name)
        return have_same_dtype((seed.type, self.op.input(name).type))

    def seed_of(self, mean: StoredMean, gradient: Node) -> Input | None:
        """The outgoing gradient that the gradient of a mean equals, if it has the dtype of the mean; else None."""
        if not isinstance(gradient, Load) or mean.matrix is None or gradient.at or {*gradient.axes} != {*mean.axes}:
            return None
        for result in self.op.results:
            seed = self.seeds[result.output.name]
            if seed.name == gradient.name and self.has_same_dtype(result, mean.matrix):
                return seed
        return None

    def is_smooth(self, result: Result) -> bool:
        """Whether a result has gradients; a detached maximum, for example, has none."""
        alone = replace(self.op, results=(result,))
        return any(changes_smoothly(alone, name) for name in self.grad.wrt)

    def after(self, means: tuple[StoredMean, ...]) -> Op:
        """The operator that computes the results from means and lse as inputs."""
        tensors = {mean.name: mean.tensor.name for mean in means} | ({self.lse: self.saved} if self.lse else {})
        values: list[Value] = []
        for value in self.op.values:
            node = value.node
            if value.name not in tensors:
                node = as_loads(node, tensors)
                values.append(Value(value.name, node, value.source and spelled(node)))
            elif tensors[value.name] != value.name:
                values.append(replace(value, node=Load(tensors[value.name], node.axes, node.dtype)))
        smooth = (result for result in self.op.results if self.is_smooth(result))
        results = tuple(replace(result, node=as_loads(result.node, tensors)) for result in smooth)
        values = needed(tuple(values), [result.output.name for result in results])
        lse = (self.of_rows(self.saved),) if self.lse else ()
        inputs = by_name(*self.seeds.values(), *self.op.inputs, *(mean.tensor for mean in means), *lse, *self.known)
        return replace(self.op, inputs=inputs, values=tuple(values), results=results)


def _by(gradient: Gradient, names: Container[str]) -> Gradient:
    by = {name: result for name, result in gradient.by.items() if name in names}
    results = (*by.values(),)
    return replace(gradient, wrt=tuple(by), op=restricted(gradient.op, results, f"_{results[0].output.name}"))


def _as_stored(gradient: Node, mean: StoredMean) -> Node:
    """The gradient by a mean as other steps read it, in the dtype of the mean.

    So delta and dp are computed from the same values, and both are equal if there is a single position.
    """
    if mean.matrix is None or isinstance(gradient, Load):
        return gradient
    return Cast(gradient, mean.load.dtype, gradient.axes)


def added(gradient: Gradient, others: Mapping[str, Input]) -> Gradient:
    """The gradient, to which the gradients `others` by the same inputs are added."""
    op = gradient.op
    own = {r.output.name: others[name] for name, r in gradient.by.items() if name in others}
    used = op.names
    read = {name for value in op.values for name in references(value.node)}
    op = renamed_values(op, {name: fresh(f"{name}_alone", used) for name in own if name in read})
    values: list[Value] = []
    for value, name in zip(op.values, (value.name for value in gradient.op.values), strict=True):
        if name not in own:
            values.append(value)
            continue
        alone: Node = value.node
        if value.name != name:
            values.append(value)
            alone = value.ref
        node = applied("add", alone, load(own[name].name, own[name].type.axes))
        values.append(Value(name, node, spelled(node)))
    nodes = {value.name: value.node for value in values if value.name in own}
    results = tuple(
        replace(
            one,
            node=replace(one.node, axes=nodes[one.output.name].axes),
            vanishes=one.vanishes and own[one.output.name].vanishes,
        )
        if one.output.name in nodes
        else one
        for one in op.results
    )
    inputs = tuple({tensor.name: tensor for tensor in (*own.values(), *op.inputs)}.values())
    return replace(gradient, op=replace(op, inputs=inputs, values=tuple(values), results=results))


def by_name(*inputs: Input) -> tuple[Input, ...]:
    """The inputs without duplicates, by name."""
    found: dict[str, Input] = {}
    for tensor in inputs:
        found.setdefault(tensor.name, tensor)
    return tuple(found.values())


def load(name: str, axes: tuple[str, ...]) -> Load:
    return Load(name, axes, Dtype("float", (name,)))


def _end(op: Op, node: Node, ends: Container[str]) -> str:
    """The first name in `ends` that a node refers to, also through other references; "" if there is none."""
    if not isinstance(node, Ref) or node.name in ends:
        return node.name if isinstance(node, Ref) else ""
    return _end(op, op.value(node.name).node, ends)


def like(op: Op, result: Result, name: str) -> Input:
    """An input with the shape of a result, and with the type of an input that has its dtype, else of any float."""
    types = [tensor.type for tensor in op.inputs if result.dtype.of == (tensor.name,)]
    shape = op.grouping(result)
    return Input(name, replace(types[0], shape=shape) if types else TensorType(FLOATS, shape))


def read_by(values: Iterable[Value]) -> set[str]:
    """The inputs that some values read."""
    return {name for value in values for name in reads(value.node)}


def _plain(op: Op) -> Op:
    """The operator without calls of `detach`."""

    def plain(node: Node) -> Node:
        if isinstance(node, Call) and node.function == "detach":
            return plain(node.args[0])
        return rebuild(node, tuple(map(plain, children(node))))

    values = (replace(v, source=v.source and spelled(v.node)) for v in op.with_nodes(plain).values)
    return replace(op, values=tuple(values))
