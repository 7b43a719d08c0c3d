"""The family of multi-step plans: operators that no single kernel computes, as steps with stored intermediates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...emit.host_checks import tuple_text
from ...emit.module import Around, Module
from ...lang.ir import Op, Reduce, Scan
from ...lowering.tile import needed
from ...passes.contractions import is_product
from ...passes.exponentials import VALUELESS, is_hidden
from ...passes.rounded_weights import weights_before_casts
from ...passes.structure import reads, references
from ...planner.cut import cut
from ...planner.subgraphs import TakeAlone
from ...spec.types import BATCH, Input, Spec
from ...testing.benchmarks import Sizes
from ...testing.samples import Shapes
from ...testing.tests import SHIFTS, FamilyTests, compares_values, declared_together
from ..contraction.family import CONTRACTION, narrowest
from ..contraction.program import ContractionProgram
from ..family import Family, MultiStepProgram, Step
from ..matmul_sizes import MatmulStepsSizes
from ..rowwise.family import ROWWISE, splits
from ..streaming.program import StreamingProgram
from ..streaming.shapes import StreamShapes
from ..streaming.stored import stored_scores
from ..tensor_cores import allowed_errors
from .host import MultiStepModule


@dataclass(frozen=True)
class StepShapes(Shapes):
    """Test shapes of a multi-step plan."""

    def is_valueless(self, axis: str) -> bool:
        """Whether a reduction over this axis has no value if the axis is empty, such as a maximum."""
        op = self.program.op
        return any(
            isinstance(node := value.node, Reduce)
            and node.kind in VALUELESS
            and axis in node.over
            and not is_hidden(op, value)
            for value in op.values
        )


@dataclass(frozen=True)
class MatmulStepShapes(StepShapes):
    """Test shapes of a plan with matmuls."""

    program: MultiStepProgram

    def tiled(self) -> list[tuple[int, ...]]:
        """Shapes with several small tiles of each matmul, and tails. One axis of each side is long and all others are
        short, since five long axes of a convolution would give thousands of tiles.
        """
        matmuls = [one.program.contraction for one in self.program.steps if isinstance(one.program, ContractionProgram)]
        sides = [side for one in matmuls for side in (one.rows, one.cols, one.inner)]
        long = {axis for side in sides for axis in self.drawn(side)[:1]}
        return [self.shortened(long, 40, 96, 72), self.shortened(long, 45, 69, 51)]

    def drawn(self, side: tuple[str, ...]) -> list[str]:
        """The axes of a side without the batch, and those with which its computed axes grow, if shapes draw them."""
        computed = (one for one in self.fit.slopes if one.axis in side)
        growing = (axis for formula in computed for axis in self.fit.growing(formula))
        found = dict.fromkeys((*(axis for axis in side if axis != BATCH), *growing))
        return [axis for axis in found if axis in self.axes]

    def shortened(self, long: set[str], *lengths: int) -> tuple[int, ...]:
        """A shape in which only the axes in `long` are long."""
        batch, named = self.unfitted((2,), *lengths)
        fitted = self.fitting({axis: length if axis in long else min(length, 3) for axis, length in named.items()})
        return (*batch, *fitted.values())


@dataclass(frozen=True)
class StreamStepShapes(StepShapes, StreamShapes):
    """Test shapes of a plan with streaming steps: the first of them has several tiles and blocks."""

    program: MultiStepProgram

    @property
    def uneven(self) -> tuple[int, int]:
        return (130, 300)

    @property
    def streaming(self) -> StreamingProgram:
        return streaming_steps(self.program)[0]

    def wide(self) -> tuple[int, ...]:
        """A wide shape whose first axis has one element if it is a batch; the other axes all are rows of a step."""
        return (*self.lengths_of(37, 90, 24, batch=1)[:1], *super().wide()[1:])

    def summed(self, tensor: Input) -> str:
        """The axis as in streaming, also for tensors from which an earlier step computes operands of scores."""
        op = self.program.op
        values = {value.name for value in op.values}
        sides = {side.name: one for one in self.stream.scores for side in (one.left, one.right)}
        computed = {name: score for name, score in sides.items() if name in values}
        for name, score in computed.items():
            nodes = [value.node for value in needed(op.values, [name])]
            is_read = any(tensor.name in reads(node) for node in nodes)
            is_full = {*op.value(name).node.axes} <= {*tensor.type.axes}
            if is_read and is_full and not any(isinstance(node, Reduce) for node in nodes):
                return self.longest(score)
        for value in needed(op.values, computed):
            node = value.node
            if isinstance(node, Reduce) and is_product(op, node) and node.over[0] in tensor.type.axes:
                made_of = [value, *needed(op.values, references(node))]
                if any(tensor.name in reads(one.node) for one in made_of):
                    return node.over[0]
        return super().summed(tensor)


def streaming_steps(program: MultiStepProgram) -> list[StreamingProgram]:
    return [step.program for step in program.steps if isinstance(step.program, StreamingProgram)]


@dataclass(frozen=True)
class MultiStep(Family[MultiStepProgram]):
    """Takes operators that can be cut into steps that other families take; `take_alone` asks these."""

    take_alone: TakeAlone

    title = "a plan of several steps"
    autocast = "float32"

    def take(self, op: Op) -> MultiStepProgram | None:
        streamed = weights_before_casts(op) if op.fuse else op
        found = cut(streamed, self.take_alone) if streamed != op else None
        if found is not None and stored_scores(streamed, found.steps) is None:
            op = streamed
        else:
            found = cut(op, self.take_alone)
        nodes = [value.node for value in op.values]
        reduced = {axis for node in nodes if isinstance(node, Reduce) for axis in node.over}
        reduced |= {node.over for node in nodes if isinstance(node, Scan)}
        return MultiStepProgram(op, tuple(axis for axis in op.axes if axis in reduced), found.steps) if found else None

    def leaves(self, program: MultiStepProgram) -> tuple[str, ...]:
        return program.leaves

    def steps(self, program: MultiStepProgram) -> tuple[Step, ...]:
        return program.steps

    def module(self, program: MultiStepProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return MultiStepModule(program, around, autotune).module()

    def tests(self, spec: Spec, program: MultiStepProgram, module: Module) -> FamilyTests:
        declared = {
            "splits": splits(*module.steps),
            **allowed_errors(program.op),
            "narrowest": max(map(narrowest, module.steps), key=lambda text: int(text or 0), default=""),
        }
        if streaming_steps(program):
            shapes = StreamStepShapes(spec, program)
            if any(one.gluon and "streamed" in one.traffic.kinds for one in module.every):
                declared["gluon"] = tuple_text([str(shape) for shape in shapes.gluon()])
            return FamilyTests("StreamStepsTests", shapes, declared, streams=True)
        declared["shifts"] = SHIFTS if compares_values(spec) else ""
        declared["cancels"] = "True" if any(isinstance(value.node, Scan) for value in program.op.values) else ""
        if any(step.family.matmuls(step.program) for step in program.steps):
            return FamilyTests("MatmulStepsTests", MatmulStepShapes(spec, program), declared)
        return FamilyTests("StepsTests", StepShapes(spec, program), declared)

    def benchmark(self, spec: Spec, program: MultiStepProgram) -> Sizes:
        steps = program.steps
        multiplies = any(step.family.matmuls(step.program) or step.family.stream(step.program) for step in steps)
        return MatmulStepsSizes(program, spec) if multiplies else super().benchmark(spec, program)

    def gradient_tests(self, module: Module) -> Mapping[str, str]:
        return declared_together(
            *(family.gradient_tests(one) for family in (ROWWISE, CONTRACTION) for one in module.steps)
        )
