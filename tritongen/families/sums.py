"""Kernels that map rows and at the same time sum over them, as the gradient by a weight does.

Programs take rows in turn and each keeps a share of the sums; a second kernel adds up the shares.
So everything is read once, and the order of the additions is always the same.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from ..accumulate import lane
from ..assemble import param_casts
from ..ir import Load, Node, Op, Reduce, Ref, Value, walk
from ..lower import Compute, Line, Lowering
from ..space import Space
from ..structure import Program
from ..tile import needed
from ..views import Argument, Kernel
from .rows import _Builder


@dataclass(frozen=True, slots=True)
class SumsProgram:
    """An operator whose `sums` are over all axes but `cols`, and whose other reductions are over `cols`."""

    op: Op
    cols: tuple[str, ...]
    sums: tuple[str, ...]

    @property
    def over(self) -> tuple[str, ...]:
        return self.cols

    @property
    def reductions(self) -> tuple[Value, ...]:
        return tuple(v for v in self.op.values if isinstance(v.node, Reduce) and v.name not in self.sums)


@dataclass(frozen=True, slots=True)
class SumsKernel:
    """A kernel with what stands before its loop over rows, in it and after it."""

    kernel: Kernel
    before: tuple[Line, ...]
    inside: tuple[Line, ...]
    after: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class SumsKernels:
    """`whole` has rows whole in registers, where rows are reduced; `tiles` takes what those give as inputs."""

    space: Space
    compute: Compute
    whole: SumsKernel | None
    tiles: SumsKernel


def recognise_sums(op: Op) -> SumsProgram | None:
    """The program, where an operator is of this kind: results over all axes, and sums over all but the same few."""
    values = {value.name: value.node for value in op.values}
    sums = [r for r in op.results if isinstance(values[r.output.name], Reduce)]
    mapped = [r for r in op.results if r not in sums]
    if not sums or not mapped:
        return None
    every = set(mapped[0].axes)
    cols = sums[0].axes
    names = {result.output.name for result in sums}
    nodes = [node for name, value in values.items() if name not in names for node in walk(value)]
    fits = (
        all(set(r.axes) == every for r in mapped) and all(r.axes == cols for r in sums) and 0 < len(cols) < len(every)
    )
    for result in sums:
        node = values[result.output.name]
        assert isinstance(node, Reduce)
        fits &= node.kind == "sum" and set(node.over) == every - set(cols)
    fits &= all(set(node.over) == set(cols) for node in nodes if isinstance(node, Reduce))
    fits &= not any(isinstance(node, Ref) and node.name in names for value in values.values() for node in walk(value))
    fits &= not any(isinstance(node, Load) and node.at for node in nodes)
    return SumsProgram(op, cols, tuple(r.output.name for r in sums)) if fits else None


def statistics(program: SumsProgram, name: str) -> Op | None:
    """The operator that reduces the rows alone, for rows that are too long to be whole in registers."""
    values = program.reductions
    if not values:
        return None
    found = tuple(needed(program.op.values, [value.name for value in values]))
    nodes = [node for value in found for node in walk(value.node)]
    read = {node.name for node in nodes if isinstance(node, Load)}
    params = {getattr(node, "name", "") for node in nodes}
    op = program.op
    return replace(
        op,
        name=name,
        inputs=tuple(tensor for tensor in op.inputs if tensor.name in read),
        params=tuple(param for param in op.params if param.name in params),
        values=found,
        by_row=frozenset(tensor for tensor in op.by_row if tensor in read) | {value.name for value in values},
    )


def plan_sums(program: SumsProgram, given: Op) -> SumsKernels:
    """The kernels; `given` is the operator with what the rows reduce to as inputs, the same if they do not."""
    whole = None
    if program.reductions:
        whole = _kernel(program, program.op, "kernel", "Rows whole in registers, and each program's share of the sums.")
    tiles = _kernel(program, given, "tiles_kernel", "Tiles of rows by columns, and each program's share of the sums.")
    builder = _Builder(Program(_mapped(program, program.op), program.cols))
    return SumsKernels(builder.space, builder.compute, whole, tiles)


def _mapped(program: SumsProgram, op: Op) -> Op:
    """The operator with what is summed in place of the sums."""
    values = tuple(_summand(v) if v.name in program.sums else v for v in op.values)
    return replace(op, values=values, results=tuple(r for r in op.results if r.output.name not in program.sums))


def _summand(value: Value) -> Value:
    assert isinstance(value.node, Reduce)
    return replace(value, node=value.node.arg)


def _kernel(program: SumsProgram, op: Op, suffix: str, doc: str) -> SumsKernel:
    op = _mapped(program, op)
    builder = _Builder(Program(op, program.cols))
    tile, assembler, lowering = builder.tile, builder.assembler, builder.lowering(False)
    before, inside = list[Line](), list[Line]()
    for tensor in op.inputs:
        rows, _ = tile.moves(tensor.type.axes)
        (inside if rows else before).extend(tile.load_lines(tensor))
    for value in op.values:
        inside += _added(builder, value, lowering) if value.name in program.sums else lowering.line(value)
    inside += assembler.stores(op.results)
    after: list[Line] = []
    for name in program.sums:
        before.append(Line(f"{name} = tl.zeros([BLOCK_M, BLOCK_N], {builder.compute.text})"))
        share = f"{name}_part_ptr + tl.program_id(0) * n_cols + cols"
        after += [
            Line(f"if {name}_part_ptr is not None:"),
            Line(f"    {name} = tl.sum({name}, axis=0, keep_dims=True)"),
            Line(f"    tl.store({share}, {name}, mask=col_mask)"),
        ]
    setup = assembler.bases(op.results)
    kernel = assembler.kernel(suffix, doc, setup, [*before, *inside, *after], (), [], lowering)
    casts = tuple(line for line in param_casts(op, builder.compute, lowering) if line in kernel.setup)
    decode = tuple(line for line in kernel.setup if line not in casts)
    pointers = tuple(a for a in kernel.arguments if a.spelling.endswith("_ptr"))
    rest = tuple(a for a in kernel.arguments if a not in pointers)
    if not any(a.spelling == "n_rows" for a in rest):
        rest = (Argument("n_rows", "n_rows"), *rest)
    parts = tuple(Argument(f"{name}_part_ptr", f"{name}_part") for name in program.sums)
    kernel = replace(kernel, arguments=(*pointers, *parts, *rest))
    cols = () if len(tile.space.cols) == 1 else tile.col_decode()
    return SumsKernel(kernel, (*casts, *cols, *before), (*decode, *inside), tuple(after))


def _added(builder: _Builder, value: Value, lowering: Lowering) -> list[Line]:
    """Takes a tile into a sum, where the sum is asked for."""
    lowering.target, lowering.pending = value.name, []
    text = ast.unparse(lowering.expression(value.node))
    rows = tuple(axis for axis in builder.space.row_axes)
    if _beyond(builder.op, value.node, rows) != "0":
        text = f"tl.where(row_mask, {text}, 0.0)"
    lines = [*lowering.pending, Line(f"{value.name} += {text}")]
    lowering.pending = []
    guard = Line(f"if {value.name}_part_ptr is not None:", f"{value.name} = {value.source}" if value.source else "")
    return [guard, *(Line(f"    {line.text}", line.comment) for line in lines)]


def _beyond(op: Op, node: Node, rows: tuple[str, ...]) -> str:
    """What a summand is in the rows past the last, where loads give 0."""
    return lane(op, node, rows, "0.0")
