"""Kernels that map elements, or windows of a few: a flat one for contiguous data, and a strided one for all else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...lowering.assemble import BLOCKS, Assembler
from ...lowering.lower import compute_of
from ...lowering.positions import COLS_IN_LINE, block, rows_by_cols
from ...lowering.space import Dim, ends_in_columns, is_line, map_space
from ...lowering.tile import Tensor, Tile, needed
from ...lowering.views import Argument, Kernel
from ...nest.ir import Advance, Nest, Run, lines_of, names_of
from ...nest.values import Term, V
from ...passes.scalars import passed_scalars
from ...passes.structure import Program, without_strides
from .windows import WindowLines, space_of_results, space_of_windows

FLAT = "Contiguous data, as one run of elements."
LINE = "Elements in a line, with any strides."
TILES = "A tile of rows by columns, with any strides."
SINGLE = "A single element."
RUN_BLOCKS = ("BLOCK", "INDEX")


class MapKernels:
    """The kernels of an elementwise program.

    `math` is a function on the elements that its pointers address. The `launched` kernels call it: on blocks of
    contiguous elements or of a single strided axis, and on tiles. If the space is split, since an input lacks an axis
    or the math uses an index, or has no dimensions, `math` is None, and a single launched kernel has the math itself.
    """

    math: Kernel | None = None

    def __init__(self, program: Program) -> None:
        op = self.op = program.op
        space = map_space(op, program.over)
        space = self.space = space_of_results(program, space) if program.maps_back else space
        tile = self.tile = Tile(op, space, compute_of(op))
        if space.split or not space.dims:
            is_plain = space.split and not is_line(space) and not program.over and ends_in_columns(op, space.col_axes)
            suffix, doc = ("strided_kernel", TILES) if space.dims and not is_line(space) else ("kernel", LINE)
            self.body = _kernel(replace(tile, aligned=is_plain), program, suffix, doc if space.dims else SINGLE)
            first = [*(one.pointer for one in self.tensors), *self.lengths, *self.strides]
            by_name = dict(zip(self.body.names, self.body.arguments, strict=True))
            self.others = tuple(argument for name, argument in by_name.items() if name not in first)
            self.launched = [replace(self.body, arguments=(*(by_name[name] for name in first), *self.others))]
            return
        self.body = _kernel(replace(tile, space=replace(space, rows=(), flat=True)), program, "tile", "")
        self.others = self.body.arguments[len(self.tensors) :]
        self.launched = [self.line()] if is_line(space) else [self.flat(), self.strided()]
        names = (*self.pointers, Argument("tile_mask", V.tile_mask), *self.others)
        plain = tuple(replace(argument, spelling=argument.name) for argument in names)
        self.math = replace(self.body, arguments=plain, fixed=())

    @property
    def sizes(self) -> list[Argument]:
        """The further lengths and strides that the math reads."""
        params = passed_scalars(self.op)
        return [argument for argument in self.others if argument.value.text not in params]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that the math takes pointers to."""
        tensors = [*map(self.tile.tensor, self.op.inputs), *map(self.tile.result, self.op.results)]
        return [tensor for tensor in tensors if tensor.pointer in self.body.names]

    @property
    def pointers(self) -> tuple[Argument, ...]:
        return self.body.arguments[: len(self.tensors)]

    @property
    def lengths(self) -> list[str]:
        """The lengths that a kernel is passed: rows, columns, and dimensions of the rows after the first."""
        if not self.space.dims or is_line(self.space):
            return ["n_cols"] if self.space.dims else []
        return ["n_rows", "n_cols", *(dim.size for dim in self.space.rows[1:] if dim.size.isidentifier())]

    @property
    def strides(self) -> list[str]:
        """The strides that a kernel is passed: for each tensor, along the dimensions that it moves along."""
        others = without_strides(self.op)
        moving = [tensor for tensor in self.tensors if tensor.name not in others]
        return [one.stride(dim) for one in moving for dim in self.space.steps(one.axes, self.space.dims)]

    # Kernels that run the math

    def flat(self) -> Kernel:
        return self.block(FLAT, "offsets", ["n"], self.moved())

    def line(self) -> Kernel:
        """One kernel for any strides, since Triton specializes on strides of 1."""
        return self.block(LINE, "cols", ["n", *self.strides], self.moved(self.space.cols))

    def strided(self) -> Kernel:
        walk = (*rows_by_cols(V.n_cols), *self.tile.row_decode(), *self.moved(self.space.rows, self.space.cols))
        return self.kernel("strided_kernel", TILES, [*self.lengths, *self.strides], (*walk, self.run()), BLOCKS)

    def block(self, doc: str, of: str, sizes: list[str], moved: Nest) -> Kernel:
        return self.kernel("kernel", doc, sizes, (*block(of), *moved, self.run(of)), RUN_BLOCKS)

    def moved(self, *groups: tuple[Dim, ...]) -> Nest:
        """Advances each pointer to its elements, along each group of dimensions, or along a contiguous run if none."""
        still = without_strides(self.op)
        moving = [tensor for tensor in self.tensors if tensor.axes and tensor.name not in still]
        steps = [tuple(tuple((dim.index, one.stride(dim)) for dim in dims) for dims in groups) for one in moving]
        run = ((("offsets", ""),),)
        return tuple(Advance(one.pointer, own or run, one.optional) for one, own in zip(moving, steps, strict=True))

    def run(self, of: str = "") -> Run:
        names, n_pointers = self.body.names, len(self.tensors)
        return Run(self.body.name, names[:n_pointers], (*names[n_pointers:], *self.body.constexprs), of)

    def kernel(self, suffix: str, doc: str, sizes: list[str], body: Nest, blocks: tuple[str, ...]) -> Kernel:
        arguments = (*self.pointers, *(Argument(name, V[name]) for name in sizes), *self.others)
        name = f"{self.op.name}_{suffix}"
        return replace(self.body, name=name, doc=doc, arguments=arguments, blocks=blocks, body=body)


def _walks(tile: Tile, end: Term, nest: list[Any]) -> tuple[Nest, tuple[str, ...]]:
    """The loop nest along a space of a kernel that has the math, and the names of its blocks."""
    reads = {name for line in lines_of(nest) for name in line.names}
    if not tile.space.dims or tile.space.flat:
        return (), ("INDEX",) if "INDEX" in reads and not tile.space.flat else ()
    if is_line(tile.space):
        return COLS_IN_LINE, RUN_BLOCKS
    cols = "cols" if reads & {"cols", "col_mask", "tile_mask"} else "_"
    return rows_by_cols(end, bool(reads & {"row_mask", "col_mask"}), cols), BLOCKS


def _kernel(tile: Tile, program: Program, suffix: str, doc: str) -> Kernel:
    op = tile.op
    assembler = Assembler(tile)
    windows = replace(tile, space=space_of_windows(program, tile.space)) if program.maps_back else tile
    values = needed(op.values, [result.output.name for result in op.results])
    inner = WindowLines(program, Assembler(windows), values)
    lines, stores = inner.lines(), assembler.stores(op.results)
    if program.maps_back:
        lines, stores = [*inner.decoded(), *lines, *inner.results(assembler)], []
    setup = assembler.bases(op.results)
    is_tile = bool(tile.space.dims) and not tile.space.flat
    lines = [*(tile.col_decode() if is_tile else ()), *lines]
    walks, blocks = _walks(tile, assembler.end, [*lines, *stores])
    kernel = assembler.kernel(suffix, doc, setup, lines, stores, walks=walks, blocks=blocks)
    if not program.maps_back:
        return kernel
    spread = replace(windows.space, cols=(), taken=(*windows.space.cols, *windows.space.taken))
    names = names_of(lines) - {*kernel.names}
    further = [argument for argument in Assembler(replace(windows, space=spread)).strides() if argument.name in names]
    params = [argument for argument in kernel.arguments if argument.value.text in passed_scalars(op)]
    others = [argument for argument in kernel.arguments if argument not in params]
    return replace(kernel, arguments=(*others, *further, *params))
