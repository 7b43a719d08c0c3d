"""The view of a function that multiplies rows in place: see `tritongen.families.scaled.kernels`."""

from __future__ import annotations

from typing import Any

from ...emit.configs import Traffic
from ...emit.module import Around, Common, Module, kernel_view, length_text
from ...passes.structure import Program
from .kernels import as_argument, plan_scaled


class ScaledModule(Common):
    def __init__(self, program: Program, around: Around) -> None:
        plan = plan_scaled(program)
        self.kernel, self.result = plan.kernel, program.op.results[0]
        super().__init__(as_argument(program), False, plan.space, plan.compute, [plan.kernel], around)

    def module(self) -> Module:
        host, space = self.host, self.space
        extra: dict[str, Any] = {
            "family": "scaled",
            "scaled": kernel_view(self.kernel),
            "n_rows": length_text(space.row_axes),
            "n_cols": length_text(space.col_axes),
            "result": host.regrouped(self.result),
            "fold": [*host.fold("rows", space.rows), *host.fold("cols", space.cols)],
            "contiguous": f"{self.result.output.name}_cols[-1] in (0, 1)",
            "launch": self.launch(self.kernel),
        }
        return Module(self.view(extra), Traffic(frozenset({"tile"})))
