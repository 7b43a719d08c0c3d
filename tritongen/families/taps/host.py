"""The view of a function that sums at the taps of a window: see `tritongen.families.taps.kernels`."""

from __future__ import annotations

from dataclasses import replace

from ...emit.configs import Traffic
from ...emit.module import Around, Module, checked
from ...emit.statements import Launch, call
from ..rowwise.sizes import RowSizes
from .kernels import plan_taps
from .program import TapsProgram


class TapsModule(RowSizes):
    """The module of the kernel of some sums at taps."""

    def __init__(self, program: TapsProgram, around: Around) -> None:
        # Sums are stored row after row, whatever the layout of what they are the gradients of.
        op = replace(program.op, by_row=program.op.by_row | {program.op.results[0].output.name})
        program = replace(program, op=op)
        plan = plan_taps(program)
        super().__init__(program, False, plan.space, plan.compute, [plan.kernel], around)
        self.outer_axis, self.count, self.kernel = program.outer, program.count, plan.kernel

    def module(self) -> Module:
        space, (result,) = self.space, self.op.results
        launch = call(
            "taps.run",
            self.key,
            shape=("n_rows", "n_cols", self.outer_axis or "1"),
            contiguous=self.contiguous_cols(),
            args=self.args(self.kernel),
            constants=self.constants_of(self.kernel),
            tiles=(self.table_of("TAPS"), self.launcher(self.kernel)),
            dtype=call("tensors.torch_dtype", "compute" if self.compute.constexpr else self.compute.text),
            result=result.output.name,
            # Kernels that the runtime launches are not wrapped by default.
            add_kernel=self.around.wrapped("reduce.reduce_partials_kernel"),
        )
        nothing = self.nothing_for("n_rows == 0" if space.rows else "")
        known = self.known(self.kernel, result.output.name)
        body = self.function([Launch(launch)], known, self.sized(nothing))
        return Module(self.view({"nests": checked(self.kernel)}, body), Traffic(frozenset({"taps"}), taps=self.count))

    def is_read_by_rows(self) -> bool:
        """Never: columns next to one another are read at places next to one another, moved by a tap."""
        return False
