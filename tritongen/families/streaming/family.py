"""The family of what streams an axis: attention and its like, whose scores are not stored."""

from __future__ import annotations

from ...diagnostics.report import Mistake
from ...emit.host_checks import tuple_text
from ...emit.module import Around, Module
from ...lang.ir import Op
from ...spec.types import Schedule, Spec
from ...testing.tests import FamilyTests, tolerances
from ..family import Step
from ..maps import Maps
from ..matmul_schedule import refused
from ..stream import Stream
from .blocks import blocks_of
from .groups import grouped
from .host import StreamingModule
from .program import StreamingProgram
from .shapes import StreamingShapes
from .sizes import StreamingSizes
from .streams import stream_of


class Streaming(Maps[StreamingProgram]):
    """Scores of rows by an axis that is streamed, and sums along that of what is made of them."""

    title = "streaming"
    autocast = "lower"
    has_own_tables = True

    def take(self, op: Op) -> StreamingProgram | None:
        found = stream_of(op)
        if found is None:
            return None
        op, stream = found
        blocks = blocks_of(op, stream)
        stream = grouped(stream, blocks)
        return StreamingProgram(op, (*stream.turns, stream.streamed), stream, blocks)

    def check(self, schedule: Schedule) -> list[Mistake]:
        why = "a kernel that streams an axis is not autotuned: its tiles follow from the widths of its matrices"
        return refused(schedule, "tiles of a matmul", why)

    def stream(self, program: StreamingProgram) -> Stream:
        return program.stream

    def module(self, program: StreamingProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return StreamingModule(program, around).module()

    def tests(self, spec: Spec, program: StreamingProgram, module: Module) -> FamilyTests:
        declared = {"tolerances": tolerances(program.op, "SUMS", "1e-4", {})}
        shapes = StreamingShapes(spec, program)
        if module.gluon is not None:
            declared["gluon"] = tuple_text([str(shape) for shape in shapes.gluon()])
        return FamilyTests("StreamingTests", shapes, declared)

    def benchmark(self, spec: Spec, program: StreamingProgram) -> StreamingSizes:
        return StreamingSizes(program)


STREAMING = Streaming()
