"""The view of a function that multiplies rows in place: see `tritongen.families.scaled.kernels`."""

from __future__ import annotations

from typing import Any

from ...emit.configs import Traffic
from ...emit.launches import Launch, call
from ...emit.module import Around, Module
from ...passes.structure import Program
from ..rowwise.sizes import RowSizes
from .kernels import as_argument, plan_scaled


class ScaledModule(RowSizes):
    def __init__(self, program: Program, around: Around) -> None:
        plan = plan_scaled(program)
        self.kernel, self.result = plan.kernel, program.op.results[0]
        super().__init__(as_argument(program), False, plan.space, plan.compute, [plan.kernel], around)

    def module(self) -> Module:
        name = self.result.output.name
        launch = call(
            "rowwise.run_splits",
            shape=("n_rows", "n_cols"),
            contiguous=f"{self.column_strides.get(name, f'{name}_cols[-1]')} in (0, 1)",
            args=self.args(self.kernel),
            constants=self.constants_of(self.kernel, self.index()),
            tiles=(self.table_of("TILE"), self.launcher(self.kernel)),
        )
        extra: dict[str, Any] = {
            **self.launching([Launch(launch)]),
            "made": (),
            "empty": "n_rows == 0 or n_cols == 0",
            "result": self.host.regrouped(self.result),
        }
        return Module(self.view(extra), Traffic(frozenset({"tile"})))
