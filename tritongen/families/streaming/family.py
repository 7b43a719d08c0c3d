"""The family of operators that stream an axis: attention and its like, whose scores are not stored."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...diagnostics.report import Mistake
from ...emit.host_checks import tuple_text
from ...emit.module import Around, Module
from ...lang.ir import Op
from ...passes.gathered import with_gathers_inside
from ...passes.paged import Pages, pages_of
from ...passes.rounded_weights import weights_before_casts
from ...spec.types import BATCH, Schedule, Spec
from ...testing.tests import FamilyTests, text_of
from ..family import Family, Step
from ..stream import Stream
from ..tensor_cores import allowed_errors, too_small
from .blocks import Blocks, blocks_of
from .host import StreamingModule
from .program import StreamingProgram
from .shapes import StreamingShapes
from .sizes import StreamingSizes
from .streams import stream_of, sums_of_sums


@dataclass(frozen=True)
class Streaming(Family[StreamingProgram]):
    """Scores of rows by a streamed axis, and sums of functions of them along that axis."""

    is_narrow: bool = False  # whether heads are known to be as narrow as tiles, as by the forward

    title = "streaming"
    autocast = "lower"
    has_own_tables = True

    def take(self, op: Op) -> StreamingProgram | None:
        given, pages = op, pages_of(op)
        op = op if pages is None else pages.joined(with_gathers_inside(op))
        if not sums_of_sums(op):
            return None
        found = stream_of(op, self.is_narrow)
        if found is None and (form := weights_before_casts(op)) != op:
            op, found = form, stream_of(form, self.is_narrow)
        if found is None:
            return None
        seen, stream, merged = found
        blocks = blocks_of(seen, stream)
        stream = grouped(stream, blocks)
        parted, over = merged.parted(seen, op), merged.parted_axes(stream.positions)
        if pages is not None:
            if not are_streamed(pages, stream):
                return None
            parted, over = pages.parted(parted), pages.parted_axes(stream.positions)
            stream, blocks = replace(stream, is_paged=True), replace(blocks, is_paged=True)
        return StreamingProgram(parted, over, stream, blocks, pages, merged, given)

    def check(self, schedule: Schedule) -> list[Mistake]:
        found = too_small(schedule, "tiles of a matmul", "block_m", "block_n")
        if schedule.block_k:
            message = "block_k is of sums in blocks, and a kernel that streams an axis holds its heads whole"
            found.append(Mistake("TG607", message, ("schedule", "block_k"), hint="leave it out"))
        return found

    def stream(self, program: StreamingProgram) -> Stream | None:
        return program.parted_stream

    def module(self, program: StreamingProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return StreamingModule(program, around, autotune).module()

    def tests(self, spec: Spec, program: StreamingProgram, module: Module) -> FamilyTests:
        shapes = StreamingShapes(spec, program)
        declared = {
            **allowed_errors(program.op),
            "few_keys": text_of(shapes.few_keys()),
            "hiding": text_of(tuple(shapes.hiding())),
            "stores_between": "True" if sums_scores(spec, program.parted_stream) else "",
        }
        if module.gluon:
            declared["gluon"] = tuple_text([str(shape) for shape in shapes.gluon()])
        return FamilyTests("StreamingTests", shapes, declared, streams=True)

    def benchmark(self, spec: Spec, program: StreamingProgram) -> StreamingSizes:
        return StreamingSizes(program, spec)


def are_streamed(pages: Pages, stream: Stream) -> bool:
    """Whether all paged inputs are streamed matrices or per-position values, with the tables that scores read, and no
    matrix along positions is unpaged.

    Scores with rows of missing pages are NaN, and so is everything computed from them.
    """
    tables = {one.table: one.pages for score in stream.scores if (one := pages.of(score.right.name))}
    names = {load.name for load in stream.matrices}
    inside = {*stream.batch, *stream.heads, stream.streamed}
    return not any(load.name in names for load in pages.along) and all(
        tables.get(one.table) == one.pages and (one.load.name in names or {*pages.joined_axes(one.load.axes)} <= inside)
        for one in pages.inputs
    )


def grouped(stream: Stream, blocks: Blocks) -> Stream:
    """The stream with its last batch axis that no streamed matrix or bound has as the `group` of heads instead.

    Rows of all heads of a group may share one tile, so no bound may vary along the group.
    """
    streamed = [load for load in stream.matrices if stream.streamed in load.axes]
    bounds = [*blocks.values, *(load for load, _ in blocks.compared)]
    axes = [axis for axis in stream.batch if axis != BATCH and not any(axis in load.axes for load in streamed)]
    axes = [axis for axis in axes if not any(axis in node.axes for node in bounds)]
    if not axes:
        return stream
    return replace(stream, batch=tuple(axis for axis in stream.batch if axis != axes[-1]), group=axes[-1])


def sums_scores(spec: Spec, stream: Stream) -> bool:
    """Whether a gradient sums the gradients of scores, as for a learned slope or a bias per row: the terms have both
    signs and are larger than their sum, so its magnitude does not bound the rounding error.
    """
    learned = [{*one.type.axes} for one in spec.inputs if spec.grad is not None and one.name in spec.grad.wrt]
    along, across = {stream.rows, stream.streamed}, {*stream.widths}
    return any(not along & axes or not (along <= axes or across & axes) for axes in learned)


STREAMING = Streaming()
STREAMING_GRADIENTS = Streaming(is_narrow=True)
