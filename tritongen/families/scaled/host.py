"""The view of a function that multiplies rows in place: see `tritongen.families.scaled.kernels`."""

from __future__ import annotations

from ...emit.configs import Traffic
from ...emit.module import Around, Module, checked
from ...emit.statements import Launch, Statement, call
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
        nothing = self.nothing_for("n_rows == 0 or n_cols == 0")
        body = self.function([Launch(launch)], between=self.sized(nothing))
        return Module(self.view({"nests": checked(self.kernel)}, body), Traffic(frozenset({"tile"})))

    def allocated(self) -> list[Statement]:
        return []

    @property
    def returned(self) -> str:
        return self.host.regrouped(self.result)
