"""Kernels that map each element: a flat one for contiguous data, and a strided one for all else."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from ...lang.ir import Reduce
from ...lowering.assemble import Assembler
from ...lowering.lines import Line
from ...lowering.lower import Compute, Lowering, compute_of
from ...lowering.space import Dim, Space, map_space
from ...lowering.tile import Tile, needed
from ...lowering.views import Kernel
from ...passes.structure import Program
from ...spec.types import BATCH


@dataclass(frozen=True, slots=True)
class MapKernels:
    """The kernels of an elementwise program.

    `body` is the math on one run of elements, which `flat` calls; both are None where an input
    lacks an axis or the math uses an index, since such data is not one run.
    """

    space: Space
    compute: Compute
    body: Kernel | None
    flat: Kernel | None
    strided: Kernel


def plan_map(program: Program) -> MapKernels:
    op = program.op
    axes = op.results[0].axes
    nodes = tuple(value.node for value in op.values)
    space = map_space(op, nodes)
    compute = compute_of(op)
    shape = "Elements in a line" if is_line(space) else "A tile of rows by columns"
    strided = _kernel(program, space, compute, "strided_kernel", f"{shape}, with any strides.")
    body = flat = None
    if not space.split:
        run = Space((), (Dim(axes, "offsets", "n", "", False),), split=False, flat=True)
        body = _kernel(program, run, compute, "tile", "")
        flat = replace(body, name=f"{op.name}_kernel", doc="Contiguous data, as one run of elements.")
    return MapKernels(space, compute, body, flat, strided)


def is_line(space: Space) -> bool:
    """Whether there is a single dimension, so that tiles have no rows."""
    (dim, *others) = space.dims
    return not others and dim.axes != (BATCH,)


def _kernel(program: Program, space: Space, compute: Compute, suffix: str, doc: str) -> Kernel:
    op = program.op
    tile = Tile(op, space, compute)
    assembler = Assembler(tile)

    def reduce(node: Reduce, lowering: Lowering) -> ast.expr:
        raise AssertionError("an elementwise program has no reductions")

    lowering = Lowering(op, compute, tile.index, tile.size, tile.load, reduce, assembler.choices)
    values = needed(op.values, [result.output.name for result in op.results])
    lines: list[Line] = assembler.reads(values)
    for value in values:
        lines += lowering.line(value)
    stores = assembler.stores(op.results)
    setup = assembler.bases(op.results)
    return assembler.kernel(suffix, doc, setup, lines, (), stores, lowering, tiles=not space.flat)
