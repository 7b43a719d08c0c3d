"""TMA descriptors of matrices, or of aligned copies where TMA does not support their strides."""

import math

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from . import copies, matmul_heuristics

Matrices = tuple[torch.Tensor | None, ...]
Descriptors = tuple[list[TensorDescriptor | None], list[bool]]


def is_aligned(tensor: torch.Tensor, alignment: int = 16) -> bool:
    """Whether TMA supports a tensor: contiguous rows, at distances of a multiple of 16 bytes, or of a given one."""
    elements = alignment // tensor.itemsize
    *outer, last = tensor.stride()
    return (
        last == 1
        and tensor.data_ptr() % 16 == 0
        and all(step > 0 and step % elements == 0 for step in outer)
    )


def is_readable(tensor: torch.Tensor, alignment: int = 16) -> bool:
    """Whether TMA can read a matrix in place, by rows or by columns."""
    return is_aligned(tensor, alignment) or is_aligned(tensor.mT, alignment)


def alignment(tensor: torch.Tensor, n_others: int) -> int:
    """The alignment in bytes of the rows of a matrix that TMA reads: 128, 32 or 16; 128 for copies."""
    fits = (one for one in (copies.ROWS, 32, 16) if is_readable(tensor, one))
    found = next(fits, 0)
    least = matmul_heuristics.row_alignment(n_others)
    return found if found >= least else copies.ROWS


def descriptor(
    tensor: torch.Tensor, block: int, block_inner: int, n_others: int = 0
) -> tuple[TensorDescriptor, bool]:
    """A descriptor of a matrix whose last axis is the inner one, and whether that is last in memory too. If it is
    not, tiles are copied as stored, and transposed.

    A matrix is copied first if TMA does not support its strides; if its elements have 1 byte, which tensor cores
    read only along the inner axis, and another axis is contiguous; and if its rows are not aligned to cache sectors
    and are read often, since the other matrix has many rows.
    """
    tensor, shape, inner_last = in_memory_order(tensor, block, block_inner)
    blocks = [*[1] * (tensor.ndim - 2), *shape]
    alignment = matmul_heuristics.row_alignment(n_others)
    return describe(tensor, blocks, alignment), inner_last


def in_memory_order(
    tensor: torch.Tensor, block: int, block_inner: int
) -> tuple[torch.Tensor, list[int], bool]:
    """A matrix with its contiguous axis last, the shape of its blocks, and whether that axis is the inner one."""
    if tensor.stride(-1) != 1 and tensor.stride(-2) == 1 and tensor.itemsize > 1:
        return tensor.mT, [block_inner, block], False
    return tensor, [block, block_inner], True


def describe(
    tensor: torch.Tensor, blocks: list[int], alignment: int = 16
) -> TensorDescriptor:
    """A descriptor of a tensor, or of an aligned copy where TMA does not support it at this alignment of rows."""
    return TensorDescriptor.from_tensor(readable(tensor, alignment), blocks)


def readable(tensor: torch.Tensor, alignment: int = 16) -> torch.Tensor:
    """A tensor, or an aligned copy where TMA does not support it at this alignment of rows."""
    return tensor if is_aligned(tensor, alignment) else copies.with_cols_last(tensor)


def block_bytes(desc: TensorDescriptor) -> int:
    """The bytes of shared memory that a block takes."""
    taken: int = math.prod(desc.block_shape) * desc.base.itemsize
    return taken


def each(
    left: Matrices, right: Matrices, blocks: tuple[int, int, int], n_rows: int
) -> Descriptors:
    """Descriptors of matrices, in blocks of rows, columns and terms, and whether the inner axis of each comes last.

    An absent matrix has None and False.
    """
    block_m, block_n, block_k = blocks
    sides = (left, block_m, 0), (right, block_n, n_rows)
    found = [
        (None, False) if one is None else descriptor(one, block, block_k, n_others)
        for side, block, n_others in sides
        for one in side
    ]
    return [desc for desc, _ in found], [is_last for _, is_last in found]


def alike(
    left: Matrices, right: Matrices, blocks: tuple[int, int, int], n_rows: int
) -> Descriptors:
    """The same for matrices that alternate: all of a side in the layout of its first, and two flags."""
    block_m, block_n, block_k = blocks
    descs, flags = list[TensorDescriptor | None](), list[bool]()
    for side, block, n_others in ((left, block_m, 0), (right, block_n, n_rows)):
        first, *others = [matrix for matrix in side if matrix is not None]
        desc, inner_last = descriptor(first, block, block_k, n_others)
        rest = [one if inner_last else one.mT for one in others]
        descs += [desc, *(describe(one, desc.block_shape) for one in rest)]
        flags.append(inner_last)
    return descs, flags


def joined(
    left: Matrices, right: Matrices, blocks: tuple[int, int, int], n_rows: int
) -> Descriptors:
    """The same, with one descriptor for two right matrices of one shape, and whether the first comes first in memory.

    A block of it has a block of each. If their distance is no valid stride, they are copied to adjacent memory.
    """
    descs, flags = each(left, (), blocks, n_rows)
    first, second = right
    assert first is not None
    assert second is not None
    is_first = first.data_ptr() < second.data_ptr()
    lower, upper = (first, second) if is_first else (second, first)
    step = (upper.data_ptr() - lower.data_ptr()) // lower.itemsize
    shape = [2, *blocks[1:]]
    aligned = is_aligned(lower) and lower.stride() == upper.stride()
    if aligned and is_aligned(upper) and 0 < step < 2**38:
        strides = [step, *lower.stride()]
        both = TensorDescriptor(lower, [2, *lower.shape], strides, shape)
    else:
        copy = copies.aligned_empty(first, 2, *first.shape)
        torch.stack((first, second), out=copy)
        both, is_first = TensorDescriptor.from_tensor(copy, shape), True
    return [*descs, both], [*flags, is_first]


def result_descriptor(
    result: torch.Tensor | None, shape: tuple[int, ...], block_m: int, block_n: int
) -> TensorDescriptor | None:
    """A descriptor through which tiles of a result are written, viewed with a shape, if there is one and TMA supports
    it.
    """
    if result is None or not is_aligned(result.view(shape)):
        return None
    blocks = [*[1] * (len(shape) - 2), block_m, block_n]
    return TensorDescriptor.from_tensor(result.view(shape), blocks)
