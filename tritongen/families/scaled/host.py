"""The view of a function that multiplies rows in place: see `tritongen.families.scaled.kernels`."""

from __future__ import annotations

from typing import Any

from ...emit.configs import Traffic
from ...emit.module import Around, Common, Module, length_text
from ...passes.structure import Program
from .kernels import as_argument, plan_scaled


class ScaledModule(Common):
    def __init__(self, program: Program, around: Around) -> None:
        plan = plan_scaled(program)
        self.kernel, self.result = plan.kernel, program.op.results[0]
        super().__init__(as_argument(program), False, plan.space, plan.compute, [plan.kernel], around)

    def module(self) -> Module:
        host, space = self.host, self.space
        contiguous = f"{self.result.output.name}_cols[-1] in (0, 1)"
        grid = '(tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]), tensors.cdiv(n_cols, split_cols))'
        extra: dict[str, Any] = {
            "family": "scaled",
            "scaled": self.kernel_view(self.kernel),
            "n_rows": length_text(space.row_axes),
            "n_cols": length_text(space.col_axes),
            "result": host.regrouped(self.result),
            "fold": [*host.fold("rows", space.rows), *host.fold("cols", space.cols)],
            "choose_tile": f"config = configs.TILE{self.tables}.choose(n_rows, n_cols, {contiguous})",
            "choose_splits": f"n_splits = heuristics.choose_splits(n_rows, n_cols, config, {self.first()}.device)",
            "launch_scaled": self.launch(self.kernel, grid),
        }
        return Module(self.view(extra), Traffic(frozenset({"tile"})))
