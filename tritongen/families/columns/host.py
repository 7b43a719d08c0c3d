"""The view of a function that maps rows and sums over them: see `tritongen.families.columns.kernels`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...emit.configs import Traffic
from ...emit.module import Around, Module, is_empty
from ...emit.statements import Do, Launch, Let, call
from ...lang.ir import Op, Result
from ...lang.rewrite import as_loads
from ...lowering.lower import compute_of
from ...nest.values import Expr, Term, V, expr
from ...passes.structure import Program
from ...planner.steps import restricted
from ...spec.types import COMPUTED, Input, TensorType, plain_shape
from ..rowwise.sizes import RowSizes
from .kernels import Sums, SumsKernel
from .program import SumsProgram


class SumsModule(RowSizes):
    """The module of kernels with column sums; `rows` is the operator that reduces the rows alone, if that is a step."""

    def __init__(self, program: SumsProgram, around: Around, rows: Op | None) -> None:
        self.sums, self.rows, self.once = program.sums, rows, not program.waits
        full = Sums(program)
        self.full = full.in_full() if program.reductions else None
        self.shared = full.by_ctas() if program.reductions else None
        self.tiles = (Sums(program, _given(program, rows), full.space) if rows else full).by_tiles()
        # Sums are stored contiguously, whatever the layout of the weights that they are gradients of.
        op = replace(program.op, by_row=program.op.by_row | set(program.sums))
        kernels = [one.kernel for one in (self.full, self.shared, self.tiles) if one is not None]
        super().__init__(Program(op, program.cols), False, full.space, full.compute, kernels, around)
        # CTAs share only rows with contiguous columns, and registered operators have no cooperative launches.
        if self.shared and (self.contiguous == expr(False) or around.register == "triton_op"):
            self.kernels.remove(self.shared.kernel)
            self.shared = None

    def module(self) -> Module:
        space = self.space
        every = {*space.row_axes, *space.col_axes}
        zeros = tuple(result.output.name for result in self.op.results if {*result.axes} != every)  # sums
        zeroing = [Do(call("columns.zero", *zeros))] if zeros else []
        nothing = self.nothing_for(is_empty((*space.row_axes, *space.col_axes)), *zeroing)
        known = self.known((self.full or self.tiles).kernel, *self.sums)
        body = self.function(self.launches(), known, self.sized(nothing))
        found = {"sums": self.tiles, "whole": self.full, "shared": self.shared}
        kinds = frozenset(kind for kind, kernel in found.items() if kernel is not None)
        strided = self.contiguous is not None
        return self.built(body, Traffic(kinds, sums=len(self.sums), strided=strided, once=self.once))

    def launches(self) -> Iterator[Let | Launch]:
        full, shared, tiles = self.full, self.shared, self.tiles.kernel
        first = full.kernel if full else tiles
        own: dict[str, Term] = {"args": self.args(first), "constants": self.constants_of(first)}
        every = call(
            "columns.Call",
            self.key,
            compute="compute" if self.compute.constexpr else self.compute.text,
            sums=self.sums,
            **own,
            contiguous=self.contiguous,
            # Kernels that the runtime launches are not wrapped by default.
            add_kernel=self.around.wrapped("reduce.reduce_partials_kernel"),
        )
        yield Let("call", every)
        if full:
            run = call("columns.run_full", "call", self.table_of("WHOLE"), self.launcher(first), reads=self.read(full))
            yield Launch(run, ends=self.returned)
        if shared:
            launcher, words = self.launcher(shared.kernel), len(shared.slots)
            run = call("columns.run_cooperative", "call", launcher, reads=self.read(shared), n_words=words)
            yield Launch(run, ends=self.returned)
        of_tiles: dict[str, Term] = {"args": self.args(tiles), "constants": self.constants_of(tiles)}
        changed = {name: value for name, value in of_tiles.items() if value != own[name]}
        passed = V.call.method("_replace", **changed) if changed else "call"
        rows = self.rows_function() if full else None
        yield Launch(call("columns.run_tiles", passed, self.table_of("SUMS"), self.launcher(tiles), rows=rows))

    @property
    def contiguous(self) -> Expr | None:
        """Whether columns are contiguous in memory in all tensors; None if the axes of all determine that they are."""
        cols = {*self.space.col_axes}
        moving = self.host.moving(self.space.cols)
        laid_out = {axes[-1] in cols for _, axes, _ in moving if self.space.steps(axes, self.space.rows)}
        if laid_out == {False, True}:
            return expr(False)
        return self.contiguous_cols() if False in laid_out else None

    def read(self, kernel: SumsKernel) -> tuple[str, ...]:
        """The inputs that each iteration of a kernel reads along the columns."""
        return tuple(tensor.name for tensor in self.op.inputs for _ in range(kernel.reads.count(tensor.name)))

    def rows_function(self) -> Expr:
        """The call of the function that reduces the rows alone."""
        assert self.rows is not None
        tensors, params = self.rows.inputs, self.rows.params
        return call(f"_{self.rows.name}", *(one.name for one in tensors), *(one.name for one in params))


def _given(program: SumsProgram, rows: Op) -> Op:
    """The operator with the row statistics as inputs, and without the inputs that only these need."""
    op, names = program.op, program.of_rows
    inputs = [Input(r.output.name, TensorType(_stored_as(rows, r), plain_shape(r.axes))) for r in rows.results]
    results = {result.output.name for result in op.results}
    values = tuple(
        replace(value, node=as_loads(value.ref if value.name in names else value.node, names, of_their_own=True))
        for value in op.values
        if value.name not in names or value.name in results
    )
    given = replace(op, inputs=(*inputs, *op.inputs), values=values, by_row=op.by_row | {*names.values()})
    return restricted(given, op.results, "")


def _stored_as(rows: Op, result: Result) -> tuple[str, ...]:
    """The dtypes in which the function that reduces the rows stores a result; COMPUTED is float32 if all is."""
    dtypes = result.dtype.intermediates
    return ("float32",) if dtypes == COMPUTED and compute_of(rows).text == "tl.float32" else dtypes
