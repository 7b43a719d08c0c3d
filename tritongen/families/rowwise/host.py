"""The view of a function that reduces rows, and may broadcast them back: see `tritongen.families.rowwise.kernels`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...emit.configs import Traffic
from ...emit.module import OF_BLOCKS, Around, Module, is_empty
from ...emit.statements import Launch, Let, call
from ...lang.ir import Reduce
from ...lowering.views import Kernel
from ...nest.conditions import condition_tree
from ...nest.values import Expr, Term, V, either, expr, quoted, tensors
from ...passes.structure import gathered
from ..family import P
from .rows import Rows
from .shared import SharedRows, share_rows
from .sizes import RowSizes, row_after_row


class RowsModule(RowSizes):
    """The module of kernels over rows, which `kind` plans."""

    def __init__(self, program: P, autotune: bool, around: Around, kind: Callable[[P, bool], Rows]) -> None:
        program = row_after_row(program, around)
        plan = self.plan = kind(program, autotune)
        # No cooperative launches in searches or registered operators; a gradient takes more registers.
        may_cooperate = not autotune and around.register == "none" and not around.is_gradient
        self.shared = share_rows(program) if may_cooperate and program.reductions else None
        kernels = [*plan.kernels.values(), *([self.shared.kernel] if self.shared else [])]
        super().__init__(program, autotune, plan.space, plan.compute, kernels, around)
        self.registers, self.partial = plan.kernels.get("registers"), plan.kernels.get("partial")
        self.loop = plan.kernels["loop"]

    def module(self) -> Module:
        plan = self.plan
        rows, cols = self.space.row_axes, self.space.col_axes
        own = [r for r in self.op.results if not r.saved]
        are_empty, own_empty = (all(set(r.axes) & set(cols) for r in results) for results in (self.op.results, own))
        searched = self.searched(self.registers, "WARPS"), self.searched(self.loop, self.kind)
        shared = self.shared.kernel if self.shared else None
        stages = (plan.kernels.get(kind) for kind in ("partial", "combine", "mapping"))
        nothing = self.nothing_for(is_empty((*rows, *(cols if are_empty else ()))))
        errors = [] if own_empty else self.host.empty_errors()
        body = self.function(self.launches(), self.known(self.loop), self.sized([*nothing, *errors]))
        kinds = {self.table()}
        if self.registers is not None:
            kinds |= {"registers", "warps"} if self.autotune else {"registers"}
        nests = [kernel for kernel in (*searched, shared, *stages) if kernel is not None]
        return self.built(body, self.traffic(kinds), nests=nests)

    @property
    def kind(self) -> str:
        """The prefix of the name of the table of the loop along a row."""
        return self.table().upper()

    def launches(self) -> Iterator[Let | Launch]:
        """The launches, kernels for the shortest rows first; each returns from the function if it suits the rows."""
        plan, search = self.plan, self.autotune
        if self.shares_constants():
            yield Let("constants", self.constants_of(self.loop))
        if self.is_uniform:
            steady = tensors.steady("col_sizes", *(f"{name}_cols" for name in plan.uniform))
            yield Let("table", call("heuristics.Uniform", self.table_of_loop(), steady))
        yield Let("rows", self.rows())
        registers = (self.table_of("REGISTERS"), self.launcher(self.registers)) if self.registers else ()
        rows = self.rows_in_registers()
        # Without other candidates, a single call runs the kernel in registers or the loop.
        runs = registers and rows == "rows" and not (self.partial or plan.are_sums or search or self.is_uniform)
        if registers and not runs:
            run = call("rowwise.search_registers" if search else "rowwise.run_registers", rows, *registers)
            once = call("table.reads_once", "n_cols")
            yield Launch(run, once.negated if self.is_uniform else None, ends=self.returned)
        last = call("rowwise.run", "rows", *registers) if runs else self.by_loop()
        if self.shared is not None:
            assert self.given(self.shared.kernel) == self.given(self.loop)  # It gets the arguments of the loop.
            yield Launch(
                self.cooperative(self.shared), ends="" if runs else self.returned, instead=last if runs else None
            )
        if self.partial and not plan.are_sums:
            states, partial = self.states(), self.launch_of(self.partial)
            yield Let("split", call("rowwise.Split", states=states, **partial))
            yield Launch(self.merged(self.partial), ends=self.returned)
        if not (runs and self.shared):
            yield Launch(last)

    @property
    def is_uniform(self) -> bool:
        """Whether the table depends on which tensors have a stride of 0 along the columns."""
        return bool(self.plan.uniform) and not self.autotune

    def table_of_loop(self) -> Expr:
        table = self.table_of(self.kind)
        return table if self.registers or self.kind == "SORT" else call("heuristics.Simple", table)

    def rows(self) -> Expr:
        """The rows as launches take them, with the kernel that loops along each."""
        loop = self.loop
        return call(
            "rowwise.Rows",
            self.key,
            contiguous=self.contiguous_cols(),
            table="table" if self.is_uniform else self.table_of_loop(),
            kernel=self.launcher(loop),
            args=self.args(loop),
            constants=self.own_constants(loop),
            vector=self.of_vectors() if "VECTOR" in loop.constexprs else "",
            # The lengths, if the loop's kernel does not take both, e.g. because there is a single row.
            shape="" if {V.n_rows, V.n_cols} <= {*self.own_sizes(loop)} else ("n_rows", "n_cols"),
        )

    def rows_in_registers(self) -> Term:
        """The rows as the kernel in registers takes them: a loop may reduce what that computes on one path only."""
        loop, own = self.launch_of(self.loop), self.launch_of(self.registers or self.loop)
        replaced = {name: own[name] for name in ("args", "constants") if own[name] != loop[name]}
        return call("rows._replace", **replaced) if replaced else "rows"

    def by_loop(self) -> Expr:
        """The call of the kernel that loops along each row, which suits rows of any length."""
        if self.plan.are_sums:
            added = self.around.wrapped("reduce.reduce_partials_kernel")
            return call("rowwise.run_sums", "rows", states=self.states(), add_kernel=added)
        if not self.autotune:
            return call("rowwise.run_loop", "rows")
        return call("rowwise.search_loop", "rows", UNIFORM=expr(False) if self.plan.uniform else None)

    def cooperative(self, shared: SharedRows) -> Expr:
        launcher, merges = self.launcher(shared.kernel), quoted(shared.merges)
        run = "rowwise.run_cooperative"
        held = tuple(tensor.name for tensor in shared.streamed())
        return call(run, "rows", launcher, held=held, n_words=len(shared.exchanged), merges=merges)

    def merged(self, partial: Kernel) -> Expr:
        """The call that merges the partial states of each row, and broadcasts them back if there is such a kernel."""
        if mapping := self.plan.kernels.get("mapping"):
            own = self.launch_of(mapping)
            blocks = {"first": _of_blocks(partial), "own": _of_blocks(mapping)}
            return call("rowwise.run_split_map", "rows", "split", own.pop("kernel"), **own, **blocks)
        combine = self.plan.kernels["combine"]
        own, is_counted = self.launch_of(combine), "split_cols" in combine.names
        return call("rowwise.run_split_merge", "rows", "split", own.pop("kernel"), **own, counted=is_counted)

    def launch_of(self, kernel: Kernel) -> dict[str, Term]:
        """A kernel, with its arguments and constants."""
        own = self.own_constants(kernel)
        return {"kernel": self.launcher(kernel), "args": self.args(kernel), "constants": own}

    def own_constants(self, kernel: Kernel) -> Term:
        """The constants of a kernel; `constants` if they equal the loop's, and those have a name."""
        own = self.constants_of(kernel)
        return "constants" if self.shares_constants() and own == self.constants_of(self.loop) else own

    def shares_constants(self) -> bool:
        """Whether a split shares constants with the loop, so that they get a name."""
        return self.partial is not None and bool(self.constants_of(self.loop))

    def states(self) -> Term:
        """The dtypes of the partial states of a row."""
        states = self.plan.states
        known = {"INDEX": expr("torch.int64"), "COMPUTE": tensors.torch_dtype("compute")}
        dtypes = [known.get(dtype) or expr(dtype.replace("tl.", "torch.")) for _, dtype, _ in states]
        if len(set(dtypes)) == 1 and len(states) > 1 and not any(path for _, _, path in states):
            return expr((dtypes[0],)) * len(states)
        paths = (path for _, _, path in states)
        each = zip(dtypes, paths, strict=True)
        return tuple(either(condition_tree(path), dtype, None) if path else dtype for dtype, path in each)

    def traffic(self, kinds: set[str]) -> Traffic:
        steps, rows, cols = self.space.steps, self.space.rows, self.space.cols
        moves = [(steps(t.type.axes, rows), steps(t.type.axes, cols)) for t in self.op.inputs]
        streams = sum(bool(cols) and (bool(rows) or not self.space.rows) for rows, cols in moves)
        flags = all(isinstance(v.node, Reduce) and v.node.kind in ("any", "all") for v in self.program.reductions)
        vectors = sum(bool(cols) and not rows for rows, cols in moves)
        online = "VECTOR" in self.loop.constexprs
        in_place = any(result.over for result in self.op.results)
        reducing, col_dims = not self.program.maps_back, len(self.space.cols)
        return Traffic(frozenset(kinds), streams, vectors, flags, reducing, online, in_place, col_dims=col_dims)

    def table(self) -> str:
        """The kind of the table of the loop along a row."""
        if not self.program.reductions:
            return self.plan.table
        if self.is_read_by_rows() and gathered(self.op):
            return "lookup"
        # Pairs: two inputs together have all rows and columns, but no input has all of them.
        every = {*self.space.row_axes, *self.space.col_axes}
        axes = [{*load.axes} for load in self.loads]
        are_pairs = every in [one | other for one in axes for other in axes] and every not in axes
        return "pairs" if are_pairs and not self.program.maps_back and self.registers is None else "loop"

    def of_vectors(self) -> str:
        """The tensor whose dtype determines how many columns a thread loads at once: the largest, or the first required
        input if that is none.
        """
        required = [tensor.name for tensor in self.op.inputs if tensor.default is None]
        return self.largest() if self.largest() in required else required[0]


def _of_blocks(kernel: Kernel) -> Term:
    """The constants of a kernel that follow from its blocks; None if there are none."""
    return tuple(quoted(name) for name in kernel.constexprs if name in OF_BLOCKS) or None
