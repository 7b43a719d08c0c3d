"""Spec -> what its steps cost, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..emit.registration import autocast_rule
from ..families.family import Step
from ..families.several.cost import reducing_rows
from ..families.stream import StoredScores
from ..lang.ir import Load, Op, Reduce, Ref, Result
from ..operator.autograd import autograd_module
from ..operator.compile import backward_of, forward_module, forward_of, stored_in
from ..passes.contractions import is_product
from ..passes.structure import computed, gathered
from ..plan.backward import Backward
from ..spec.types import COMPUTED, Input, Spec
from .devices import Device
from .sizes import dtypes_of, itemsize, lengths_of, resolved


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that a step reads or writes, and how many bytes that moves.

    `source` is the step that stores it, 0 for an argument; `uses` are the steps that read it.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str
    bytes: int
    source: int = 0
    uses: tuple[int, ...] = ()
    saved: bool = False  # for the backward


@dataclass(frozen=True, slots=True)
class StepCost:
    """A step: the function that computes it, its math, and what it costs.

    `recomputes` are lines that an earlier step has computed and not stored. `kernels` are those that its function
    chooses from, each with what it is for. `flops` are those of matmuls, and `operations` those of other math where
    that takes longer than memory does, 0 elsewhere.
    """

    number: int
    function: str
    family: str
    math: tuple[str, ...]
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    recomputes: tuple[str, ...]
    kernels: tuple[tuple[str, str], ...]
    flops: int
    operations: int
    seconds: float

    @property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in (*self.reads, *self.writes))


@dataclass(frozen=True, slots=True)
class Account:
    """What an operator costs: its steps, numbered from the first of the forward to the last of the backward.

    Where the forward writes the gradient, `in_forward`, the steps of the backward begin with another forward,
    which autograd runs instead. `without_kernel` are gradients that are no more than an expression of the host.
    `stored` are scores of attention that the steps of a pass store, by its name.
    """

    name: str
    summary: str
    device: Device
    lengths: tuple[tuple[str, int], ...]
    forward: tuple[StepCost, ...]
    backward: tuple[StepCost, ...] = ()
    in_forward: bool = False
    without_kernel: tuple[tuple[str, str], ...] = ()
    stored: tuple[tuple[str, StoredScores], ...] = ()

    @property
    def steps(self) -> tuple[StepCost, ...]:
        return (*self.forward, *self.backward)


def account_of(spec: Spec, given: Mapping[str, int], device: Device) -> Account:
    """What a spec costs where axes have given lengths. Raises `Mistakes` for what is wrong with its math."""
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    stored = stored_in(forward, backward)
    counted = _Counted(forward.op, lengths_of(forward.op, given), device)
    autocast = autocast_rule(forward.program, forward.family.autocast)
    if backward is None:
        view = forward_module(forward, spec, autocast).view
        steps = counted.steps(forward, {**_by_function(view["steps"]), _function(forward): view}, frozenset())
        return replace(_account(spec, counted, steps, ()), stored=stored)
    view = autograd_module(backward, spec, autocast)[0].view
    functions = _by_function((*view["steps"], *view["gradient"]["parts"]))
    first = backward.forward
    saved = frozenset(result.output.name for result in first.op.results if result.saved)
    own = f"_{first.op.name}_forward"
    steps = counted.steps(first, {**functions, _function(first): view | {"function": own}}, saved)
    in_forward = backward.write != "backward"
    counted.differentiate(backward)
    if in_forward:
        counted.computed.clear()
    after = [cost for step in backward.plan.steps for cost in counted.steps(step, functions, frozenset())]
    made = {tensor.name for cost in after for tensor in cost.writes}
    spelled = () if in_forward else backward.plan.spelled.items()
    without = tuple((f"d{name}", text) for name, text in spelled if text not in made)
    account = _account(spec, counted, steps, after)
    return replace(account, in_forward=in_forward, without_kernel=without, stored=stored)


def _account(spec: Spec, counted: _Counted, forward: list[StepCost], backward: Iterable[StepCost]) -> Account:
    every = (*forward, *backward)
    uses: dict[tuple[str, int], list[int]] = {}
    for cost in every:
        for tensor in cost.reads:
            uses.setdefault((tensor.name, tensor.source), []).append(cost.number)

    def told(cost: StepCost) -> StepCost:
        writes = (replace(one, uses=tuple(uses.get((one.name, one.source), ()))) for one in cost.writes)
        return replace(cost, writes=tuple(writes))

    costs = tuple(map(told, every))
    return Account(
        spec.name,
        " ".join(spec.summary.split()),
        counted.device,
        tuple(counted.lengths.items()),
        costs[: len(forward)],
        costs[len(forward) :],
    )


def _by_function(views: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The functions of steps, and of those that they are made of, by name."""
    found: dict[str, Mapping[str, Any]] = {}
    for view in views:
        found |= {view["function"]: view, **_by_function(view["steps"])}
    return found


def _function(step: Step) -> str:
    return f"_{step.op.name}"


class _Counted:
    """Counts steps one after another, and knows what those before have stored."""

    def __init__(self, op: Op, lengths: dict[str, int], device: Device) -> None:
        self.lengths, self.device = lengths, device
        self.dtypes = dtypes_of(op)
        self.sources: dict[str, int] = {}
        self.computed: set[str] = set()
        self.count = 0

    def differentiate(self, backward: Backward) -> None:
        """The dtypes of what the steps of the backward are given, besides what the forward saves."""
        for result, seed in backward.gradient.seeds:
            self.dtypes[seed] = self.dtypes[result]
        for name, (_, dtype) in backward.plan.converted.items():
            self.dtypes[name] = resolved(dtype, self.dtypes)

    def steps(self, step: Step, functions: Mapping[str, Any], saved: frozenset[str]) -> list[StepCost]:
        """The cost of a step, or of those that it is made of."""
        inner = step.family.steps(step.program)
        if inner:
            return [cost for one in inner for cost in self.steps(one, functions, saved)]
        self.count += 1
        view = functions[_function(step)]
        before = step.family.before(step.program)
        kernels = view["kernels"] + (functions[_function(before)]["kernels"] if before is not None else ())
        op = step.op
        self.lengths |= {one.axis: -(-self.elements(one.over) // one.width) for one in op.strips}
        reads = tuple(self.read(tensor, op) for tensor in op.inputs)
        writes = tuple(self.written(result, saved) for result in op.results)
        flops, peak_seconds = self.matmuls(op)
        moved = sum(tensor.bytes for tensor in (*reads, *writes))
        seconds = max(moved / self.device.bandwidth, peak_seconds)
        operations = 0 if flops else sum(map(self.elements, computed(op, reducing_rows(step))))  # One each, at least.
        computing = 2 * operations / self.device.flops["float32"]  # An FMA counts twice there.
        seconds, operations = (computing, operations) if computing > seconds else (seconds, 0)
        given = {tensor.name for tensor in op.inputs}
        names = [value.name for value in op.values if not isinstance(value.node, Ref | Load)]
        recomputes = tuple(name for name in names if name in self.computed and name not in given)
        self.computed |= set(names)
        self.sources |= {tensor.name: self.count for tensor in writes}
        name, math_lines = view.get("function", op.name), tuple(view["formula"])
        title = step.family.title.removeprefix("a ")
        costs = (flops, operations, seconds)
        return [StepCost(self.count, name, title, math_lines, reads, writes, recomputes, kernels, *costs)]

    def read(self, tensor: Input, op: Op) -> Tensor:
        """An input, of which `take` reads no more than it has positions for."""
        dtype = self.dtypes.get(tensor.name) or tensor.type.dtypes[0]
        elements = self.elements(tensor.type.axes)
        if loads := gathered(op).get(tensor.name):
            elements = min(elements, sum(self.elements(load.axes) for load in loads))
        bytes_ = elements * itemsize(dtype)
        return Tensor(tensor.name, tensor.type.axes, dtype, bytes_, self.sources.get(tensor.name, 0))

    def written(self, result: Result, saved: frozenset[str]) -> Tensor:
        name = result.output.name
        dtype = self.dtypes[name] = resolved(result.dtype, self.dtypes)
        bytes_ = self.elements(result.axes) * itemsize(dtype)
        return Tensor(name, result.axes, dtype, bytes_, self.count, saved=name in saved)

    def matmuls(self, op: Op) -> tuple[int, float]:
        """The operations of an operator's matmuls, and how long they take at least."""
        flops, seconds = 0, 0.0
        # Numbers of rows are rounded to what is multiplied with them.
        rows = {tensor.name for tensor in op.inputs if tensor.type.dtypes == COMPUTED}
        given = {tensor.name for tensor in op.inputs} - rows
        for value in op.values:
            node = value.node
            if isinstance(node, Reduce) and is_product(op, node):
                own = 2 * self.elements((*node.axes, *node.over))
                flops += own
                leaves = tuple(leaf for leaf in node.arg.dtype.of if leaf in given) or node.arg.dtype.of
                dtype = resolved(replace(node.arg.dtype, of=leaves), self.dtypes)
                seconds += own / self.device.peak(dtype, op.precision)
        return flops, seconds

    def elements(self, axes: tuple[str, ...]) -> int:
        return math.prod(self.lengths[axis] for axis in dict.fromkeys(axes))
