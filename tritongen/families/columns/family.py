"""The family of column sums: rows are mapped, and summed in the same pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...emit.module import Around, Module
from ...lang.ir import Op
from ...planner.steps import lengths_read
from ...spec.types import Input, plain_shape
from ..family import Family, Step
from ..rowwise.family import ROWWISE
from .host import SumsModule
from .program import SumsProgram, recognise_sums, statistics


class Columns(Family[SumsProgram]):
    """Sums over rows in addition to mapped results, as for the gradient of a weight."""

    title = "column sums"

    def take(self, op: Op) -> SumsProgram | None:
        program = recognise_sums(op)
        rows = statistics(program) if program is not None else None
        # The step that reduces rows alone gets no shapes in addition to its tensors.
        axes = {axis for tensor in op.inputs if tensor.default is None for axis in tensor.type.axes}
        return program if rows is None or lengths_read(rows) <= axes | dict(op.sizes).keys() else None

    def rows(self, program: SumsProgram) -> tuple[str, ...]:
        return program.row_axes

    def before(self, program: SumsProgram) -> Step | None:
        """The step that reduces rows which are too long for registers."""
        op = statistics(program)
        if op is None:
            return None
        # The host calls it with inputs whose groups of axes are unflattened.
        tensors = (*op.inputs, *_determining(program, op))
        inputs = tuple(replace(t, type=replace(t.type, shape=plain_shape(t.type.axes))) for t in tensors)
        reduced = ROWWISE.take(replace(op, inputs=inputs))
        assert reduced is not None
        return Step(ROWWISE, reduced)

    def module(self, program: SumsProgram, before: Step | None, around: Around, autotune: bool) -> Module:
        return SumsModule(program, around, before.op if before else None).module()

    def gradient_tests(self, module: Module) -> Mapping[str, str]:
        return {"ctas_per_row": "(1, 3, 8)"} if "columns.run_cooperative" in module.called else {}


def _determining(program: SumsProgram, rows: Op) -> list[Input]:
    """Inputs whose shapes determine lengths of the rows, if the inputs that are reduced are optional."""
    always = [tensor for tensor in program.op.inputs if tensor.default is None]
    known = {axis for tensor in always if tensor in rows.inputs for axis in tensor.type.axes}
    missing = {*program.row_axes, *program.cols, *lengths_read(rows)} - known - dict(program.op.sizes).keys()
    found = []
    for tensor in always:
        if tensor.name not in program.op.by_row and missing & {*tensor.type.axes}:
            found.append(tensor)
            missing -= {*tensor.type.axes}
    return found


COLUMNS = Columns()
