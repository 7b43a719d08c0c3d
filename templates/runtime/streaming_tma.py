"""TMA descriptors of batches of matrices, in blocks of rows of one matrix."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from . import tensors

MOST_DIMS = 5  # dimensions that TMA supports
Dims = tuple[tuple[int, ...], tuple[int, ...]]  # lengths and strides


class Blocks(NamedTuple):
    """The streamed matrices of which a kernel takes descriptors.

    Fields: the number of dimensions that the batch is folded into, the number of axes of each tensor besides (None for
    one without a batch), and the positions of the matrices among the tensors.
    """

    n_dims: int
    n_own: tuple[int | None, ...]
    places: tuple[int, ...]


def steps_of(
    sizes: Sequence[Any], n_dims: int, n_own: Sequence[int | None], n_heads: int
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """From the result of `streaming.sizes` with two lengths: the sizes of the batch, which has so many heads in all,
    and the strides of each tensor, without those of the batch for one that has none.
    """
    head_sizes, strides = tuple(sizes[2 : 1 + n_dims]), sizes[1 + n_dims :]
    steps = []
    for own in n_own:
        count = 0 if own is None else n_dims + own
        steps.append(tuple(strides[:count]))
        strides = strides[count:]
    return (n_heads // math.prod(head_sizes), *head_sizes), steps


def dims_of(
    tensor: torch.Tensor, strides: tuple[int, ...], batch: tuple[int, ...]
) -> Dims | None:
    """The dimensions of a TMA descriptor: the batch's, then the tensor's own, with their `strides`; None if TMA
    does not support them.

    Rows must be contiguous, and strides multiples of 16 bytes. If there are too many dimensions, the last ones of
    the batch must have length 1.
    """
    n_own = len(strides) - len(batch)
    n_batch = min(len(batch), MOST_DIMS - n_own)
    strides = (*strides[:n_batch], *strides[len(batch) :])
    shape = (*batch[:n_batch], *tensor.shape[-n_own:])
    elements = 16 // tensor.itemsize
    *outer, last = strides
    fits = (
        math.prod(batch[n_batch:]) == 1
        and last == 1
        and all(0 < size < 2**31 for size in shape)
        and tensor.data_ptr() % 16 == 0
        and all(step % elements == 0 for step in outer)
    )
    return (shape, strides) if fits else None


def block_of(shape: tuple[int, ...], rows: int) -> list[int]:
    """The block shape of `rows` full rows."""
    return [*[1] * (len(shape) - 2), rows, max(16, tensors.power_of_two(shape[-1]))]


def dims_of_blocks(
    every: Sequence[Any], sizes: Sequence[Any], blocks: Blocks, n_heads: int
) -> list[Dims] | None:
    """The dimensions of the streamed matrices, all of half precision; None if TMA does not support one."""
    batch, steps = steps_of(sizes, blocks.n_dims, blocks.n_own, n_heads)
    found = []
    for place in blocks.places:
        dims = dims_of(every[place], steps[place], batch)
        if dims is None or every[place].itemsize != 2:
            return None
        found.append(dims)
    return found


def descriptors(
    every: Sequence[Any], blocks: Blocks, dims: Sequence[Dims], rows: int
) -> list[TensorDescriptor]:
    """Descriptors of the streamed matrices, in blocks of `rows` rows."""
    return [
        TensorDescriptor(every[place], [*shape], [*strides], block_of(shape, rows))
        for place, (shape, strides) in zip(blocks.places, dims, strict=True)
    ]
