"""The view of a function that multiplies rows in place: see `tritongen.families.scaled.kernels`."""

from __future__ import annotations

from typing import Any

from ...emit.configs import Traffic
from ...emit.module import Around, Module, kernel_view, length_text, nest_views
from ...passes.structure import Program
from ..rowwise.sizes import RowSizes
from .kernels import as_argument, plan_scaled


class ScaledModule(RowSizes):
    def __init__(self, program: Program, around: Around) -> None:
        plan = plan_scaled(program)
        self.kernel, self.result = plan.kernel, program.op.results[0]
        super().__init__(as_argument(program), False, plan.space, plan.compute, [plan.kernel], around)

    def module(self) -> Module:
        space, name = self.space, self.result.output.name
        extra: dict[str, Any] = {
            "family": "scaled",
            "nests": nest_views(self.kernels),
            "scaled": kernel_view(self.kernel) | {"launcher": self.around.launcher(self.kernel.name)},
            "n_rows": length_text(space.row_axes),
            "n_cols": length_text(space.col_axes),
            "result": self.host.regrouped(self.result),
            "sizes": self.size_lines(),
            "contiguous": f"{self.column_strides.get(name, f'{name}_cols[-1]')} in (0, 1)",
            "args": self.args(self.kernel),
            "constants_text": self.constants_of(self.kernel, self.index()),
        }
        return Module(self.view(extra), Traffic(frozenset({"tile"})))
