"""The family of in-place scaling: multiplies each row of a gradient that the forward has written by a factor.

Rows whose factor is 1, as for all rows if a loss is summed, are neither read nor written.
"""

from __future__ import annotations

from dataclasses import replace

from ..emit.configs import Traffic
from ..emit.module import Around, Module
from ..emit.statements import Launch, Statement, call
from ..lang.ir import Call, Load, Op
from ..lowering.assemble import Assembler
from ..lowering.lower import compute_of
from ..lowering.space import row_space
from ..lowering.tile import Tile
from ..lowering.views import Argument, Kernel, Pass
from ..nest.ir import Branch, Do, Let, Return
from ..nest.values import Term, V, tl
from ..passes.structure import Program
from .family import Family, Step
from .rowwise.sizes import RowSizes


def scaled_kernel(tile: Tile) -> Kernel:
    """The kernel that multiplies the second input by the first, whose memory its result takes."""
    op = tile.op
    factors, rows = op.inputs
    factor = V[factors.name]
    assembler = Assembler(tile, grouped=True)
    setup = [
        *assembler.bases(()),
        *tile.load_lines(factors),
        Let("row_mask", V.row_mask & factor.differs(1), comment="Factors of 1 change nothing: skip their rows."),
        Branch(tl.sum(V.row_mask.to("tl.int32")).equals(0), (Return(),)),
    ]
    row = V[rows.name]
    scaled = tl.where(row.equals(0), row, row * factor)
    address = tile.address(tile.tensor(rows)).value
    stays = "Zeros stay zero, also under a factor that is infinite or NaN."
    store = Do(tl.store(address, scaled, mask=V.tile_mask), comment=stays)
    walk = Pass("", (), (*tile.load_lines(rows), store), ())
    doc = f"Scales {rows.name} by {factors.name} in place; rows whose {factors.name} is 1 are skipped."
    kernel = assembler.by_chunks("kernel", doc, setup, walk, ())
    return replace(kernel, arguments=(*kernel.arguments, Argument("split_cols", V.split_cols)))


class ScaledModule(RowSizes):
    """The module of the kernel that multiplies rows."""

    def __init__(self, program: Program, around: Around) -> None:
        op = replace(program.op, results=())  # The result is passed as an input.
        tile = Tile(op, row_space(program.op, program.over), compute_of(op))
        self.kernel, self.result = scaled_kernel(tile), program.op.results[0]
        super().__init__(replace(program, op=op), False, tile.space, tile.compute, [self.kernel], around)

    def module(self) -> Module:
        name = self.result.output.name
        launch = call(
            "rowwise.run_splits",
            shape=("n_rows", "n_cols"),
            contiguous=(self.column_strides.get(name) or V[f"{name}_cols"][-1]).is_in((0, 1)),
            args=self.args(self.kernel),
            constants=self.constants_of(self.kernel, self.index()),
            tiles=(self.table_of("TILE"), self.launcher(self.kernel)),
        )
        nothing = self.nothing_for(V.n_rows.equals(0).or_(V.n_cols.equals(0)))
        body = self.function([Launch(launch)], between=self.sized(nothing))
        return self.built(body, Traffic(frozenset({"tile"})))

    def allocated(self) -> list[Statement]:
        return []

    @property
    def returned(self) -> Term:
        return self.host.regrouped(self.result)


class Scaled(Family[Program]):
    """A result that overwrites an input with its product with a factor, which lacks the columns."""

    title = "in-place scaling"

    def take(self, op: Op) -> Program | None:
        if len(op.results) > 1 or op.results[0].output.name not in {tensor.name for tensor in op.inputs}:
            return None
        node = op.results[0].node
        assert isinstance(node, Call)
        factor, rows = node.args
        assert isinstance(factor, Load)
        return Program(op, tuple(axis for axis in rows.axes if axis not in factor.axes))

    def module(self, program: Program, before: Step | None, around: Around, autotune: bool) -> Module:
        return ScaledModule(program, around).module()


SCALED = Scaled()
