"""The gradient of a forward that streams what steps before have computed: that of the stream, and then that of these.

So heads that are normed, rotated or projected in the same spec are streamed forward and backward. The forward saves
what it computed for the stream, of which the gradient of the stream is made; the rest is recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..autodiff.gradient import derive
from ..diagnostics.report import Mistakes
from ..families.family import Families, Step
from ..families.steps import with_dtypes
from ..families.stream import NotStreamed, Stream
from ..lang.ir import Op, Value, fresh
from ..lowering.tile import needed
from ..passes.structure import reads
from ..spec.types import FLOATS, Grad, Input, TensorType, plain_shape
from .added import added
from .backward import Backward, Plan, Planner
from .means_of_rows import load
from .streaming_gradient import plan_streaming_backward
from .streaming_parts import Streamed, streamed_in, with_lines
from .streaming_steps import own_result
from .weighted_means import renamed_values


def plan_streams_backward(
    forward: Step, streams: list[tuple[Step, Stream]], grad: Grad, families: Families
) -> Backward:
    """Raises `NotStreamed` where the gradient stores scores."""
    found = streamed_in(forward, streams)
    if not found.before:
        return plan_streaming_backward(found.op, found.stream, grad, families)
    try:
        return _Before(forward.op, found, grad, families).backward()
    except Mistakes as refused:
        raise NotStreamed(refused.mistakes[0].message) from None


class _Before:
    """Plans the gradient by what is streamed, and from there on the gradient by what that is computed from."""

    def __init__(self, op: Op, found: Streamed, grad: Grad, families: Families) -> None:
        self.op, self.found, self.grad, self.families = op, found, grad, families
        self.inputs = {tensor.name: tensor for tensor, _ in found.before}
        # Inputs of the whole that have their dtypes.
        self.alike = {tensor.name: dtype.of[0] for tensor, dtype in found.before if len(dtype.of) == 1}

    def backward(self) -> Backward:
        streamed = tuple(name for name in self.inputs if self.is_differentiated(name))
        wrt = (*streamed, *self.read_of_grad(self.found.op.values))
        inner = plan_streaming_backward(self.found.op, self.found.stream, replace(self.grad, wrt=wrt), self.families)
        whole = self.joined(inner.gradient.forward)
        outer, texts = self.before(inner, streamed, whole) if streamed else ((), {})
        steps = (*inner.plan.steps, *outer)
        texts = {name: {**inner.plan.spelled, **texts}[name] for name in self.grad.wrt}
        made = {result.output.name for step in steps for result in step.op.results}
        known = {tensor.name for tensor in inner.gradient.op.inputs} | made
        others = (tensor for step in outer for tensor in step.op.inputs if tensor.name not in known)
        inputs = tuple(dict.fromkeys((*inner.gradient.op.inputs, *others)))
        read = {tensor.name for step in steps for tensor in step.op.inputs}
        saved = (*inner.gradient.saved, *((name, name) for name in self.inputs if name in read))
        op = replace(inner.gradient.op, inputs=inputs)
        gradient = replace(inner.gradient, forward=whole, wrt=self.grad.wrt, saved=saved, op=op)
        planner = Planner(gradient, (), self.families)
        forward = with_dtypes(inner.forward.op, self.alike)
        dtypes = {result.output.name: result.dtype for result in forward.results if result.saved}
        dtypes |= {tensor.name: dtype for tensor, dtype in self.found.before}
        return Backward(gradient, planner.step_of(planner.saving(dtypes)), Plan(steps, texts), stored=inner.stored)

    def is_differentiated(self, name: str) -> bool:
        """Whether what is computed before is a float, made of inputs by which there are gradients."""
        is_float = bool(set(self.inputs[name].type.dtypes) & {*FLOATS})
        return is_float and bool(self.read_of_grad(needed(self.op.values, [name])))

    def read_of_grad(self, values: Iterable[Value]) -> tuple[str, ...]:
        """The inputs that some values read and by which there are gradients."""
        read = {name for value in values for name in reads(value.node)}
        return tuple(name for name in self.grad.wrt if name in read)

    def joined(self, after: Op) -> Op:
        """The operator of what is computed before, and of what the gradient of the stream goes by."""
        before = replace(self.op, values=tuple(needed(self.op.values, [*self.inputs])))
        taken = {*after.names, *self.op.names}
        own = {value.name for value in after.values}
        names = {value.name: fresh(value.name, taken) for value in before.values if value.name in own}
        after_before = (with_lines(value, self.inputs) for value in after.values)
        values = (*renamed_values(before, names).values, *after_before)
        return with_dtypes(replace(after, inputs=self.op.inputs, values=values), self.alike)

    def before(self, inner: Backward, streamed: tuple[str, ...], whole: Op) -> tuple[tuple[Step, ...], dict[str, str]]:
        """The steps that go on from the gradients by what is streamed, and the gradients as the host spells them."""
        values = tuple(needed(self.op.values, streamed))
        wrt = self.read_of_grad(values)
        found = self.gradients_of(inner)
        texts = {name: inner.plan.spelled[name] for name in (*streamed, *wrt) if name in inner.plan.spelled}
        if odd := [name for name, text in texts.items() if text not in found]:
            raise NotStreamed(f"the gradient by {odd[0]} has other axes")
        seeds = {name: found[text] for name, text in texts.items()}
        own = {tensor.name for tensor in self.op.inputs}
        head = replace(
            self.op,
            inputs=(*self.op.inputs, *(tensor for tensor in found.values() if tensor.name not in own)),
            values=values,
            results=tuple(own_result(self.op.value(name)) for name in streamed),
        )
        gradient = derive(
            head, Grad(wrt), {name: load(seeds[name].name, seeds[name].type.axes) for name in streamed}, saves=False
        )
        gradient = added(gradient, {name: seeds[name] for name in wrt if name in seeds})
        name = fresh(gradient.op.name, {step.op.name for step in inner.plan.steps})
        op = replace(gradient.op, name=name)
        gradient = replace(gradient, op=op, forward=whole, seeds=inner.gradient.seeds)
        return Planner(gradient, (), self.families).plan()

    def gradients_of(self, inner: Backward) -> dict[str, Input]:
        """What steps of the gradient of the stream compute, and the outgoing gradients, as steps after them read it."""
        found = {tensor.name: tensor for tensor in inner.gradient.op.inputs}
        for result in (result for step in inner.plan.steps for result in step.op.results):
            shape = result.output.shape or plain_shape(result.axes)
            found[result.output.name] = Input(result.output.name, TensorType(FLOATS, shape))
        return found
