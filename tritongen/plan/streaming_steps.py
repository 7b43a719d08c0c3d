"""The steps of a gradient of what streams: those along the rows together, and those along what is streamed."""

from __future__ import annotations

from dataclasses import replace

from ..autodiff.gradient import Gradient
from ..families.family import Families, Step
from ..families.registry import single_step_of
from ..families.steps import restricted, unknown
from ..families.stream import Stream
from ..lang.ir import Dtype, Load, Node, Op, Ref, Result, Value, children, rebuild, walk
from ..lowering.tile import needed
from ..spec.types import Input, Output, plain_shape
from .backward import Planner

COMPUTE = Dtype("float", (), "compute")


class StreamPlanner(Planner):
    """Plans the gradients by what lies along the rows together, and those by what is streamed: each needs one pass.

    The first that reads delta, if it is of rows, tells it to others; else it has a step of its own.
    """

    def __init__(
        self,
        gradient: Gradient,
        stream: Stream,
        families: Families,
        delta: tuple[tuple[Input, ...], Value] | None = None,
    ) -> None:
        super().__init__(gradient, (), families)
        self.stream, self.delta = stream, delta
        self.told_name = delta[1].name if delta is not None else ""

    def split(self, results: tuple[Result, ...]) -> list[Step]:
        along = (self.stream.rows, self.stream.streamed)
        groups = [tuple(r for r in results if set(r.axes) & set(along) == {axis}) for axis in along]
        steps: list[Step] = []
        for group, of_rows in zip(groups, (True, False), strict=True):
            step = self.step(group, of_rows) if group else None
            steps += [step] if step is not None else []
        taken = {result.output.name for step in steps for result in step.op.results}
        left = tuple(result for result in results if result.output.name not in taken)
        if self.delta is not None and self.told_name not in taken:
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
        node = Ref(value.name, axes, value.node.dtype)
        return Result(Output(value.name, "auto", plain_shape(axes)), node, axes, COMPUTE)

    def reads_delta(self, results: tuple[Result, ...]) -> bool:
        read = needed(self.op.values, [result.output.name for result in results])
        return any(isinstance(part, Load) and part.name == self.told_name for one in read for part in walk(one.node))

    def with_delta(self, inputs: tuple[Input, ...], delta: Value) -> Op:
        """The operator with delta among its values."""

        def told(node: Node) -> Node:
            if isinstance(node, Load) and node.name == delta.name:
                return Ref(delta.name, node.axes, node.dtype)
            return rebuild(node, tuple(map(told, children(node))))

        values = tuple(replace(value, node=told(value.node)) for value in self.op.values)
        own = {tensor.name for tensor in inputs}
        others = (tensor for tensor in self.op.inputs if tensor.name not in {*own, delta.name})
        return replace(self.op, inputs=(*inputs, *others), values=(delta, *values))

    def before(self, delta: tuple[tuple[Input, ...], Value]) -> Step:
        """The step that computes delta alone."""
        inputs, value = delta
        op = replace(self.op, inputs=inputs, params=(), values=(value,), results=(self.told_result(value),))
        return single_step_of(replace(op, name=f"{self.op.name}_delta"), self.families)

    def told(self, step: Step, users: dict[str, list[str]]) -> Step:
        """What is told to another step is computed wherever that step is."""
        if all(result.output.name != self.told_name for result in step.op.results):
            return super().told(step, users)
        shapes, dtypes = unknown(self.gradient, step.op, step.family.leaves(step.program))
        return replace(step, shapes=shapes, dtypes=dtypes, before=step.family.before(step.program))
