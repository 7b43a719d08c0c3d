"""The view of a function that sums at the taps of a window: see `tritongen.families.taps.kernels`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...emit.configs import Traffic
from ...emit.module import Around, Module, kernel_view, length_text, nest_views
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
        extra: dict[str, Any] = {
            "family": "taps",
            "nests": nest_views(self.kernels),
            "taps": kernel_view(self.kernel) | {"launcher": self.around.launcher(self.kernel.name)},
            "n_rows": length_text(space.row_axes),
            "n_cols": length_text(space.col_axes),
            "has_rows": bool(space.rows),
            "n_outer": self.outer_axis or "1",
            "sizes": self.size_lines(),
            "contiguous": self.contiguous_cols(),
            "sum": result.output.name,
            "sum_dtype": f"tensors.torch_dtype({'compute' if self.compute.constexpr else self.compute.text})",
            "args": self.args(self.kernel),
            "key": "key" if self.knows else "None",
            "constants_text": self.constants_of(self.kernel),
            # Kernels that the runtime launches are not wrapped by default.
            "add_kernel": self.around.wrapped("sums.add_parts_kernel"),
            **self.known_with(self.kernel, [result.output.name]),
        }
        return Module(self.view(extra), Traffic(frozenset({"taps"}), taps=self.count))

    def is_read_by_rows(self) -> bool:
        """Never: columns next to one another are read at places next to one another, moved by a tap."""
        return False
