"""The view of a function that maps rows and sums over them: see `tritongen.families.columns.kernels`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...emit.configs import Traffic
from ...emit.module import Around, Common, Module, kernel_view, length_text
from ...lang.ir import Dtype, Load, Node, Op, Ref, children, rebuild, walk
from ...lowering.tile import needed
from ...passes.structure import Program
from ...spec.types import Input, TensorType, plain_shape
from .kernels import SumsKernel, SumsKernels, SumsProgram, plan_sums


class SumsModule(Common):
    """Takes `rows`, the name of the function that reduces the rows alone, and the operator that goes on from there."""

    def __init__(self, program: SumsProgram, around: Around, rows: Op | None) -> None:
        given = _given(program, rows) if rows else program.op
        self.plan: SumsKernels = plan_sums(program, given)
        self.sums, self.rows = program.sums, rows
        kernels = [one.kernel for one in (self.plan.whole, self.plan.shared, self.plan.tiles) if one is not None]
        # Sums are stored column after column, whatever the layout of what they are the gradients of.
        op = replace(program.op, by_row=program.op.by_row | set(program.sums))
        super().__init__(Program(op, program.cols), False, self.plan.space, self.plan.compute, kernels, around)
        self.column_strides = self.host.column_strides()

    def module(self) -> Module:
        plan, space = self.plan, self.space
        finish = f"{self.op.name}_sums_kernel"
        extra: dict[str, Any] = {
            "family": "columns",
            "sums": self.sums,
            "n_rows": length_text(space.row_axes),
            "n_cols": length_text(space.col_axes),
            "fold": [*self.host.fold("rows", space.rows), *self.fold_cols()],
            "sizes": self.sizes(plan.tiles.kernel),
            "rows_function": self.rows_function(),
            "whole": plan.whole and self.one(plan.whole),
            "shared": plan.shared and self.shared(plan.shared),
            "tiles": self.one(plan.tiles),
            "finish_name": finish,
            "finish": self.around.launcher(finish),
            "part_dtype": "dtypes.torch_dtype(compute)" if self.compute.constexpr else "torch.float32",
            "sum_dtype": "compute" if self.compute.constexpr else self.compute.text,
            "is_told_compute": self.compute.constexpr,
            "any_sum": " or ".join(f"{name} is not None" for name in self.sums),
        }
        every = {"sums": plan.tiles, "whole": plan.whole, "shared": plan.shared}
        kinds = frozenset(kind for kind, kernel in every.items() if kernel is not None)
        return Module(self.view(extra), Traffic(kinds, sums=len(self.sums)))

    def one(self, kernel: SumsKernel) -> dict[str, Any]:
        """A kernel and its launch, with sizes of its own where they are not those of the tiles, which read less."""
        parts = {name: getattr(kernel, name) for name in ("before", "ahead", "next", "inside", "after")}
        same = self.sizes(kernel.kernel) == self.sizes(self.plan.tiles.kernel)
        launch = self.launch(kernel.kernel, "sizes" if same else "")
        return kernel_view(kernel.kernel) | parts | {"launch": launch, "column_bytes": self.column_bytes(kernel)}

    def column_bytes(self, kernel: SumsKernel) -> str:
        """The bytes that a step reads of a column."""
        terms = []
        for tensor in self.op.inputs:
            size = f"{tensor.name}.element_size()"
            if tensor.default is not None:
                size = f"({size} if {tensor.name} is not None else 0)"
            times = kernel.reads.count(tensor.name)
            terms += [size if times == 1 else f"{times} * {size}"] if times else []
        return " + ".join(terms)

    def shared(self, shared: SumsKernel) -> dict[str, Any]:
        """Programs that share rows, whose launch has to see that all of them run at once."""
        count = len(shared.slots)
        return self.one(shared) | {
            "slots": ", ".join(f"{name}_slots" for name in shared.slots),
            "slots_shape": "(n_rows, members)" if count == 1 else f"({count}, n_rows, members)",
        }

    def rows_function(self) -> dict[str, str]:
        """The function that reduces the rows alone: its name, what it returns and what it is called with."""
        if self.rows is None:
            return {}
        passed = [tensor.name for tensor in self.rows.inputs] + [param.name for param in self.rows.params]
        return {
            "name": f"_{self.rows.name}",
            "results": ", ".join(result.output.name for result in self.rows.results),
            "passed": ", ".join(passed),
        }


def _given(program: SumsProgram, rows: Op) -> Op:
    """The operator with what the rows reduce to as inputs, and without what only that needs."""
    op = program.op
    names = {result.output.name for result in rows.results}
    inputs = [Input(r.output.name, TensorType(("float32", "float64"), plain_shape(r.axes))) for r in rows.results]
    values = tuple(replace(value, node=_loaded(value.node, names)) for value in op.values if value.name not in names)
    values = tuple(needed(values, [result.output.name for result in op.results]))
    read = {part.name for value in values for part in walk(value.node) if isinstance(part, Load)}
    return replace(
        op,
        inputs=(*(tensor for tensor in op.inputs if tensor.name in read), *inputs),
        values=values,
        by_row=op.by_row | names,
    )


def _loaded(node: Node, names: set[str]) -> Node:
    if isinstance(node, Ref) and node.name in names:
        return Load(node.name, node.axes, Dtype("float", (node.name,)))
    return rebuild(node, tuple(_loaded(part, names) for part in children(node)))
