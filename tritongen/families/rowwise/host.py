"""The view of a function that reduces rows, and may map them back: see `tritongen.families.rowwise.kernels`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...emit.configs import Traffic
from ...emit.host_checks import tuple_text
from ...emit.module import OF_BLOCKS, Around, Module, empty_text, kernel_view, nest_views
from ...lang.ir import Reduce
from ...lowering.views import Kernel
from ...nest.conditions import condition_text
from ...passes.structure import gathered
from ..family import P
from .kernels import RowKernels
from .shared import share_rows
from .sizes import RowSizes, row_after_row


class RowsModule(RowSizes):
    """The module of kernels over rows that some function plans."""

    def __init__(
        self, program: P, autotune: bool, around: Around, plan_kernels: Callable[[P, bool], RowKernels]
    ) -> None:
        program = row_after_row(program, around)
        plan = self.plan = plan_kernels(program, autotune)
        # Searches, and what torch sees launched, have no cooperative launches; a gradient takes more registers.
        launches_alike = not autotune and around.register == "none" and not around.is_gradient
        self.shared = share_rows(program) if launches_alike and program.reductions else None
        shared = None if self.shared is None else self.shared.kernel
        every = (plan.registers, plan.loop, plan.partial, plan.combine, plan.mapping, shared)
        kernels = [kernel for kernel in every if kernel is not None]
        super().__init__(program, autotune, plan.space, plan.compute, kernels, around)

    def module(self) -> Module:
        plan, host = self.plan, self.host
        rows, cols = self.space.row_axes, self.space.col_axes
        own = [r for r in self.op.results if not r.saved]
        is_empty, own_empty = (all(set(r.axes) & set(cols) for r in results) for results in (self.op.results, own))
        table = self.table()
        loop = self.searched(plan.loop, table.upper()) or plan.loop
        uniform = ", ".join(f"{name}_cols" for name in plan.uniform)
        registers = self.searched(plan.registers, "WARPS")
        shared = self.shared.kernel if self.shared else None
        shares, constants = self.shares_constants(), self.constants_of(loop)
        extra: dict[str, Any] = {
            "family": "rowwise",
            "nests": nest_views((registers, loop, shared, plan.partial, plan.combine, plan.mapping)),
            "table": table.upper(),
            "key": "key" if self.knows else "None",
            "autotune": self.autotune,
            "empty": empty_text((*rows, *(cols if is_empty else ()))),
            "empty_errors": [] if own_empty else host.empty_errors(),
            "sizes": self.size_lines(),
            "contiguous": self.contiguous_cols(),
            "shared_constants": constants if shares else "",
            "constants_text": "constants" if shares else constants,
            "args": self.args(loop),
            "vector": self.of_vectors() if "VECTOR" in plan.loop.constexprs else "",
            "uniform": plan.uniform and not self.autotune and f"tensors.steady(col_sizes, {uniform})",
            "searches_uniform": plan.uniform and self.autotune,
            "are_sums": plan.are_sums,
            "states": self.states(),
            "add_kernel": self.around.wrapped("sums.add_parts_kernel"),
            "shape": self.shape(loop),
            "loop": self.one(loop),
            **self.others(registers, loop),
            **self.known(loop),
        }
        # No other kernel is asked whether it suits rows that registers do not hold, or it suits none that they do.
        extra["runs"] = registers and not (plan.partial or plan.are_sums or self.autotune or extra["uniform"])
        extra["lengths"] = self.lengths(*self.reading_lengths(extra))
        kinds = {table}
        if plan.registers is not None:
            kinds |= {"registers", "warps"} if self.autotune else {"registers"}
        return Module(self.view(extra), self.traffic(kinds))

    def others(self, registers: Kernel | None, loop: Kernel) -> dict[str, Any]:
        """The kernels beside the loop, each None where there is none, and what only they need."""
        plan = self.plan
        beside = {"registers": registers, "partial": plan.partial, "combine": plan.combine, "mapping": plan.mapping}
        extra: dict[str, Any] = {name: kernel and self.one(kernel) for name, kernel in beside.items()}
        extra["cooperative"] = None
        if plan.combine is not None:
            extra["counted"] = "split_cols" in plan.combine.passed
        if plan.mapping is not None:
            assert plan.partial is not None
            extra |= {"blocks_of_first": _of_blocks(plan.partial), "blocks_of_map": _of_blocks(plan.mapping)}
        if self.shared is not None:
            assert self.given(self.shared.kernel) == self.given(loop)  # It is called with what the loop is.
            fields = {name: getattr(self.shared, name) for name in ("tensors", "words", "merges")}
            extra["cooperative"] = self.one(self.shared.kernel) | fields
        return extra

    def reading_lengths(self, extra: dict[str, Any]) -> Iterator[str]:
        """The texts of host code that may read lengths."""
        plan = self.plan
        yield from (condition for condition, _ in extra["empty_errors"])
        yield from (*extra["sizes"], extra["args"])
        yield from (self.args(kernel) for kernel in (plan.partial, plan.combine, plan.mapping) if kernel)
        yield from ("n_cols" if extra["uniform"] and plan.registers else "", extra["shape"])

    def shape(self, loop: Kernel) -> str:
        """The per-row values and columns, where the kernels do not take both: of one row, as it may be."""
        return "" if {"n_rows", "n_cols"} <= {*self.own_sizes(loop)} else "(n_rows, n_cols)"

    def one(self, kernel: Kernel) -> dict[str, Any]:
        """A kernel, what launches it, and what it takes."""
        own, of_loop = (self.constants_of(one) for one in (kernel, self.plan.loop))
        shares = self.shares_constants() and own == of_loop
        return kernel_view(kernel) | {
            "launcher": self.around.launcher(kernel.name),
            "args": self.args(kernel),
            "constants": "constants" if shares else own,
        }

    def shares_constants(self) -> bool:
        """Whether several kernels are compiled for the same, which gets a name."""
        return self.plan.partial is not None and self.constants_of(self.plan.loop) != "{}"

    def states(self) -> str:
        """The dtypes of the states of a part of a row."""
        states = self.plan.states
        dtypes = [self.torch_dtype(dtype) for _, dtype, _ in states]
        if len(set(dtypes)) == 1 and len(states) > 1 and not any(path for _, _, path in states):
            return f"({dtypes[0]},) * {len(states)}"
        paths = [f" if {condition_text(path)} else None" if path else "" for _, _, path in states]
        return tuple_text([f"{dtype}{path}" for dtype, path in zip(dtypes, paths, strict=True)])

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
        reducing, col_dims = not self.program.maps_back, len(self.space.cols)
        return Traffic(frozenset(kinds), streams, vectors, flags, reducing, online, in_place, col_dims=col_dims)

    def torch_dtype(self, dtype: str) -> str:
        if dtype == "INDEX":
            return "torch.int64"
        if dtype == "COMPUTE":
            return "tensors.torch_dtype(compute)"
        return {
            "tl.float32": "torch.float32",
            "tl.int64": "torch.int64",
            "tl.int32": "torch.int32",
        }[dtype]

    def table(self) -> str:
        """The kind of the table of the loop along a row."""
        if not self.program.reductions:
            return self.plan.table
        if self.is_read_by_rows() and gathered(self.op):
            return "lookup"
        # Of the elements that are compared, none is read for one row alone.
        every = {*self.space.row_axes, *self.space.col_axes}
        axes = [{*load.axes} for load in self.loads]
        are_pairs = every in [one | other for one in axes for other in axes] and every not in axes
        return "pairs" if are_pairs and not self.program.maps_back and self.plan.registers is None else "loop"

    def of_vectors(self) -> str:
        """The tensor whose elements tell how many columns a thread loads at once: the largest, or the first that is not
        optional.
        """
        required = [tensor.name for tensor in self.op.inputs if tensor.default is None]
        return self.largest() if self.largest() in required else required[0]


def _of_blocks(kernel: Kernel) -> str:
    """The constants that a kernel takes and that follow from its blocks, "" where there are none."""
    names = [repr(name) for name in kernel.constexprs if name in OF_BLOCKS]
    return tuple_text(names) if names else ""
