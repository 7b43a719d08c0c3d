"""The gradient of what is streamed: scores are recomputed, and by lse, their logsumexp, the probabilities of a softmax.

With p = exp(s - lse), o = sum(p * v, N) and the gradient do of o, the gradient of the scores is ds = p * (dp - delta),
where dp = sum(do * v, E), and delta = sum(do * o, E) is one number for each row. The rest is the gradient of the math
of the scores, an operator of its own to which ds is given. One kernel takes the gradients that lie along the rows, and
tells delta to another, for those that lie along what was streamed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..autodiff.gradient import Gradient, derive
from ..families.family import Families, Step
from ..families.registry import single_step_of
from ..families.steps import restricted, unknown
from ..families.stream import Stream
from ..families.streaming.streams import logged
from ..lang.ir import (
    Call,
    Dtype,
    Load,
    Node,
    Op,
    Reduce,
    Ref,
    Result,
    Value,
    children,
    numbered,
    rebuild,
    walk,
)
from ..lang.unparse import spelled
from ..lowering.tile import needed
from ..passes.contractions import applied
from ..passes.exponentials import resolve
from ..spec.types import COMPUTED, FLOATS, Grad, Input, Output, TensorType, plain_shape
from .backward import Backward, Plan, Planner


def plan_streaming_backward(op: Op, stream: Stream, grad: Grad, families: Families) -> Backward | None:
    """None where the results are no weighted means by a softmax, or something else than lse is to be saved."""
    if not stream.largest and not grad.save:
        gradient = _in_types_of_results(derive(op, grad, saves=False))
        planner = _StreamPlanner(gradient, stream, None, families)
        forward = planner.forward()
        return Backward(gradient, forward, Plan(*planner.plan()))
    softmax = _softmax_of(op, stream)
    if softmax is None or grad.save:
        return None
    return _Planner(op, stream, grad, families, softmax).backward()


@dataclass(frozen=True, slots=True)
class _Softmax:
    """Results that are means of matrices weighted by a softmax, each with its matrix, and results that are its lse."""

    score: Ref
    total: str
    means: tuple[tuple[Result, Load], ...]
    lses: tuple[Result, ...]


def _softmax_of(op: Op, stream: Stream) -> _Softmax | None:
    largest = op.value(stream.largest).node if stream.largest else None
    if not isinstance(largest, Reduce) or not isinstance(largest.arg, Ref) or stream.turns:
        return None
    score = largest.arg
    powers = [resolve(op, one.factor) for one in stream.sums]
    totals = [one.name for one in stream.sums if one.matrix is None]
    if any(power != powers[0] for power in powers) or len(totals) != 1 or not _is_power(op, powers[0], score, stream):
        return None
    matrices = {one.name: one.matrix for one in stream.sums}
    means: list[tuple[Result, Load]] = []
    lses: list[Result] = []
    for result in op.results:
        node = resolve(op, result.node)
        match node:
            case Call(function="div", args=(Ref(name=name), by)) if _name(op, by) == totals[0] and matrices.get(name):
                matrix = matrices[name]
                assert matrix is not None
                means.append((result, matrix))
            case _ if _is_lse(op, node, totals[0], stream):
                lses.append(result)
            case _:
                return None
    return _Softmax(score, totals[0], tuple(means), tuple(lses)) if means else None


def _name(op: Op, node: Node) -> str:
    """The value that a reference is to, through others."""
    if not isinstance(node, Ref):
        return ""
    return _name(op, op.value(node.name).node) or node.name


def _is_power(op: Op, node: Node, score: Ref, stream: Stream) -> bool:
    match node:
        case Call(function="exp", args=(Call(function="sub", args=(x, Ref(name=name))),)):
            return x == score and name == stream.largest
    return False


def _is_lse(op: Op, node: Node, total: str, stream: Stream) -> bool:
    found = logged(op, node, stream.largest)
    return found is not None and found.name == total


class _Planner:
    def __init__(self, op: Op, stream: Stream, grad: Grad, families: Families, softmax: _Softmax) -> None:
        self.stream, self.grad, self.families, self.softmax = stream, grad, families, softmax
        self.taken = op.names
        self.op, self.lse = self.with_lse(op)
        self.rows = tuple(axis for axis in op.axes if axis in self.op.value(self.lse).node.axes)
        results = [*(result for result, _ in softmax.means), *softmax.lses]
        self.seeds = {result.output.name: self.fresh(f"d{result.output.name}") for result in results}
        is_result = any(result.output.name == self.lse for result in op.results)
        self.saved = self.fresh(f"{self.lse}_exact") if is_result else self.lse

    def fresh(self, name: str) -> str:
        name = numbered(name, self.taken)
        self.taken.add(name)
        return name

    def with_lse(self, op: Op) -> tuple[Op, str]:
        """The operator with lse among its values, and its name."""
        total = op.value(self.softmax.total).node
        for value in op.values:
            if value.node.axes == total.axes and _is_lse(op, value.node, self.softmax.total, self.stream):
                return op, value.name
        name = self.fresh("lse")
        log = Call("log", (Ref(self.softmax.total, total.axes, total.dtype),), total.axes, total.dtype)
        largest = Ref(self.stream.largest, total.axes, total.dtype)
        node = Call("add", (largest, log), total.axes, total.dtype)
        return replace(op, values=(*op.values, Value(name, node, ""))), name

    def backward(self) -> Backward:
        derived = derive(self.scores(), Grad(self.grad.wrt), self.given(), saves=False).op
        op = self.assembled(derived)
        outputs = tuple(result.output.name for result, _ in self.softmax.means)
        gradient = Gradient(self.op, op, self.grad.wrt, tuple(self.seeds.items()), ((self.saved, self.lse),), outputs)
        planner = _StreamPlanner(gradient, self.stream, self.delta(), self.families)
        forward = planner.forward()
        steps, texts = planner.plan()
        told = {r.output.name for step in steps if _reads(step.op, "delta") for r in step.op.results}
        users = tuple(name for name, text in texts.items() if text.partition(".")[0].partition("[")[0] in told)
        return Backward(gradient, forward, Plan(steps, texts, {"delta": users}))

    # The operator of the scores

    def load(self, name: str, axes: tuple[str, ...]) -> Load:
        return Load(name, axes, Dtype("float", (name,)))

    def seed(self, result: Result) -> Load:
        return self.load(self.seeds[result.output.name], result.node.axes)

    def scores(self) -> Op:
        """The scores and the means, with probabilities that are recomputed and the gradient of the scores."""
        score, streamed = self.softmax.score, self.stream.streamed
        values = needed(self.op.values, [score.name])
        lse, delta = self.load(self.saved, self.rows), self.load("delta", self.rows)
        p = Call("exp", (applied("sub", score, lse),), score.axes, score.dtype)
        values.append(Value("p", p, spelled(p)))
        p_ref = Ref("p", score.axes, score.dtype)
        dp: Node | None = None
        for result, matrix in self.softmax.means:
            (width,) = (axis for axis in matrix.axes if axis not in score.axes)
            product = applied("mul", self.seed(result), matrix)
            axes = tuple(axis for axis in score.axes if axis != width)
            name = self.fresh("dp")
            node = Reduce("sum", product, (width,), axes, product.dtype)
            values.append(Value(name, node, spelled(node)))
            term = Ref(name, axes, product.dtype)
            dp = term if dp is None else applied("add", dp, term)
        assert dp is not None
        ds = applied("mul", p_ref, applied("sub", dp, delta))
        values.append(Value("ds", ds, spelled(ds)))
        results = [Result(Output(score.name), score, score.axes, score.dtype)]
        constant = Call("detach", (p_ref,), p_ref.axes, p_ref.dtype)
        for result, matrix in self.softmax.means:
            product = applied("mul", constant, matrix)
            axes = tuple(axis for axis in product.axes if axis != streamed)
            name = f"{result.output.name}_mean"
            values.append(Value(name, Reduce("sum", product, (streamed,), axes, product.dtype), ""))
            results.append(Result(Output(name), Ref(name, axes, product.dtype), axes, product.dtype))
        return replace(self.op, inputs=self.inputs(), values=tuple(values), results=tuple(results))

    def given(self) -> dict[str, Node]:
        score = self.softmax.score
        found: dict[str, Node] = {score.name: Ref("ds", score.axes, score.dtype)}
        return found | {f"{result.output.name}_mean": self.seed(result) for result, _ in self.softmax.means}

    def inputs(self) -> tuple[Input, ...]:
        seeds = [like(self.op, result, self.seeds[result.output.name]) for result, _ in self.softmax.means]
        rows = [Input(name, TensorType(COMPUTED, plain_shape(self.rows))) for name in (self.saved, "delta")]
        return (*seeds, *self.op.inputs, *rows)

    def assembled(self, derived: Op) -> Op:
        """The gradient, without what told that probabilities are constants."""
        values = tuple(replace(value, node=_plain(value.node)) for value in derived.values)
        values = tuple(replace(value, source=value.source and spelled(value.node)) for value in values)
        return replace(derived, values=values)

    # The numbers of rows

    def delta(self) -> tuple[tuple[Input, ...], Value]:
        """The sums of the rows of do * o, and what they are made of."""
        node: Node | None = None
        inputs: list[Input] = []
        for result, matrix in self.softmax.means:
            name, score = result.output.name, self.softmax.score
            (width,) = (axis for axis in matrix.axes if axis not in score.axes)
            product = applied("mul", self.seed(result), self.load(name, result.node.axes))
            term: Node = Reduce("sum", product, (width,), self.rows, product.dtype)
            node = term if node is None else applied("add", node, term)
            inputs += [like(self.op, result, self.seeds[name]), like(self.op, result, name)]
        for result in self.softmax.lses:
            assert node is not None
            node = applied("sub", node, self.seed(result))
            inputs.append(like(self.op, result, self.seeds[result.output.name]))
        assert node is not None
        return tuple(inputs), Value("delta", node, spelled(node))


class _StreamPlanner(Planner):
    """Plans the gradients by what lies along the rows together, and those by what is streamed: each needs one pass.

    The first that reads delta, if it is of rows, tells it to others; else it has a step of its own.
    """

    def __init__(
        self, gradient: Gradient, stream: Stream, delta: tuple[tuple[Input, ...], Value] | None, families: Families
    ) -> None:
        super().__init__(gradient, (), families)
        self.stream, self.delta = stream, delta

    def split(self, results: tuple[Result, ...]) -> list[Step]:
        along = (self.stream.rows, self.stream.streamed)
        groups = [tuple(r for r in results if set(r.axes) & set(along) == {axis}) for axis in along]
        steps: list[Step] = []
        for group, of_rows in zip(groups, (True, False), strict=True):
            step = self.step(group, of_rows) if group else None
            steps += [step] if step is not None else []
        taken = {result.output.name for step in steps for result in step.op.results}
        left = tuple(result for result in results if result.output.name not in taken)
        if self.delta is not None and "delta" not in taken:
            steps.insert(0, self.before(self.delta))
        return [*steps, *super().split(left)]

    def step(self, results: tuple[Result, ...], of_rows: bool) -> Step | None:
        """The step for gradients that lie along the same axis; with those of rows, for delta."""
        op, every = self.op, results
        if of_rows and self.delta is not None and self.reads_delta(results):
            op, every = self.with_delta(*self.delta), (*results, self.told_result(self.delta[1]))
        suffix = "_".join(("", *(result.output.name for result in results)))
        return self.found(single_step_of, restricted(op, every, suffix))

    def told_result(self, value: Value) -> Result:
        axes = value.node.axes
        node = Ref("delta", axes, value.node.dtype)
        return Result(Output("delta", "auto", plain_shape(axes)), node, axes, Dtype("float", (), "compute"))

    def reads_delta(self, results: tuple[Result, ...]) -> bool:
        read = needed(self.op.values, [result.output.name for result in results])
        return any(isinstance(part, Load) and part.name == "delta" for one in read for part in walk(one.node))

    def with_delta(self, inputs: tuple[Input, ...], delta: Value) -> Op:
        """The operator with delta among its values."""

        def told(node: Node) -> Node:
            if isinstance(node, Load) and node.name == "delta":
                return Ref("delta", node.axes, node.dtype)
            return rebuild(node, tuple(map(told, children(node))))

        values = tuple(replace(value, node=told(value.node)) for value in self.op.values)
        own = {tensor.name for tensor in inputs}
        others = (tensor for tensor in self.op.inputs if tensor.name not in {*own, "delta"})
        return replace(self.op, inputs=(*inputs, *others), values=(delta, *values))

    def before(self, delta: tuple[tuple[Input, ...], Value]) -> Step:
        """The step that computes delta alone."""
        inputs, value = delta
        op = replace(self.op, inputs=inputs, params=(), values=(value,), results=(self.told_result(value),))
        return single_step_of(replace(op, name=f"{self.op.name}_delta"), self.families)

    def told(self, step: Step, users: dict[str, list[str]]) -> Step:
        """What is told to another step is computed wherever that step is."""
        if all(result.output.name != "delta" for result in step.op.results):
            return super().told(step, users)
        shapes, dtypes = unknown(self.gradient, step.op, step.family.leaves(step.program))
        return replace(step, shapes=shapes, dtypes=dtypes, before=step.family.before(step.program))


def _in_types_of_results(gradient: Gradient) -> Gradient:
    """The gradient, of which gradients of results have the types of inputs that results have."""
    results = {seed: result for result, seed in gradient.seeds}

    def typed(tensor: Input) -> Input:
        if tensor.name not in results:
            return tensor
        result = next(r for r in gradient.forward.results if r.output.name == results[tensor.name])
        return like(gradient.forward, result, tensor.name)

    return replace(gradient, op=replace(gradient.op, inputs=tuple(map(typed, gradient.op.inputs))))


def like(op: Op, result: Result, name: str) -> Input:
    """An input of the shape of a result, and of its type if that is an input's."""
    types = [tensor.type for tensor in op.inputs if result.dtype.of == (tensor.name,)]
    shape = op.grouping(result)
    return Input(name, replace(types[0], shape=shape) if types else TensorType(FLOATS, shape))


def _reads(op: Op, name: str) -> bool:
    return any(tensor.name == name for tensor in op.inputs)


def _plain(node: Node) -> Node:
    if isinstance(node, Call) and node.function == "detach":
        return _plain(node.args[0])
    return rebuild(node, tuple(map(_plain, children(node))))
