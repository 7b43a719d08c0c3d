"""The gradient of what is streamed: scores are recomputed, and by lse, their logsumexp, the probabilities of a softmax.

With p = exp(s - lse), o = sum(p * v, N) and the gradient do of o, the gradient of the scores is ds = p * (dp - delta),
where dp = sum(do * v, E), and delta = sum(do * o, E) less the gradient of lse is one number for each row. Where v has a
weight in the sum, dp is multiplied by it, and its gradient is p * dp. A sink x has the gradient -exp(x - lse) * delta.
The rest is the gradient of the math of the scores, an operator of its own to which ds is given. One kernel takes the
gradients that lie along the rows, and tells delta to another, for those that lie along what was streamed. Where results
are more than means, steps that differentiate what is made of these come first, for do and delta.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from ..autodiff.gradient import Gradient, changes_smoothly, derive
from ..diagnostics.report import Mistakes
from ..families.family import Families, Step
from ..families.steps import restricted
from ..families.stream import NotStreamed, Stream
from ..lang.ir import Call, Cast, Constant, Dtype, Load, Node, Op, Reduce, Ref, Result, Value, children
from ..lang.names import fresh
from ..lang.rewrite import as_loads, rebuild, renamed_values
from ..lang.unparse import spelled
from ..lowering.tile import needed
from ..passes.contractions import applied
from ..passes.exponentials import resolve
from ..passes.structure import reads, references
from ..spec.types import Grad, Input, Output, are_alike
from .added import added
from .backward import Backward, Plan, Planner
from .lost_rows import LostRows
from .means_of_rows import FLOAT, Mean, MeansOfRows, Outgoing, by_name, load, outgoing_of, where_equal
from .streaming_steps import COMPUTE, StreamPlanner, own_result, told_result
from .weighted_means import means_of


def plan_streaming_backward(
    op: Op, stream: Stream, grad: Grad, families: Families, outgoing: Outgoing | None = None
) -> Backward:
    """Raises `NotStreamed` where results are made of sums otherwise than by means and lse, or something else is to be
    saved.
    """
    if stream.is_paged:
        raise NotStreamed(f"gradients gather what lies in pages along {stream.streamed}")
    if grad.save:
        raise NotStreamed(f"the forward is told to keep {', '.join(grad.save)}")
    outgoing = outgoing or outgoing_of(op)
    means = means_of(op, stream, {*outgoing.whole.names, *(tensor.name for tensor in outgoing.known)})
    if means is None:
        what = f"its sums along {stream.streamed} otherwise than by means and the logarithm of what divides them"
        names = [result.output.name for result in op.results]
        raise NotStreamed(f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} made of {what}")
    try:
        return _Planner(means, stream, grad, families, outgoing).backward()
    except Mistakes as refused:
        raise NotStreamed(refused.mistakes[0].message) from None


class _Planner(MeansOfRows):
    """Plans the gradient by way of means and of lse: of what is made of them, and of what they are made of."""

    def backward(self) -> Backward:
        if self.lse:
            self.add_shift()
        results = self.plain_results()
        if results:
            means = tuple(self.mean_of_result(name, result) for name, result in results.items() if name != self.lse)
            return self.planned(means, self.delta_of(means, results.get(self.lse)) if self.lse else None)
        return self.planned_behind(tuple(map(self.mean_saved, self.matrices)))

    # What means and lse are made of

    def planned(self, means: tuple[Mean, ...], delta: tuple[tuple[Input, ...], Value] | None) -> Backward:
        gradient = added(self.through_scores(means), self.outgoing.others)
        planner = StreamPlanner(gradient, self.stream, self.families, delta, self.outgoing.between)
        forward = planner.forward()
        steps, texts = planner.plan()
        return Backward(gradient, forward, Plan(steps, texts), stored=planner.stored)

    def through_scores(self, means: tuple[Mean, ...]) -> Gradient:
        """The gradient by what means are made of, those of the means and delta among its inputs."""
        scores, given = self.scores(means) if self.score is not None else self.of_sums(means)
        read = _read(scores)
        wrt = tuple(name for name in self.grad.wrt if name in read)
        found = derive(scores, Grad(wrt), given, saves=False)
        op = replace(_plain(found.op), name=self.outgoing.name)
        outputs = tuple(mean.tensor.name for mean in means)
        saved = tuple((name, name) for name in (self.shift, self.factor) if name)
        return Gradient(self.op, op, wrt, self.outgoing.pairs, saved, outputs)

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
        weights = (weight for weight in (*self.weights.values(), self.weight) if weight is not None)
        sums = [mean for mean in means if mean.is_sum]
        roots = {score.name, *(mean.name for mean in sums)}
        values = needed(self.op.values, roots.union(*map(references, (*self.sinks, *weights))))
        taken = {*self.taken} - {value.name for value in self.op.values} | {value.name for value in values}
        results = [own_result(self.op.value(mean.name)) for mean in sums]
        given: dict[str, Node] = {mean.name: mean.seed for mean in sums}
        inputs = by_name(
            *(mean.gradient for mean in means),
            *self.op.inputs,
            *map(self.of_rows, filter(None, (self.shift, self.factor, self.delta))),
            *self.known,
        )
        means = tuple(mean for mean in means if not mean.is_sum)

        def named(name: str, node: Node, says: bool = True) -> Ref:
            name = fresh(name, taken)
            values.append(Value(name, node, spelled(node) if says else ""))
            return Ref(name, node.axes, node.dtype)

        def result(ref: Ref, gradient: Node) -> None:
            results.append(Result(Output(ref.name), ref, ref.axes, ref.dtype))
            given[ref.name] = gradient

        lse, delta = load(self.shift, self.rows), load(self.delta, self.rows)
        power: Node = Call("exp", (applied("sub", score, lse),), score.axes, score.dtype)
        p = named("p", applied("mul", power, load(self.factor, self.rows)) if self.factor else power)
        weighted: dict[str, Node] = {}
        dp: Node | None = None
        less: Node | None = delta

        def by_weight(name: str, weight: Node, gradient: Node) -> tuple[Ref, Node]:
            """What exponentials are multiplied by, and what that makes of a gradient."""
            w = named(f"{name}_weight", weight, says=False)
            dw = applied("mul", p, gradient)
            over = tuple(axis for axis in dw.axes if axis not in w.axes)
            result(w, Reduce("sum", dw, over, w.axes, dw.dtype) if over else dw)
            return w, applied("mul", gradient, w)

        for mean in means:
            term: Node = mean.seed
            if mean.matrix is not None:
                product = applied("mul", mean.seed, mean.matrix)
                axes = tuple(axis for axis in score.axes if axis not in mean.own)
                term = named("dp", Reduce("sum", product, mean.own, axes, product.dtype))
            if weight := self.weights[mean.name]:
                if less is not None and weight == self.weight:
                    term, less = applied("sub", term, less), None
                w, term = by_weight(mean.name, weight, term)
                weighted[mean.name] = applied("mul", p, w)
            dp = term if dp is None else applied("add", dp, term)
        assert dp is not None
        if less is not None and self.weight is not None:
            term, less = by_weight("total", self.weight, Call("neg", (less,), less.axes, less.dtype))[1], None
            dp = applied("add", dp, term)
        ds = named("ds", applied("mul", p, dp if less is None else applied("sub", dp, less)))
        result(score, Ref(ds.name, score.axes, score.dtype))
        for mean in means:
            if mean.matrix is None:
                continue
            factor = weighted.get(mean.name, p)
            product = applied("mul", Call("detach", (factor,), factor.axes, factor.dtype), mean.matrix)
            over = tuple(axis for axis in self.op.axes if axis in self.stream.positions)
            axes = tuple(axis for axis in product.axes if axis not in over)
            node = Reduce("sum", product, over, axes, product.dtype)
            result(named(f"{mean.tensor.name}_mean", node, says=False), mean.seed)
        for sink in self.sinks:
            power = applied("sub", sink, lse)
            x = named("p_sink", Call("exp", (power,), power.axes, power.dtype))
            result(x, Call("neg", (delta,), delta.axes, delta.dtype))
        return replace(self.op, inputs=inputs, values=tuple(values), results=tuple(results)), given

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
        node = where_equal(load(self.shift, self.rows), inf, zero, node)
        return Value(self.delta, node, spelled(node))

    # What is made of means and lse

    def planned_behind(self, means: tuple[Mean, ...]) -> Backward:
        """First the steps behind the means, to the gradients of which that through the scores is added."""
        others = self.outgoing.others
        behind, means = self.behind(means)
        gradient = self.through_scores(means)
        # As delta, where there are gradients by values alone.
        told = {self.delta: self.delta, **{mean.tensor.name: mean.gradient.name for mean in means}}
        unread = told.keys() - {name for name, own in told.items() if own in _read(gradient.op)}
        pairs = [(n, r) for n, r in zip(behind.wrt, behind.op.results, strict=True) if n not in unread]
        op = replace(behind.op, results=tuple(result for _, result in pairs))
        behind = replace(behind, wrt=tuple(name for name, _ in pairs), op=op)
        behind = added(behind, others)
        behind, beside = self.gradients_apart(behind, [name for name in behind.wrt if name in gradient.wrt])
        gradient = added(gradient, {**others, **beside})
        stored = {mean.tensor.name: self.dtype_of(mean.matrix) if mean.matrix else COMPUTE for mean in means}
        inner = self.outgoing.between
        own_sums = {name: inner.get(name, Dtype("float", (name,))) for name in beside}
        apart = {name: dtype for name, dtype in inner.items() if name in behind.wrt and not self.is_told(behind, name)}
        between = {**stored, **own_sums, self.delta: COMPUTE} if gradient.wrt else {}
        first, texts = self.steps_behind(behind, {**apart, **between})
        known = {tensor.name for tensor in gradient.op.inputs}
        more = (tensor for step in first for tensor in step.op.inputs if tensor.name not in known)
        inputs = dict.fromkeys((*more, *gradient.op.inputs))
        read = {tensor.name for tensor in inputs}
        lse = ((self.saved, self.lse),) if self.lse else ()
        saved = (*lse, *gradient.saved, *((mean.tensor.name, mean.name) for mean in means))
        outputs = tuple(result.output.name for result in self.op.results if result.output.name in read)
        saved = tuple((tensor, name) for tensor, name in saved if tensor in read and tensor not in outputs)
        op = replace(gradient.op, inputs=tuple(inputs))
        gradient = replace(gradient, saved=saved, outputs=outputs, op=op)
        planner = StreamPlanner(gradient, self.stream, self.families, between=inner)
        steps, own = planner.plan()
        texts = {name: {**texts, **own}[name] for name in self.grad.wrt}
        forward = planner.step_of(planner.saving(stored))
        backward = Backward(replace(gradient, wrt=self.grad.wrt), forward, Plan((*first, *steps), texts))
        return replace(backward, stored=planner.stored)

    def dtype_of(self, matrix: Load) -> Dtype:
        """The dtype that a matrix is multiplied in, by inputs of the forward."""
        name = self.multiplied_as(matrix)
        return self.outgoing.dtypes.get(name, Dtype("float", (name,)))

    def steps_behind(self, behind: Gradient, between: Mapping[str, Dtype]) -> tuple[tuple[Step, ...], dict[str, str]]:
        """One step for all that comes before the scores, or one for what steps go on from, and others for the rest."""
        inner = [name for name in behind.wrt if name in between]
        others = [name for name in behind.wrt if name in self.grad.wrt and name not in between]
        plans = []
        for groups in ([[*inner, *others]], [inner, others]):
            planners = (Planner(_by(behind, group), (), self.families, between) for group in groups if group)
            plans.append([planner.plan() for planner in planners])
        best = min(plans, key=lambda plan: sum(len(steps) for steps, _ in plan))
        steps = tuple(step for found, _ in best for step in found)
        return steps, {name: text for _, texts in best for name, text in texts.items()}

    def gradients_apart(self, behind: Gradient, names: Sequence[str]) -> tuple[Gradient, dict[str, Input]]:
        """The gradient behind the means, in which those by some inputs have names of their own; and these, as others
        read them. What comes as an outgoing gradient is no result.
        """
        found: dict[str, Input] = {}
        results: dict[str, Result] = {}
        inputs = {tensor.name: tensor for tensor in behind.op.inputs}
        taken = {*self.taken, *behind.op.names}
        pairs = list(zip(behind.wrt, behind.op.results, strict=True))
        calls = {r.output.name: fresh(f"d{name}_behind", taken) for name, r in pairs if name in names}
        op = renamed_values(behind.op, calls)
        for name, result in pairs:
            if name not in names:
                results[name] = result
                continue
            value = op.value(calls[result.output.name])
            if isinstance(value.node, Load) and not value.node.at and value.node.axes == result.axes:
                found[name] = inputs[value.node.name]
                continue
            ref = Ref(value.name, result.node.axes, result.node.dtype)
            results[name] = replace(result, output=replace(result.output, name=value.name), node=ref)
            found[name] = replace(self.op.input(name), name=value.name)
        op = replace(op, results=tuple(results.values()))
        return replace(behind, wrt=tuple(results), op=op), found

    def behind(self, means: tuple[Mean, ...]) -> tuple[Gradient, tuple[Mean, ...]]:
        """The gradient by means, delta among its results, and by other inputs; and means, as they are called there."""
        after = self.after(means)
        read = _read(after)
        tensors = tuple(mean.tensor.name for mean in means)
        lse = (self.saved,) if self.saved in read and changes_smoothly(after, self.saved) else ()
        beside = tuple(name for name in self.grad.wrt if name in read)
        given = {one.output.name: load(self.seeds[one.output.name].name, one.node.axes) for one in after.results}
        found = derive(after, Grad((*tensors, *lse, *beside)), given, saves=False)
        found = self.without_lost(found, means)
        results = dict(zip(found.wrt, found.op.results, strict=True))
        names = [results[tensor].output.name for tensor in tensors]
        means = tuple(
            replace(mean, gradient=self.seed_of(mean, found.op.value(name).node) or replace(mean.gradient, name=name))
            for mean, name in zip(means, names, strict=True)
        )
        tensors = tuple(m.tensor.name for m, name in zip(means, names, strict=True) if m.gradient.name == name)
        told: tuple[Value, ...] = ()
        shift: tuple[Input, ...] = ()
        if self.lse:
            less = next((results[name].node for name in lse), None)
            shift = (self.of_rows(self.shift),)
            by: dict[Mean, Node] = {mean: mean.seed for mean in means if mean.tensor.name not in tensors}
            by |= {m: _as_stored(results[m.tensor.name].node, m) for m in means if m.tensor.name in tensors}
            told = (self.delta_value({mean: node for mean, node in by.items() if not mean.is_sum}, less),)
        op = replace(
            found.op,
            name=self.outgoing.name,
            inputs=by_name(*found.op.inputs, *(mean.tensor for mean in means), *shift),
            values=(*found.op.values, *told),
            results=(
                *(results[name] for name in tensors), *map(told_result, told), *(results[name] for name in beside)
            ),
        )  # fmt: skip
        wrt = (*tensors, *(value.name for value in told), *beside)
        return replace(found, forward=self.op, op=op, wrt=wrt, seeds=self.outgoing.pairs, saved=()), means

    def without_lost(self, behind: Gradient, means: Sequence[Mean]) -> Gradient:
        """The gradient, of which those that are NaN for rows without keys are 0."""
        lost = (load(self.shift, self.rows), math.inf) if self.lse else self.empty_sum(means)
        if lost is None:
            return behind
        by = {mean.tensor.name for mean in means if not (self.lse and mean.is_sum)}
        rows = LostRows(self.rows, *lost, {self.saved, *(mean.tensor.name for mean in means)})
        return rows.zero_in(behind, by, self.outgoing.between)

    def empty_sum(self, means: Sequence[Mean]) -> tuple[Load, float] | None:
        """The sum of exponentials that are not below the largest, which is 0 for rows without keys."""
        factors = {one.name: resolve(self.op, one.factor) for one in self.stream.sums if one.matrix is None}
        for mean in means:
            factor = factors.get(mean.name)
            if isinstance(factor, Call) and factor.function == "exp":
                return mean.load, 0.0
        return None

    def is_told(self, behind: Gradient, name: str) -> bool:
        """Whether the gradient by what other steps have computed is that of a result as it comes, in the same dtype."""
        result = behind.op.results[behind.wrt.index(name)]
        node = behind.op.value(result.output.name).node
        if not isinstance(node, Load) or node.at or not Planner(behind, (), self.families).is_seed(node, result):
            return False
        seed = next(seed for seed in self.seeds.values() if seed.name == node.name)
        return are_alike((seed.type, self.op.input(name).type))

    def seed_of(self, mean: Mean, gradient: Node) -> Input | None:
        """The outgoing gradient of a result that is the gradient of a mean as it comes, in the dtype of the mean."""
        if not isinstance(gradient, Load) or mean.matrix is None or gradient.at or {*gradient.axes} != {*mean.axes}:
            return None
        for result in self.op.results:
            seed = self.seeds[result.output.name]
            if seed.name == gradient.name and self.is_alike(result, mean.matrix):
                return seed
        return None

    def is_smooth(self, result: Result) -> bool:
        """Whether a result has gradients, as one of detached maxima has none."""
        alone = replace(self.op, results=(result,))
        return any(changes_smoothly(alone, name) for name in self.grad.wrt)

    def after(self, means: tuple[Mean, ...]) -> Op:
        """The operator that goes on from means and lse."""
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
    """The gradient by some names alone."""
    pairs = [(name, r) for name, r in zip(gradient.wrt, gradient.op.results, strict=True) if name in names]
    results = tuple(result for _, result in pairs)
    op = restricted(gradient.op, results, f"_{results[0].output.name}")
    return replace(gradient, wrt=tuple(name for name, _ in pairs), op=op)


def _as_stored(gradient: Node, mean: Mean) -> Node:
    """The gradient by a mean as other steps read it, in the dtype of the mean.

    So delta is of the numbers that dp is made of, and both are equal where there is but one position.
    """
    if mean.matrix is None or isinstance(gradient, Load):
        return gradient
    return Cast(gradient, mean.load.dtype, gradient.axes)


def _read(op: Op) -> set[str]:
    """The inputs that an operator reads."""
    return {name for value in op.values for name in reads(value.node)}


def _plain(op: Op) -> Op:
    """The operator, in which nothing is told to be a constant."""

    def plain(node: Node) -> Node:
        if isinstance(node, Call) and node.function == "detach":
            return plain(node.args[0])
        return rebuild(node, tuple(map(plain, children(node))))

    values = (replace(v, source=v.source and spelled(v.node)) for v in op.with_nodes(plain).values)
    return replace(op, values=tuple(values))
