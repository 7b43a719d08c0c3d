"""The steps of an operator -> the bytes, operations and least time of each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..families.contraction.operands import operands_of
from ..families.family import Step
from ..families.stream import multiplied_as, promoted
from ..lang.ir import Dtype, Load, Op, Reduce, Ref, Result, Value
from ..passes.contractions import is_product
from ..passes.structure import computed, gathered
from ..plan.backward import Backward
from ..planner.cost import reducing_rows
from ..spec.types import Input
from .devices import LAUNCH, Device
from .sizes import dtypes_of, itemsize, resolved


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that a step reads or writes, and the number of bytes moved.

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
    """A step, the function that computes it, its math, and its costs.

    `recomputes` are values that an earlier step has computed, too, and that this one does not read. `kernels` are the
    kernels that its function chooses from, each with its purpose. `flops` count matmuls; `operations` count other math
    if that takes longer than memory does, else they are 0. `seconds` are at the roofline, and at least a launch.
    """

    step: Step
    number: int
    family: str
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    recomputes: tuple[str, ...]
    flops: int
    operations: int
    seconds: float
    function: str = ""
    math: tuple[str, ...] = ()
    kernels: tuple[tuple[str, str], ...] = ()

    @property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in (*self.reads, *self.writes))


@dataclass(frozen=True, slots=True)
class Product:
    """A matmul: its value, the dtype in which it multiplies, and the leaves `of` that promote to this dtype."""

    value: Value
    of: tuple[str, ...]
    dtype: str
    flops: int


class Counted:
    """Counts the costs of steps in their order, and records the tensors that earlier steps have stored."""

    def __init__(self, op: Op, lengths: dict[str, int], device: Device) -> None:
        self.lengths, self.device = lengths, device
        self.dtypes = dtypes_of(op)
        self.sources: dict[str, int] = {}
        self.computed: set[str] = set()
        self.count = 0

    def differentiate(self, backward: Backward) -> None:
        """Record the dtypes of arguments of the backward that the forward does not save: seeds, converted tensors."""
        for result, seed in backward.gradient.seeds:
            self.dtypes[seed] = self.dtypes[result]
        for name, (_, dtype) in backward.plan.converted.items():
            self.dtypes[name] = resolved(dtype, self.dtypes)

    def steps(self, step: Step, saved: frozenset[str] = frozenset()) -> list[StepCost]:
        """The cost of a step, or of each of its inner steps; `saved` are the results that the forward saves."""
        inner = step.family.steps(step.program)
        if inner:
            return [cost for one in inner for cost in self.steps(one, saved)]
        self.count += 1
        op = step.op
        self.lengths |= {one.axis: -(-self.elements(one.over) // one.width) for one in op.strips}
        reads = tuple(self.read(tensor, op) for tensor in op.inputs)
        writes = tuple(self.written(result, saved) for result in op.results)
        given = {tensor.name for tensor in op.inputs}
        names = [value.name for value in op.values if not isinstance(value.node, Ref | Load)]
        recomputes = tuple(name for name in names if name in self.computed and name not in given)
        self.computed |= set(names)
        self.sources |= {tensor.name: self.count for tensor in writes}
        title = step.family.title.removeprefix("a ")
        costs = self.costs(step, sum(tensor.bytes for tensor in (*reads, *writes)))
        return [StepCost(step, self.count, title, reads, writes, recomputes, *costs)]

    def costs(self, step: Step, moved: int) -> tuple[int, int, float]:
        """The operations of matmuls, the operations of other math if memory does not take longer, and seconds."""
        products = self.products(step)
        flops = sum(one.flops for one in products)
        multiplying = sum(one.flops / self.device.peak(one.dtype, step.op.precision) for one in products)
        operations = 0 if flops else sum(map(self.elements, computed(step.op, reducing_rows(step))))
        computing = 2 * operations / self.device.flops["float32"]  # Peak rates count an FMA twice.
        moving = moved / self.device.bandwidth
        seconds = max(LAUNCH, moving, multiplying, computing)
        return flops, operations if computing > moving else 0, seconds

    def read(self, tensor: Input, op: Op) -> Tensor:
        """An input as a tensor that is read; a `take` reads at most one element per position."""
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

    def products(self, step: Step) -> list[Product]:
        op = step.op
        nodes = ((value, value.node) for value in op.values)
        sums = ((value, node) for value, node in nodes if isinstance(node, Reduce) and is_product(op, node))
        found = []
        for value, node in sums:
            leaves = self.multiplied(step, node)
            dtype = resolved(leaves, self.dtypes)
            found.append(Product(value, leaves.of, dtype, 2 * self.elements((*node.axes, *node.over))))
        return found

    def multiplied(self, step: Step, node: Reduce) -> Dtype:
        """The dtype in which kernels multiply the two operands of a matmul."""
        op = step.op
        if stream := step.family.stream(step.program):
            return Dtype("float", promoted(op, stream) or (multiplied_as(op, stream) or stream.matrices[0].name,))
        contraction = step.family.matmuls(step.program)
        if contraction is None:
            return node.arg.dtype
        operands = operands_of(op, contraction)
        if operands.converts and not operands.multiplies_bytes:
            return operands.dot
        return Dtype("any", tuple(one.name for one in operands.matrices))

    def elements(self, axes: tuple[str, ...]) -> int:
        return math.prod(self.lengths[axis] for axis in dict.fromkeys(axes))
