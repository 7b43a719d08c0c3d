"""The view of a function that reduces rows, and may map them back: see `tritongen.families.rowwise.kernels`."""

from __future__ import annotations

from typing import Any

from ...emit.configs import Traffic
from ...emit.module import Around, Common, Module, kernel_view, length_text
from ...lang.ir import Reduce
from ...lowering.lines import condition_text
from ...passes.structure import Program
from .kernels import RowKernels, plan_rows


class RowsModule(Common):
    def __init__(self, program: Program, autotune: bool, around: Around) -> None:
        self.plan: RowKernels = plan_rows(program)
        plan = self.plan
        kernels = [k for k in (plan.registers, plan.loop, plan.partial, plan.combine) if k is not None]
        super().__init__(program, autotune, plan.space, plan.compute, kernels, around)
        self.column_strides = self.host.column_strides()

    def module(self) -> Module:
        plan, host = self.plan, self.host
        rows, cols = self.space.row_axes, self.space.col_axes
        own = [r for r in self.op.results if not r.saved]
        is_empty, own_empty = (all(set(r.axes) & set(cols) for r in results) for results in (self.op.results, own))
        shared = self.shared_sizes()
        sizes = "sizes" if shared else ""
        loop = self.searched(plan.loop, "LOOP") or plan.loop
        extra: dict[str, Any] = {
            "family": "rowwise",
            "autotune": self.autotune,
            "n_rows": length_text(rows),
            "n_cols": length_text(cols),
            "has_cols": is_empty,
            "empty_errors": [] if own_empty else host.empty_errors(),
            "fold": [*host.fold("rows", self.space.rows), *self.fold_cols()],
            "sizes": shared,
            "contiguous": self.contiguous_cols(),
            "chooses": not self.autotune or plan.partial is not None,
            "vector": self.largest() if "VECTOR" in plan.loop.constexprs else "",
            "loop": kernel_view(loop),
            "launch_loop": self.known_launch(loop, sizes),
            "registers": None,
            "partial": None,
            **self.known(loop),
        }
        if plan.registers is not None:
            registers = self.searched(plan.registers, "WARPS") or plan.registers
            extra["registers"] = kernel_view(registers)
            extra["launch_registers"] = self.known_launch(registers, sizes)
        if plan.partial is not None and plan.combine is not None:
            extra |= {
                "partial": kernel_view(plan.partial),
                "combine": kernel_view(plan.combine),
                "launch_partial": self.launch(plan.partial),
                "launch_combine": self.launch(plan.combine),
                "states": [
                    {
                        "name": name,
                        "dtype": self.torch_dtype(dtype),
                        "otherwise": f" if {condition_text(path)} else None" if path else "",
                    }
                    for name, dtype, path in plan.states
                ],
            }
        kinds = {"loop", "registers"} if plan.registers is not None else {"loop"}
        return Module(self.view(extra), self.traffic(kinds))

    def shared_sizes(self) -> str:
        """The lengths and strides, where both kernels are passed the same."""
        registers, loop = self.plan.registers, self.plan.loop
        if not self.knows or registers is None or self.sizes(registers) != self.sizes(loop):
            return ""
        return self.sizes(loop)

    def traffic(self, kinds: set[str]) -> Traffic:
        moves = [
            (
                self.space.steps(t.type.axes, self.space.rows),
                self.space.steps(t.type.axes, self.space.cols),
            )
            for t in self.op.inputs
        ]
        streams = sum(bool(cols) and (bool(rows) or not self.space.rows) for rows, cols in moves)
        flags = all(isinstance(v.node, Reduce) and v.node.kind in ("any", "all") for v in self.program.reductions)
        vectors = sum(bool(cols) and not rows for rows, cols in moves)
        online = "VECTOR" in self.plan.loop.constexprs
        in_place = any(result.over for result in self.op.results)
        return Traffic(frozenset(kinds), streams, vectors, flags, not self.program.maps_back, online, in_place)

    def torch_dtype(self, dtype: str) -> str:
        if dtype == "INDEX":
            return "torch.int64"
        if dtype == "COMPUTE":
            return "dtypes.torch_dtype(compute)"
        return {
            "tl.float32": "torch.float32",
            "tl.int64": "torch.int64",
            "tl.int32": "torch.int32",
        }[dtype]

    def contiguous_cols(self) -> str:
        """Whether the columns of the largest input are next to each other in memory."""
        largest = self.largest()
        stride = self.column_strides.get(largest)
        return f"{stride} == 1" if stride else f"1 in {largest}_cols"

    def largest(self) -> str:
        """The largest input, by its axes."""
        return max(self.host.moving(self.space.cols), key=lambda entry: len(entry[1]))[0]
