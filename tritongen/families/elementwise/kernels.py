"""Kernels that map elements, or windows of a few: a flat one for contiguous data, and a strided one for all else."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...lang.ir import Op, Reduce
from ...lowering.assemble import Assembler
from ...lowering.lines import Line
from ...lowering.lower import Compute, Lowering, compute_of
from ...lowering.space import Dim, Space, ends_in_columns, is_line, map_space
from ...lowering.tile import Tensor, Tile, needed
from ...lowering.views import Argument, Kernel
from ...passes.scalars import passed_numbers
from ...passes.structure import Program, without_strides
from .windows import decoded_window, result_lines, space_of_results, space_of_windows, window_lines

FLAT = "Contiguous data, as one run of elements."
LINE = "Elements in a line, with any strides."
TILES = "A tile of rows by columns, with any strides."
SINGLE = "A single element."


@dataclass(frozen=True, slots=True)
class Blocks:
    """A kernel on blocks of elements: what it calls their positions, and its calls of the math, which has no mask where
    a block is full.
    """

    kernel: Kernel
    positions: str
    full: str
    masked: str


@dataclass(frozen=True, slots=True)
class MapKernels:
    """The kernels of an elementwise program.

    `body` is the math on elements that pointers are at, called by `blocks`, for one run of elements or for all that are
    in a line, and by `strided`, for tiles. Where an input lacks an axis or the math uses an index, `strided` has the
    math, as it has that of a single element. `sizes` are lengths and strides that the math asks for besides.
    """

    space: Space
    compute: Compute
    sizes: tuple[Argument, ...]
    body: Kernel | None = None
    blocks: Blocks | None = None
    strided: Kernel | None = None

    @property
    def launched(self) -> list[Kernel]:
        kernels = (self.blocks.kernel if self.blocks else None, self.strided)
        return [kernel for kernel in kernels if kernel is not None]


def plan_map(program: Program) -> MapKernels:
    op = program.op
    space, compute = map_space(op, tuple(value.node for value in op.values), program.over), compute_of(op)
    space = space_of_results(program, space) if program.maps_back else space
    tile = Tile(op, space, compute)
    if not space.dims:
        single = _kernel(tile, program, "kernel", SINGLE)
        return MapKernels(space, compute, _sizes(op, single.arguments[len(_tensors(tile, single)) :]), strided=single)
    if space.split:
        is_plain = not is_line(space) and not program.over and ends_in_columns(op, space.col_axes)
        strided, sizes = _with_math(replace(tile, aligned=is_plain), program)
        return MapKernels(space, compute, sizes, strided=strided)
    pointed = replace(tile, space=replace(space, rows=(), flat=True))
    callers = Callers(tile, replace(_kernel(pointed, program, "tile", ""), fixed=()))
    sizes = _sizes(op, callers.others)
    if is_line(space):
        return MapKernels(space, compute, sizes, callers.body, callers.line())
    return MapKernels(space, compute, sizes, callers.body, callers.flat(), callers.strided())


def _sizes(op: Op, arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """The arguments that are no params."""
    params = passed_numbers(op)
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


def _offset(tensor: Tensor, dims: tuple[Dim, ...]) -> str:
    return " + ".join(f"{dim.index} * {tensor.stride(dim)}" for dim in dims)


@dataclass(frozen=True, slots=True)
class Callers:
    """Makes the kernels that call `body`, the math on elements that pointers are at."""

    tile: Tile
    body: Kernel

    @property
    def tensors(self) -> list[Tensor]:
        return _tensors(self.tile, self.body)

    def flat(self) -> Blocks:
        return self.blocks(FLAT, "offsets", ["n"], lambda _: ["offsets"])

    def line(self) -> Blocks:
        """One kernel for any strides, since Triton compiles those of 1 as such."""
        sizes = ["n", *_strides(self.tile, self.tensors)]
        return self.blocks(LINE, "cols", sizes, lambda tensor: [_offset(tensor, self.tile.space.cols)])

    def strided(self) -> Kernel:
        space = self.tile.space
        sizes = [*_tile_sizes(self.tile), *_strides(self.tile, self.tensors)]
        moved = self.moved(lambda tensor: [_offset(tensor, space.rows), _offset(tensor, space.cols)])
        setup = [*self.tile.row_decode(), *moved]
        return self.kernel("strided_kernel", TILES, sizes, setup, (Line(self.call("tile_mask")),))

    def blocks(self, doc: str, positions: str, sizes: list[str], offsets: Callable[[Tensor], list[str]]) -> Blocks:
        kernel = self.kernel("kernel", doc, sizes, self.moved(offsets), ())
        return Blocks(kernel, positions, self.call("None"), self.call(f"{positions} < n"))

    def moved(self, offsets: Callable[[Tensor], list[str]]) -> list[Line]:
        """The lines that move each pointer to the elements, by what is added to it."""
        lines: list[Line] = []
        still = without_strides(self.tile.op)
        for tensor in self.tensors:
            moves = tensor.axes and tensor.name not in still
            added = [f"{tensor.pointer} += {offset}" for offset in offsets(tensor)] if moves else []
            if tensor.optional and added:
                lines += [Line(f"if {tensor.pointer} is not None:"), *(Line(f"    {text}") for text in added)]
            else:
                lines += map(Line, added)
        return lines

    def call(self, mask: str) -> str:
        names, n_pointers = self.body.names, len(self.tensors)
        arguments = [*names[:n_pointers], mask, *names[n_pointers:], *self.body.constexprs]
        return f"{self.body.name}({', '.join(arguments)})"

    @property
    def others(self) -> tuple[Argument, ...]:
        """The arguments of the math besides pointers."""
        return self.body.arguments[len(self.tensors) :]

    def kernel(self, suffix: str, doc: str, sizes: list[str], setup: list[Line], body: tuple[Line, ...]) -> Kernel:
        pointers = self.body.arguments[: len(self.tensors)]
        return Kernel(
            name=f"{self.tile.op.name}_{suffix}",
            doc=doc,
            arguments=(*pointers, *(Argument(name, name) for name in sizes), *self.others),
            constexprs=self.body.constexprs,
            setup=tuple(setup),
            body=body,
            fixed=tuple(p.name for p in self.tile.op.params if p.kind == "int" and p.name in self.body.names),
            use_mask=True,
            use_rows=True,
        )


def _kernel(tile: Tile, program: Program, suffix: str, doc: str) -> Kernel:
    op = tile.op
    assembler = Assembler(tile)
    windows = replace(tile, space=space_of_windows(program, tile.space)) if program.maps_back else tile

    def reduce(node: Reduce, lowering: Lowering) -> ast.expr:
        raise AssertionError("reductions are over windows, step by step")

    own = windows.index, tile.size, windows.load
    lowering = Lowering(op, tile.compute, *own, reduce, assembler.choices, guarded=windows.guarded)
    values = needed(op.values, [result.output.name for result in op.results])
    if program.over:
        lines = window_lines(program, Assembler(windows), lowering, values)
    else:
        lines = [*assembler.reads(values), *(line for value in values for line in lowering.line(value))]
    stores = assembler.stores(op.results)
    if program.maps_back:
        lines, stores = [*decoded_window(program), *lines, *result_lines(program, assembler, lowering, values)], []
    setup = assembler.bases(op.results)
    is_tile = bool(tile.space.dims) and not tile.space.flat
    kernel = assembler.kernel(suffix, doc, setup, lines, (), stores, lowering, tiles=is_tile)
    if not program.maps_back:
        return kernel
    spread = replace(windows.space, cols=(), taken=(*windows.space.cols, *windows.space.taken))
    strides = Assembler(replace(windows, space=spread)).stride_arguments(lines)
    further = [argument for argument in strides if argument.name not in kernel.names]
    params = [argument for argument in kernel.arguments if argument.value in passed_numbers(op)]
    others = [argument for argument in kernel.arguments if argument not in params]
    return replace(kernel, arguments=(*others, *further, *params))
