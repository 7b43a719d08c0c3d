"""Launches of Gluon kernels that hold a tile of rows past which an axis streams."""

import importlib
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import triton.experimental.gluon.language as gl
import triton.language as tl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from . import heuristics, launch, streaming, tensors

BLOCK_M, BLOCK_N = 128, 128
WARPS = 4  # of a warp group: kernels have two, and a warp that loads
REGISTERS = 168  # of a thread as the launch begins, for three groups
DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}


def run(
    key: launch.Key | None,
    gluon: streaming.Gluon,
    lengths: tuple[int, int, int],
    args: launch.Args,
) -> bool:
    """Launch a Gluon kernel in place of the plain one that `streaming.run` was given; False where TMA cannot step
    through a tensor, or offsets leave int32.
    """
    every, told, params = args
    sizes = cast(Sequence[int], told)  # Each is known.
    n_heads, n_rows, _ = lengths
    head_sizes = tuple(sizes[2 : 1 + gluon.n_dims])
    found = descriptors(every, sizes[1 + gluon.n_dims :], gluon, lengths, head_sizes)
    if found is None:
        return False
    given, steps = found
    package = gluon.module.rpartition(".")[0]
    kernels = importlib.import_module(".gluon_kernels", package)
    width = max(one.shape[-1] for one in given if isinstance(one, TensorDescriptor))
    tiles = n_heads * tensors.cdiv(n_rows, BLOCK_M)
    # Programs of one tile each wait for their first blocks, but share uneven tiles evenly.
    is_persistent = width <= 64 or not gluon.is_masked
    programs = heuristics.sm_count(every[0].device) if is_persistent else tiles
    launch.run(
        key,
        getattr(kernels, gluon.kernel),
        (min(tiles, programs),),
        None,
        given,
        (*lengths, *head_sizes, *steps),
        params,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        STAGES=2 if width > 64 else 3,
        num_warps=WARPS,
        maxnreg=REGISTERS,
    )
    return True


def descriptors(
    every: Sequence[Any],
    strides: Sequence[int],
    gluon: streaming.Gluon,
    lengths: tuple[int, int, int],
    head_sizes: tuple[int, ...],
) -> tuple[tuple[Any, ...], list[int]] | None:
    """The tensors, matrices among them as descriptors, and the strides of the others; None where there can be no such.

    `strides` are those of all tensors, along the dimensions of the batch and then along their own axes.
    """
    n_heads, n_rows, n_cols = lengths
    batch = (n_heads // math.prod(head_sizes), *head_sizes)
    given: list[Any] = []
    steps: list[int] = []
    for tensor, kind in zip(every, gluon.kinds, strict=True):
        count = gluon.n_dims + (2 if kind else 1)
        own, strides = tuple(strides[:count]), strides[count:]
        length, rows = (n_rows, BLOCK_M // 2) if kind == "rows" else (n_cols, BLOCK_N)
        if not kind:
            given.append(tensor)
            steps += own
        elif tensor.dtype == every[0].dtype and is_readable(tensor, length, own):
            shape = (*batch, length, tensor.shape[-1])
            given.append(described(tensor, shape, own, rows))
        else:
            return None
    others = (one for one in given if not isinstance(one, TensorDescriptor))
    fits = tensors.index_dtype(*others) == tl.int32
    return (tuple(given), steps) if fits else None


def is_readable(tensor: torch.Tensor, length: int, strides: tuple[int, ...]) -> bool:
    """Whether TMA can step through a tensor: its rows in one piece, all that it steps by 16 bytes or a multiple."""
    whole = 16 // tensor.itemsize
    *outer, last = strides
    return (
        last == 1
        and length < 2**31
        and tensor.data_ptr() % 16 == 0
        and all(step % whole == 0 for step in outer)
    )


def described(
    tensor: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...], rows: int
) -> TensorDescriptor:
    """A descriptor of a tensor, one block of which is so many whole rows of one head."""
    block = [*[1] * (len(shape) - 2), rows, max(16, tensors.power_of_two(shape[-1]))]
    layout = gl.NVMMASharedLayout.get_default_for(block, DTYPES[tensor.dtype])
    return TensorDescriptor(tensor, list(shape), list(strides), block, layout)
