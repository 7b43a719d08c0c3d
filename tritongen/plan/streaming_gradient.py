"""The gradient of what is streamed: scores are recomputed, and by lse, their logsumexp, the probabilities of a softmax.

With p = exp(s - lse), o = sum(p * v, N) and the gradient do of o, the gradient of the scores is ds = p * (dp - delta),
where dp = sum(do * v, E), and delta = sum(do * o, E) less the gradient of lse is one value per row. Where v has a
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
from ..families.stream import NotStreamed, Stream, write_instead
from ..lang.ir import COMPUTE, Call, Cast, Dtype, Load, Node, Op, Ref, Result, Value
from ..lang.names import fresh
from ..lang.rewrite import as_loads, renamed_values
from ..lang.unparse import spelled
from ..lowering.tile import needed
from ..passes.exponentials import resolve
from ..planner.steps import restricted
from ..spec.types import Grad, Input, are_alike
from .added import added
from .backward import Backward, Plan, Planner
from .lost_rows import LostRows
from .means_of_rows import Mean, MeansOfRows, Outgoing, by_name, load, outgoing_of, part_of_gradient, read_by
from .streaming_steps import StreamPlanner, computed_result
from .weighted_means import means_of


def plan_streaming_backward(
    op: Op, stream: Stream, grad: Grad, families: Families, outgoing: Outgoing | None = None
) -> Backward:
    """Raises `NotStreamed` where results are made of sums otherwise than by means and lse, or something else is to be
    saved.
    """
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
    """What to write in place of exponentials that have a factor before they are summed for the divisor."""
    factors = (resolve(op, one.factor) for one in stream.sums if one.matrix is None)
    if any(isinstance(factor, Call) and factor.function == "exp" for factor in factors):
        return ""
    return ". Add log(w) to scores, and do not multiply their exponentials by w"


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
        read = {tensor.name for tensor in gradient.op.inputs}  # nothing, where gradients are by another stream alone
        gradient = replace(gradient, saved=tuple(pair for pair in gradient.saved if pair[0] in read))
        planner = StreamPlanner(gradient, self.stream, self.families, delta, self.outgoing.between)
        forward = planner.forward()
        steps, texts = planner.plan()
        return Backward(gradient, forward, Plan(steps, texts), stored=planner.stored)

    # What is made of means and lse

    def planned_behind(self, means: tuple[Mean, ...]) -> Backward:
        """First the steps behind the means, to the gradients of which that through the scores is added."""
        others = self.outgoing.others
        behind, means = self.behind(means)
        gradient = self.through_scores(means)
        # As delta, where there are gradients by values alone.
        passed_on = {self.delta: self.delta, **{mean.tensor.name: mean.gradient.name for mean in means}}
        read = read_by(gradient.op)
        every = zip(behind.wrt, behind.op.results, strict=True)
        pairs = [(name, result) for name, result in every if name not in passed_on or passed_on[name] in read]
        op = replace(behind.op, results=tuple(result for _, result in pairs))
        behind = added(replace(behind, wrt=tuple(name for name, _ in pairs), op=op), others)
        behind, beside = self.separate_gradients(behind, [name for name in behind.wrt if name in gradient.wrt])
        gradient = added(gradient, {**others, **beside})
        stored = {mean.tensor.name: self.dtype_of(mean.matrix) if mean.matrix else COMPUTE for mean in means}
        inner = self.outgoing.between
        own_sums = {name: inner.get(name, Dtype("float", (name,))) for name in beside}
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

    def read_with(self, gradient: Gradient, first: tuple[Step, ...], means: tuple[Mean, ...]) -> Gradient:
        """The gradient with what steps before it read among its inputs, and what the forward saves of these."""
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

    def separate_gradients(self, behind: Gradient, names: Sequence[str]) -> tuple[Gradient, dict[str, Input]]:
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
            tensor = self.op.input(name)
            found[name] = part_of_gradient(tensor, value.name, tensor.type.shape, result.vanishes)
        op = replace(op, results=tuple(results.values()))
        return replace(behind, wrt=tuple(results), op=op), found

    def behind(self, means: tuple[Mean, ...]) -> tuple[Gradient, tuple[Mean, ...]]:
        """The gradient by means, delta among its results, and by other inputs; and means, as they are called there."""
        after = self.after(means)
        read = read_by(after)
        tensors = tuple(mean.tensor.name for mean in means)
        lse = (self.saved,) if self.saved in read and changes_smoothly(after, self.saved) else ()
        beside = tuple(name for name in self.grad.wrt if name in read)
        given = {one.output.name: load(self.seeds[one.output.name].name, one.node.axes) for one in after.results}
        found = derive(after, Grad((*tensors, *lse, *beside)), given, saves=False)
        found = self.without_lost(found, means)
        results = dict(zip(found.wrt, found.op.results, strict=True))
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
            passed_on = (self.delta_behind(means, {tensor: results[tensor].node for tensor in tensors}, less),)
        op = replace(
            found.op,
            name=self.outgoing.name,
            inputs=by_name(*found.op.inputs, *(mean.tensor for mean in means), *shift),
            values=(*found.op.values, *passed_on),
            results=(
                *(results[name] for name in tensors), *map(computed_result, passed_on), *(results[name] for name in
                beside) ),
        )  # fmt: skip
        wrt = (*tensors, *(value.name for value in passed_on), *beside)
        made = self.outgoing.made(self.op)
        return replace(found, forward=self.op, op=op, wrt=wrt, seeds=self.outgoing.pairs, saved=(), made=made), means

    def delta_behind(self, means: tuple[Mean, ...], computed: Mapping[str, Node], less: Node | None) -> Value:
        """The delta of outgoing gradients, and of those that are computed of means."""
        averaged = [mean for mean in means if not mean.is_sum]
        by: dict[Mean, Node] = {mean: mean.seed for mean in averaged if mean.tensor.name not in computed}
        by |= {m: _as_stored(computed[m.tensor.name], m) for m in averaged if m.tensor.name in computed}
        return self.delta_value(by, less)

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

    def is_unchanged(self, behind: Gradient, name: str) -> bool:
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
    pairs = [(name, r) for name, r in zip(gradient.wrt, gradient.op.results, strict=True) if name in names]
    results = tuple(result for _, result in pairs)
    op = restricted(gradient.op, results, f"_{results[0].output.name}")
    return replace(gradient, wrt=tuple(name for name, _ in pairs), op=op)


def _as_stored(gradient: Node, mean: Mean) -> Node:
    """The gradient by a mean as other steps read it, in the dtype of the mean.

    So delta is of the values that dp is made of, and both are equal where there is but one position.
    """
    if mean.matrix is None or isinstance(gradient, Load):
        return gradient
    return Cast(gradient, mean.load.dtype, gradient.axes)
