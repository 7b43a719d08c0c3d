"""TMA descriptors of matrices, and the aligned copies that some need."""

import functools
from collections.abc import Sequence

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from .tensors import cdiv


def is_aligned(tensor: torch.Tensor, apart: int = 16) -> bool:
    """Whether a descriptor can step through a tensor: its rows in one piece, 16 bytes apart or a multiple, or more."""
    whole = apart // tensor.itemsize
    *outer, last = tensor.stride()
    return (
        last == 1
        and tensor.data_ptr() % 16 == 0
        and all(step > 0 and step % whole == 0 for step in outer)
    )


def aligned_empty(like: torch.Tensor, *shape: int) -> torch.Tensor:
    """Memory for a tensor whose rows start with the 128 bytes that are copied at once."""
    whole = 128 // like.itemsize
    *outer, length = shape
    return like.new_empty((*outer, cdiv(length, whole) * whole))[..., :length]


def aligned(tensor: torch.Tensor, apart: int = 16) -> torch.Tensor:
    """The tensor where a descriptor can step through it, with its rows so far apart, else a copy where one can."""
    if is_aligned(tensor, apart):
        return tensor
    copy = aligned_empty(tensor, *tensor.shape)
    places = tensor.shape[-1], tensor.storage_offset()
    if is_aligned(tensor) and all(n * tensor.itemsize % 16 == 0 for n in places):
        # 16 bytes at a time, of which it has whole ones.
        copy.view(torch.complex128).copy_(tensor.view(torch.complex128))
        return copy
    return copy.copy_(tensor)


def descriptor(
    tensor: torch.Tensor, block: int, block_inner: int, n_others: int = 0
) -> tuple[TensorDescriptor, bool]:
    """A descriptor of a matrix whose last axis is the inner one, and whether that is last in memory too.

    Else tiles are copied as they lie, transposed. A matrix that no descriptor can step through, or of bytes,
    which tensor cores read along the inner axis alone, is copied to where one can; and one whose rows start amid the
    128 bytes that are copied at once, where the other matrix has so many rows that it is read often.
    """
    apart = 128 if n_others >= 4096 else 16
    shape, inner_last = [block, block_inner], True
    if not is_aligned(tensor) and is_aligned(tensor.mT) and tensor.itemsize > 1:
        tensor, shape, inner_last = tensor.mT, shape[::-1], False
    blocks = [*[1] * (tensor.ndim - 2), *shape]
    return describe(tensor, blocks, apart), inner_last


def describe(
    tensor: torch.Tensor, blocks: list[int], apart: int = 16
) -> TensorDescriptor:
    """A descriptor of a tensor, or of a copy of it that says how calls alike make theirs."""
    descriptor = TensorDescriptor.from_tensor(aligned(tensor, apart), blocks)
    if descriptor.base is not tensor:
        copied = functools.partial(copy_like, tensor.size(), tensor.stride(), apart)
        vars(descriptor).update(source=tensor.data_ptr(), copied=copied)
    return descriptor


def copy_like(
    size: Sequence[int], stride: Sequence[int], apart: int, tensor: torch.Tensor
) -> torch.Tensor:
    """An aligned copy of the memory of a tensor, seen with some sizes and strides."""
    return aligned(torch.as_strided(tensor, size, stride), apart)


def descriptors(
    tensors: tuple[torch.Tensor, ...], block: int, block_inner: int, n_others: int = 0
) -> tuple[list[TensorDescriptor], bool]:
    """Descriptors of matrices, as `descriptor` gives one, that are all taken as the first lies; others are copied."""
    first, inner_last = descriptor(tensors[0], block, block_inner, n_others)
    others = [tensor if inner_last else tensor.mT for tensor in tensors[1:]]
    described = [describe(tensor, first.block_shape) for tensor in others]
    return [first, *described], inner_last


def joined_descriptor(
    first: torch.Tensor, second: torch.Tensor, block: int, block_inner: int
) -> tuple[TensorDescriptor, bool]:
    """A descriptor of two matrices of one shape, whose last axis is the inner one, and whether `first` is the first.

    One block is a block of each. Where no descriptor can step from one to the other, they are copied to where it can.
    """
    is_first = first.data_ptr() < second.data_ptr()
    lower, upper = (first, second) if is_first else (second, first)
    step = (upper.data_ptr() - lower.data_ptr()) // lower.itemsize
    blocks = [2, block, block_inner]
    aligned = is_aligned(lower) and lower.stride() == upper.stride()
    if aligned and is_aligned(upper) and 0 < step < 2**38:
        return (
            TensorDescriptor(lower, [2, *lower.shape], [step, *lower.stride()], blocks),
            is_first,
        )
    both = aligned_empty(first, 2, *first.shape)
    torch.stack((first, second), out=both)
    return TensorDescriptor.from_tensor(both, blocks), True


def result_descriptor(
    tensor: torch.Tensor, block_m: int, block_n: int
) -> TensorDescriptor | None:
    """A descriptor that tiles of a result are written through, where there can be one."""
    if not is_aligned(tensor):
        return None
    return TensorDescriptor.from_tensor(
        tensor, [*[1] * (tensor.ndim - 2), block_m, block_n]
    )
