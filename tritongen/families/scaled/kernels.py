"""A kernel that multiplies rows by a number each, in place: of a gradient that the forward has written.

Rows whose number is 1, as all are where a loss is summed, are neither read nor written.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from ...lang.ir import Node
from ...lowering.assemble import Assembler
from ...lowering.choices import Choices
from ...lowering.lower import Compute, Lowering, compute_of
from ...lowering.space import Space, row_space
from ...lowering.tile import Tile
from ...lowering.views import Argument, Kernel, Pass
from ...nest.ir import Branch, Do, Let, Return
from ...nest.values import V, tl
from ...passes.structure import Program


@dataclass(frozen=True, slots=True)
class ScaledKernel:
    space: Space
    compute: Compute
    kernel: Kernel


def plan_scaled(program: Program) -> ScaledKernel:
    """The kernel that multiplies the second input by the first, whose memory its result takes."""
    space = row_space(program.op, program.over, tuple(value.node for value in program.op.values))
    op = replace(program.op, results=())
    compute = compute_of(op)
    factors, rows = op.inputs
    factor = V[factors.name]
    tile = Tile(op, space, compute)
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
    lowering = Lowering(op, compute, tile.index, tile.size, tile.load, _no_reductions, Choices(op))
    kernel = assembler.part("kernel", doc, lowering, setup, walk, ())
    arguments = (*kernel.arguments, Argument("split_cols", "split_cols"))
    return ScaledKernel(space, compute, replace(kernel, arguments=arguments))


def as_argument(program: Program) -> Program:
    """The program as the host sees it, to which the result is an argument."""
    return replace(program, op=replace(program.op, results=()))


def _no_reductions(node: Node, _: Lowering) -> ast.expr:
    raise AssertionError(f"nothing is reduced here, but {node} is")
