"""The view of a function that maps rows and sums over them: see `tritongen.families.columns.kernels`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...emit.configs import Traffic
from ...emit.module import Around, Common, Module, length_text, view_of
from ...lang.ir import Dtype, Load, Node, Op, Ref, children, rebuild, walk
from ...lowering.tile import needed
from ...lowering.views import Kernel
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

    def module(self) -> Module:
        plan, host, around = self.plan, self.host, self.around
        tiles = plan.tiles.kernel
        finish = f"{self.op.name}_sums_kernel"
        pointers = [f"{name}_part_ptr, {name}_ptr" for name in self.sums]
        passed = [f"{name}_part, {name}" for name in self.sums]
        extra: dict[str, Any] = {
            "macros": "sums.jinja",
            "sums": self.sums,
            "n_rows": length_text(self.space.row_axes),
            "n_cols": length_text(self.space.col_axes),
            "zeroed": [line for name in self.sums for line in (f"if {name} is not None:", f"    {name}.zero_()")],
            "fold": [
                *host.fold("rows", self.space.rows),
                *self.fold_cols(),
                f"sizes = {self.sizes(tiles)}",
            ],
            "whole": self.one(plan.whole) if plan.whole else None,
            "shared": None,
            "column_bytes": self.column_bytes(plan.whole) if plan.whole else "",
            "shared_bytes": self.column_bytes(plan.shared) if plan.shared else "",
            "tiles": self.one(plan.tiles),
            "statistics": self.statistics(),
            "workspaces": [
                f"{name}_part = torch.empty((n_programs, n_cols), dtype={self.torch_dtype()}, "
                f"device={self.first()}.device) if {name} is not None else None"
                for name in self.sums
            ],
            "launch_whole": self.launch_sums(plan.whole.kernel, "(n_programs,)") if plan.whole else [],
            "launch_tiles": self.launch_sums(tiles, "(n_programs, n_tiles)", name="tile_grid"),
            "finish_name": finish,
            "finish_signature": ", ".join(pointers),
            "any_sum": " or ".join(f"{name} is not None" for name in self.sums),
            "launch_finish": [
                f"launch.run(None, {around.launcher(finish)}, (tensors.cdiv(n_cols, 32),), None, "
                f"({', '.join(passed)}, n_programs, n_cols), "
                f"COMPUTE={self.compute_name()}, BLOCK_M=128, BLOCK_N=32, num_warps=8)"
            ],
        }
        kinds = {"sums"} | ({"whole"} if plan.whole else set())
        if plan.shared is not None:
            extra |= self.shared(plan.shared)
            kinds.add("shared")
        return Module(self.view(extra), Traffic(frozenset(kinds), sums=len(self.sums)))

    def launch_sums(self, kernel: Kernel, grid: str, options: str = "", name: str = "grid") -> list[str]:
        """A launch, with sizes of its own where not those of the tiles, which read less than whole rows."""
        same = self.sizes(kernel) == self.sizes(self.plan.tiles.kernel)
        return self.launch(kernel, grid, options=options, name=name, sizes="sizes" if same else "")

    def one(self, kernel: SumsKernel) -> dict[str, Any]:
        parts = {name: getattr(kernel, name) for name in ("before", "ahead", "next", "inside", "after")}
        return view_of(kernel.kernel, self.space) | parts

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
        """The view of a kernel whose CTAs share rows: all of them must be resident, so the launch is cooperative."""
        may = f"heuristics.use_shared(n_cols, {self.first()}.device)"
        names = ", ".join(f"{name}_slots" for name in shared.slots)
        shape = "(n_rows, members)" if len(shared.slots) == 1 else f"({len(shared.slots)}, n_rows, members)"
        options = "maxnreg=config.maxnreg, launch_cooperative_grid=True"
        return {
            "shared": self.one(shared),
            "may_share": f"compute == tl.float32 and {may}" if self.compute.constexpr else may,
            "slots": [
                'members = config.kwargs["CTAS_PER_ROW"]',
                f"{names} = torch.zeros({shape}, dtype=torch.int64, device={self.first()}.device)",
            ],
            "launch_shared": self.launch_sums(shared.kernel, "(n_programs * members,)", options),
        }

    def statistics(self) -> str:
        if self.rows is None:
            return ""
        names = ", ".join(result.output.name for result in self.rows.results)
        passed = [tensor.name for tensor in self.rows.inputs] + [param.name for param in self.rows.params]
        return f"{names} = _{self.rows.name}({', '.join(passed)})"

    def compute_name(self) -> str:
        return "compute" if self.compute.constexpr else self.compute.text

    def torch_dtype(self) -> str:
        return "dtypes.torch_dtype(compute)" if self.compute.constexpr else "torch.float32"


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
