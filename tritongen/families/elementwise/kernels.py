"""Kernels that map elements, or windows of a few: a flat one for contiguous data, and a strided one for all else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...lang.ir import Op
from ...lowering.assemble import BLOCKS, Assembler
from ...lowering.lower import Compute, compute_of
from ...lowering.positions import COLS_IN_LINE, block, rows_by_cols
from ...lowering.space import Dim, Space, ends_in_columns, is_line, map_space
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


@dataclass(frozen=True, slots=True)
class MapKernels:
    """The kernels of an elementwise program.

    `math` is on elements that pointers are at, run by those that are launched: on blocks of one run of elements or of
    all that are in a line, and on tiles. Where an input lacks an axis or the math uses an index, the one that is
    launched has the math itself, as has that of a single element. `sizes` are lengths and strides that the math asks
    for besides.
    """

    space: Space
    compute: Compute
    sizes: tuple[Argument, ...]
    launched: tuple[Kernel, ...]
    math: Kernel | None = None


def plan_map(program: Program) -> MapKernels:
    op = program.op
    space, compute = map_space(op, tuple(value.node for value in op.values), program.over), compute_of(op)
    space = space_of_results(program, space) if program.maps_back else space
    tile = Tile(op, space, compute)
    if not space.dims:
        single = _kernel(tile, program, "kernel", SINGLE)
        return MapKernels(space, compute, _sizes(op, single.arguments[len(_tensors(tile, single)) :]), (single,))
    if space.split:
        is_plain = not is_line(space) and not program.over and ends_in_columns(op, space.col_axes)
        strided, sizes = _with_math(replace(tile, aligned=is_plain), program)
        return MapKernels(space, compute, sizes, (strided,))
    pointed = replace(tile, space=replace(space, rows=(), flat=True))
    callers = Callers(tile, _kernel(pointed, program, "tile", ""))
    launched = (callers.line(),) if is_line(space) else (callers.flat(), callers.strided())
    return MapKernels(space, compute, _sizes(op, callers.others), launched, callers.math())


def _sizes(op: Op, arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """The arguments that are no params."""
    params = passed_scalars(op)
    return tuple(argument for argument in arguments if argument.value not in params)


def _with_math(tile: Tile, program: Program) -> tuple[Kernel, tuple[Argument, ...]]:
    """A strided kernel that has the math itself, its arguments in the order in which they are passed; and `sizes`."""
    line = is_line(tile.space)
    kernel = _kernel(tile, program, "kernel", LINE) if line else _kernel(tile, program, "strided_kernel", TILES)
    tensors = _tensors(tile, kernel)
    sizes = ["n_cols"] if line else _tile_sizes(tile)
    first = [*(tensor.pointer for tensor in tensors), *sizes, *_strides(tile, tensors)]
    by_name = dict(zip(kernel.names, kernel.arguments, strict=True))
    rest = [argument for name, argument in by_name.items() if name not in first]
    return replace(kernel, arguments=(*(by_name[name] for name in first), *rest)), _sizes(tile.op, rest)


def _tensors(tile: Tile, kernel: Kernel) -> list[Tensor]:
    """The tensors that a kernel takes pointers to."""
    tensors = [*map(tile.tensor, tile.op.inputs), *map(tile.result, tile.op.results)]
    return [tensor for tensor in tensors if tensor.pointer in kernel.names]


def _tile_sizes(tile: Tile) -> list[str]:
    """The lengths that a kernel on tiles is passed: of rows and columns, and of dimensions that rows are made of."""
    return ["n_rows", "n_cols", *(dim.size for dim in tile.space.rows[1:] if dim.size.isidentifier())]


def _strides(tile: Tile, tensors: list[Tensor]) -> list[str]:
    """The strides that a kernel is passed: those of each tensor along what it moves along."""
    space, others = tile.space, without_strides(tile.op)
    moving = [tensor for tensor in tensors if tensor.name not in others]
    return [tensor.stride(dim) for tensor in moving for dim in space.steps(tensor.axes, space.dims)]


@dataclass(frozen=True, slots=True)
class Callers:
    """Makes the kernels that run `body`, the math on elements that pointers are at."""

    tile: Tile
    body: Kernel

    @property
    def tensors(self) -> list[Tensor]:
        return _tensors(self.tile, self.body)

    @property
    def others(self) -> tuple[Argument, ...]:
        """The arguments of the math besides pointers."""
        return self.body.arguments[len(self.tensors) :]

    def math(self) -> Kernel:
        pointers = self.body.arguments[: len(self.tensors)]
        names = (*pointers, Argument("tile_mask", "tile_mask"), *self.others)
        plain = tuple(replace(argument, spelling=argument.name) for argument in names)
        return replace(self.body, arguments=plain, fixed=())

    def flat(self) -> Kernel:
        return self.block(FLAT, "offsets", ["n"], self.moved())

    def line(self) -> Kernel:
        """One kernel for any strides, since Triton compiles those of 1 as such."""
        return self.block(LINE, "cols", ["n", *_strides(self.tile, self.tensors)], self.moved(self.tile.space.cols))

    def strided(self) -> Kernel:
        space = self.tile.space
        sizes = [*_tile_sizes(self.tile), *_strides(self.tile, self.tensors)]
        walk = (*rows_by_cols(V.n_cols), *self.tile.row_decode())
        return self.kernel(
            "strided_kernel", TILES, sizes, (*walk, *self.moved(space.rows, space.cols), self.run()), BLOCKS
        )

    def block(self, doc: str, of: str, sizes: list[str], moved: Nest) -> Kernel:
        return self.kernel("kernel", doc, sizes, (*block(of), *moved, self.run(of)), RUN_BLOCKS)

    def moved(self, *groups: tuple[Dim, ...]) -> Nest:
        """What moves each pointer to the elements, along one group of dimensions after another or along the run."""
        still = without_strides(self.tile.op)
        moving = [tensor for tensor in self.tensors if tensor.axes and tensor.name not in still]
        steps = [tuple(tuple((dim.index, one.stride(dim)) for dim in dims) for dims in groups) for one in moving]
        run = ((("offsets", ""),),)
        return tuple(Advance(one.pointer, own or run, one.optional) for one, own in zip(moving, steps, strict=True))

    def run(self, of: str = "") -> Run:
        names, n_pointers = self.body.names, len(self.tensors)
        return Run(self.body.name, names[:n_pointers], (*names[n_pointers:], *self.body.constexprs), of)

    def kernel(self, suffix: str, doc: str, sizes: list[str], body: Nest, blocks: tuple[str, ...]) -> Kernel:
        pointers = self.body.arguments[: len(self.tensors)]
        return Kernel(
            name=f"{self.tile.op.name}_{suffix}",
            doc=doc,
            arguments=(*pointers, *(Argument(name, name) for name in sizes), *self.others),
            constexprs=self.body.constexprs,
            blocks=blocks,
            body=body,
            fixed=tuple(p.name for p in self.tile.op.params if p.kind == "int" and p.name in self.body.names),
        )


def _walks(tile: Tile, end: Term, nest: list[Any]) -> tuple[Nest, tuple[str, ...]]:
    """How a kernel that has the math goes along a space, and what its tiles are called."""
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
    params = [argument for argument in kernel.arguments if argument.value in passed_scalars(op)]
    others = [argument for argument in kernel.arguments if argument not in params]
    return replace(kernel, arguments=(*others, *further, *params))
