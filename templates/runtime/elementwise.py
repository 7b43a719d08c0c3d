"""Launches of elementwise kernels: flat if all tensors fold into one dimension, otherwise on tiles with any strides.

Kernels take pointers; n, or n_rows, n_cols and the lengths of all row dimensions but the first; the strides of each
tensor along its axes; further sizes, and params. Kernels without a table tune their configurations themselves.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from . import heuristics, launch, tensors

Axes = tuple[str, ...]
Operands = tuple[torch.Tensor | None, ...]
Layout = tuple[Sequence[int], Sequence[int]]  # shape and strides
CLOSE = 8  # the stride of columns that share sectors, as if they were contiguous


@launch.memoized
def parse(text: str) -> tuple[tuple[Axes, ...], Axes, Axes]:
    """The axes of each tensor, those that fold into one another, and those that do not.

    The text is as in "... M N, N, ... M N -> (... M) N": the axes of each tensor, () if it has none, then those of the
    kernel, with the columns last. Axes in parentheses are folded as far as strides allow, into the `n_dims` dimensions
    of the kernel. The kernel is compiled for the length of H=2. W*S=2 are columns of two axes, W.S columns of two axes
    that are contiguous in tensors with both, and 1 is a single column.
    """
    every, _, stepped = text.partition(" -> ")
    folded, _, others = stepped.rpartition(")")
    axes = tuple(tuple(one.strip(" ()").split()) for one in every.split(","))
    return axes, tuple(folded.strip("(").split()), tuple(others.split())


def layouts(operands: Operands) -> tuple[Layout | None, ...]:
    """The shape and strides of each tensor."""
    return tuple(
        None if operand is None else (operand.shape, operand.stride())
        for operand in operands
    )


def along(values: Sequence[int], own: Axes, axis: str) -> Sequence[int]:
    """The entries of a shape or strides for an axis; any number of them for the leading ones, "..."."""
    end = len(values) - len(own) + own.index(axis) + 1
    return values[:end] if axis == "..." else values[end - 1 : end]


def lengths(given: Sequence[tuple[Layout | None, Axes]], over: Axes) -> tuple[int, ...]:
    """The lengths of some axes, each from the last tensor that has it."""
    found: list[int] = []
    for axis in over:
        found += [
            along(layout[0], own, axis)
            for layout, own in given
            if layout is not None and axis in own
        ][-1]
    return tuple(found)


def strides(
    layout: Layout | None, own: Axes, over: Axes, n_leading: int = 0
) -> tuple[int, ...]:
    """The strides of a tensor along some axes, 0 for those that it lacks, and for an absent tensor."""
    found: list[int] = []
    for axis in over:
        if layout is None or axis not in own:
            found += [0] * (n_leading if axis == "..." else 1)
        else:
            found += along(layout[1], own, axis)
    return tuple(found)


def are_close(steps: tuple[int, ...]) -> bool:
    """Whether neighbours along some axis are close together, or along all the same element."""
    return not any(steps) or any(0 < step <= CLOSE for step in steps)


@launch.memoized
def fold_all(
    axes: str, n_dims: int, given: tuple[Layout | None, ...]
) -> tuple[bool, bool, tuple[int, ...]] | None:
    """Whether all tensors fold into one contiguous dimension; otherwise, for tiles, whether columns are close together,
    and the kernel's sizes and strides. None if more dimensions remain than the kernel has.
    """
    every, over, _ = parse(axes)
    moving = [one for one in zip(given, every, strict=True) if one[1]]
    shape = lengths(moving, over)
    n_leading = len(shape) - len(over) + 1
    strided = [strides(*one, over, n_leading) for one in moving]
    present = [n for n, (layout, _) in enumerate(moving) if layout is not None]
    # The last tensor decides the order of the dimensions.
    ordered = (*strided, strided[present[-1]])
    folded = tensors.fold_by_stride(n_dims, shape, ordered)
    if folded is None:
        return None
    (*row_sizes, n_cols), (*steps, _) = folded
    n_rows = math.prod(row_sizes)
    flat = n_rows == 1 and all(steps[n][-1] == 1 for n in present)
    close = all(step[-1] <= CLOSE for step in steps)
    stepped = (stride for step in steps for stride in step)
    return flat, close, (n_rows, n_cols, *row_sizes[1:], *stepped)


@launch.memoized
def fold_rows(
    axes: str, n_dims: int, given: tuple[Layout | None, ...]
) -> tuple[bool, tuple[int, ...]] | None:
    """Whether columns are close together, and the sizes and strides of a kernel of rows by columns.

    None if more row dimensions remain than the kernel has.
    """
    every, folded, others = parse(axes)
    moving = list(zip(given, every, strict=True))
    rows = tuple(axis.partition("=")[0] for axis in others[:-1])
    even = "." in others[-1]
    last = () if others[-1] == "1" else others[-1].split("." if even else "*")
    cols = tuple(axis.partition("=")[0] for axis in last)
    free, pinned = lengths(moving, folded), lengths(moving, rows)
    row_sizes: Sequence[int] = ()
    steps: Sequence[tuple[int, ...]] = [()] * len(every)
    if folded:
        n_leading = len(free) - len(folded) + 1
        strided = tuple(strides(*one, folded, n_leading) for one in moving)
        found = tensors.fold(n_dims, free, strided)
        if found is None:
            return None
        row_sizes, steps = found
    known = [False] * len(row_sizes) + ["=" in axis for axis in others[:-1]]
    sized = list(zip((*row_sizes, *pinned), known, strict=True))
    stepped = [size for size, is_known in sized[1:] if not is_known]
    for (layout, own), step in zip(moving, steps, strict=True):
        stepped += step if any(axis in own for axis in folded) else ()
        stepped += strides(layout, own, tuple(axis for axis in rows if axis in own))
        if not even:
            stepped += strides(layout, own, tuple(axis for axis in cols if axis in own))
        elif all(axis in own for axis in cols):
            stepped += strides(layout, own, cols[-1:])
    close = all(are_close(strides(*one, cols)) for one in moving)
    n_rows = math.prod(free) * math.prod(pinned)
    n_cols = math.prod(lengths(moving, cols))
    return close, (n_rows, n_cols, *stepped)


def run(
    key: launch.Key | None,
    *,
    kernels: tuple[Any, Any],
    tables: tuple[heuristics.Flat | None, heuristics.Tile | None],
    axes: str,
    n_dims: int,
    operands: Operands,
    constants: dict[str, Any],
    sizes: tuple[int, ...] = (),
    params: tuple[Any, ...] = (),
    is_fake: bool = False,
) -> bool:
    """Launch the flat kernel if all tensors are contiguous in the same order, otherwise the second one, on tiles.

    False if more dimensions remain than that has; nothing is launched on fake tensors.
    """
    every, over, _ = parse(axes)
    given = [
        (operand, own)
        for operand, own in zip(operands, every, strict=True)
        if own and operand is not None
    ]
    last, _ = given[-1]
    n = last.numel()
    if n == 0:
        return True
    flat = all(
        own == over and operand.shape == last.shape and operand.is_contiguous()
        for operand, own in given
    )
    if not flat:
        folded = fold_all(axes, n_dims, layouts(operands))
        if folded is None:
            return False
        flat, close, stepped = folded
    if is_fake:
        return True
    if flat:
        run_line(
            key,
            kernel=kernels[0],
            table=tables[0],
            operands=operands,
            sizes=(n, *sizes),
            params=params,
            constants=constants,
        )
    else:
        _launch_tiles(
            key,
            kernels[1],
            tables[1],
            close,
            operands,
            (*stepped, *sizes),
            params,
            constants,
        )
    return True


def run_tiles(
    key: launch.Key | None,
    *,
    kernel: Any,
    table: heuristics.Tile | None,
    axes: str,
    n_dims: int,
    operands: Operands,
    constants: dict[str, Any],
    sizes: tuple[int, ...] = (),
    params: tuple[Any, ...] = (),
    is_fake: bool = False,
) -> bool:
    """Launch a kernel on tiles of rows by columns, where only the rows are folded.

    False if more row dimensions remain than it has; nothing is launched on fake tensors.
    """
    folded = fold_rows(axes, n_dims, layouts(operands))
    if folded is None:
        return False
    close, stepped = folded
    if is_fake or stepped[0] * stepped[1] == 0:
        return True
    _launch_tiles(
        key,
        kernel,
        table,
        close,
        operands,
        (*stepped, *sizes),
        params,
        constants,
    )
    return True


def run_line(
    key: launch.Key | None,
    *,
    kernel: Any,
    table: heuristics.Flat | None,
    operands: tuple[torch.Tensor | None, ...],
    sizes: tuple[int, ...],
    constants: dict[str, Any],
    params: tuple[Any, ...] = (),
    is_fake: bool = False,
) -> None:
    """Launch a kernel on blocks of elements in a line, as many as the first of `sizes`; nothing on fake tensors."""
    n = sizes[0]
    if n == 0 or is_fake:
        return

    def blocks(meta: Mapping[str, Any]) -> tuple[int]:
        return (tensors.cdiv(n, meta["BLOCK"]),)

    config = None if table is None else table.choose(n)
    grid = blocks if config is None else blocks(config.kwargs)
    index = tensors.index_dtype(*operands)
    args = operands, sizes, params
    launch.run(key, kernel, grid, config, *args, INDEX=index, **constants)


def _launch_tiles(
    key: launch.Key | None,
    kernel: Any,
    table: heuristics.Tile | None,
    close: bool,
    operands: Operands,
    sizes: tuple[int, ...],
    params: tuple[Any, ...],
    constants: dict[str, Any],
) -> None:
    """Launch a kernel on tiles of rows and columns; `sizes` begins with the numbers of rows and columns."""
    n_rows, n_cols = sizes[:2]

    def tiles(meta: Mapping[str, Any]) -> tuple[int]:
        n_tiles = tensors.cdiv(n_rows, meta["BLOCK_M"])
        return (n_tiles * tensors.cdiv(n_cols, meta["BLOCK_N"]),)

    config = None if table is None else table.choose(n_rows, n_cols, close)
    grid = tiles if config is None else tiles(config.kwargs)
    index = tensors.index_dtype(*operands)
    args = operands, sizes, params
    launch.run(key, kernel, grid, config, *args, INDEX=index, **constants)
