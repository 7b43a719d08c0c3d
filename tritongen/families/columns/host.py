"""The view of a function that maps rows and sums over them: see `tritongen.families.columns.kernels`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...emit.configs import Traffic
from ...emit.host_checks import tuple_text
from ...emit.module import Around, Module, empty_text, kernel_view, nest_views
from ...lang.ir import Load, Op, Ref, Result, Value, walk
from ...lang.rewrite import as_loads
from ...lowering.lower import compute_of
from ...lowering.tile import needed
from ...passes.structure import Program
from ...spec.types import COMPUTED, Input, TensorType, intermediate_dtypes, plain_shape
from ..rowwise.sizes import RowSizes
from .kernels import SumsKernel, SumsKernels, plan_sums
from .program import SumsProgram


class SumsModule(RowSizes):
    """Takes `rows`, the name of the function that reduces the rows alone, and the operator that goes on from there."""

    def __init__(self, program: SumsProgram, around: Around, rows: Op | None) -> None:
        given = _given(program, rows) if rows else program.op
        self.plan: SumsKernels = plan_sums(program, given)
        self.sums, self.rows, self.once = program.sums, rows, not program.waits
        kernels = [one.kernel for one in (self.plan.full, self.plan.shared, self.plan.tiles) if one is not None]
        # Sums are stored column after column, whatever the layout of what they are the gradients of.
        op = replace(program.op, by_row=program.op.by_row | set(program.sums))
        super().__init__(Program(op, program.cols), False, self.plan.space, self.plan.compute, kernels, around)
        # CTAs share rows of contiguous columns alone, and torch sees no cooperative launches.
        if self.plan.shared and (self.contiguous == "False" or around.register == "triton_op"):
            self.kernels.remove(self.plan.shared.kernel)
            self.plan = replace(self.plan, shared=None)

    def module(self) -> Module:
        plan, space = self.plan, self.space
        extra: dict[str, Any] = {
            "family": "columns",
            "nests": nest_views(self.kernels),
            "sums": self.sums,
            "zeros": [result.output.name for result in self.op.results if self.adds_up(result)],
            "empty": empty_text((*space.row_axes, *space.col_axes)),
            "sizes": self.size_lines(),
            "rows_function": self.rows_function(),
            "full": plan.full and self.one(plan.full),
            "cooperative": plan.shared and self.one(plan.shared) | {"n_words": len(plan.shared.slots)},
            "tiles": self.one(plan.tiles) | {"replaced": self.replaced()},
            "contiguous": self.contiguous,
            "args": self.args((plan.full or plan.tiles).kernel),
            "key": "key" if self.knows else "None",
            "constants_text": self.constants_of((plan.full or plan.tiles).kernel),
            "sums_text": tuple_text(list(self.sums)),
            "sum_dtype": "compute" if self.compute.constexpr else self.compute.text,
            # Kernels that the runtime launches are not wrapped by default.
            "add_kernel": self.around.wrapped("sums.add_parts_kernel"),
        }
        extra["lengths"] = self.lengths(*extra["sizes"], extra["args"], extra["tiles"]["args"])
        every = {"sums": plan.tiles, "whole": plan.full, "shared": plan.shared}
        kinds = frozenset(kind for kind, kernel in every.items() if kernel is not None)
        extra |= self.known_with((plan.full or plan.tiles).kernel, self.sums)
        traffic = Traffic(kinds, sums=len(self.sums), strided=bool(self.contiguous), once=self.once)
        return Module(self.view(extra), traffic)

    def replaced(self) -> str:
        """What the kernel for tiles takes that the others do not, in the call of all."""
        tiles, others = self.plan.tiles.kernel, (self.plan.full or self.plan.tiles).kernel
        every = {"args": self.args, "constants": self.constants_of}
        own = [f"{name}={text_of(tiles)}" for name, text_of in every.items() if text_of(tiles) != text_of(others)]
        return f"._replace({', '.join(own)})" if own else ""

    @property
    def contiguous(self) -> str:
        """Whether columns are next to each other in memory in all tensors; "" where the axes of all tell that."""
        cols = {*self.space.col_axes}
        moving = self.host.moving(self.space.cols)
        laid_out = {axes[-1] in cols for _, axes, _ in moving if self.space.steps(axes, self.space.rows)}
        if laid_out == {False, True}:
            return "False"
        return self.contiguous_cols() if False in laid_out else ""

    def adds_up(self, result: Result) -> bool:
        """Whether a result is a sum, of a column or of a row."""
        return {*result.axes} != {*self.space.row_axes, *self.space.col_axes}

    def one(self, kernel: SumsKernel) -> dict[str, Any]:
        """A kernel, what launches it, what it takes, and what each of its iterations reads along the columns."""
        read = [tensor.name for tensor in self.op.inputs for _ in range(kernel.reads.count(tensor.name))]
        host = {
            "launcher": self.around.launcher(kernel.kernel.name),
            "args": self.args(kernel.kernel),
            "constants": self.constants_of(kernel.kernel),
            "read": tuple_text(read),
        }
        return kernel_view(kernel.kernel) | host

    def rows_function(self) -> dict[str, str]:
        """The function that reduces the rows alone: its name and what it is called with."""
        if self.rows is None:
            return {}
        passed = [tensor.name for tensor in self.rows.inputs] + [param.name for param in self.rows.params]
        return {"name": f"_{self.rows.name}", "passed": ", ".join(passed)}


def _given(program: SumsProgram, rows: Op) -> Op:
    """The operator with what the rows reduce to as inputs, and without what only that needs."""
    op = program.op
    names = program.of_rows
    inputs = [Input(r.output.name, TensorType(_stored_as(rows, r), plain_shape(r.axes))) for r in rows.results]
    results = {result.output.name for result in op.results}
    values = tuple(
        replace(value, node=as_loads(_named(value) if value.name in names else value.node, names, of_their_own=True))
        for value in op.values
        if value.name not in names or value.name in results
    )
    values = tuple(needed(values, [result.output.name for result in op.results]))
    read = {part.name for value in values for part in walk(value.node) if isinstance(part, Load)}
    return replace(
        op,
        inputs=(*inputs, *(tensor for tensor in op.inputs if tensor.name in read)),
        values=values,
        by_row=op.by_row | {*names.values()},
    )


def _stored_as(rows: Op, result: Result) -> tuple[str, ...]:
    """The dtypes in which the function that reduces the rows stores a result: float32 where no call computes wider."""
    dtypes = intermediate_dtypes(result.dtype.kind)
    return ("float32",) if dtypes == COMPUTED and compute_of(rows).text == "tl.float32" else dtypes


def _named(value: Value) -> Ref:
    return Ref(value.name, value.node.axes, value.node.dtype)
