"""Launches of Gluon kernels that hold a tile of rows past which an axis streams."""

import importlib
from collections.abc import Sequence
from typing import Any, cast

import torch
import triton.experimental.gluon.language as gl
import triton.language as tl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from . import dtypes, heuristics, launch, streaming, streaming_tma, tensors

BLOCK_M, BLOCK_N = 128, 128
WARPS = 4  # of a warp group: kernels have two, and a warp that loads
REGISTERS = 168  # of a thread as the launch begins, for three groups


def run(
    key: launch.Key | None,
    gluon: streaming.Gluon,
    lengths: tuple[int, int, int],
    in_group: int | None,
    args: launch.Args,
) -> bool:
    """Launch a Gluon kernel in place of the plain one that `streaming.run` was given; False where TMA cannot step
    through a tensor, or offsets leave int32.

    Of neighbouring heads, `in_group` share what streams, if there are groups.
    """
    every, told, params = args
    sizes = cast(Sequence[int], told)  # Each is known.
    n_heads, n_rows, _ = lengths
    groups = [] if in_group is None else [in_group]
    n_matrices = n_heads // (in_group or 1)
    batch, steps = streaming_tma.steps_of(sizes, gluon.n_dims, gluon.n_own, n_matrices)
    for place, own in enumerate(gluon.n_own):
        if own is None:  # It is the same for all of the batch.
            steps[place] = (*(0 for _ in batch), *every[place].stride())
    given = descriptors(every, steps, gluon, batch)
    if given is None:
        return False
    package = gluon.module.rpartition(".")[0]
    kernels = importlib.import_module(".gluon_kernels", package)
    # Strides of what has no descriptor.
    others = [
        step
        for strides, kind in zip(steps, gluon.kinds, strict=True)
        for step in strides
        if not kind
    ]
    width = max(
        one.shape[-1]
        for one, kind in zip(given, gluon.kinds, strict=True)
        if kind in ("rows", "cols")
    )
    tiles = n_heads * tensors.cdiv(n_rows, BLOCK_M)
    programs = heuristics.sm_count(every[0].device)
    launch.run(
        key,
        getattr(kernels, gluon.kernel),
        (min(tiles, programs),),
        None,
        given,
        (*lengths, *batch[1:], *groups, *others),
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
    steps: Sequence[tuple[int, ...]],
    gluon: streaming.Gluon,
    batch: tuple[int, ...],
) -> tuple[Any, ...] | None:
    """The tensors, matrices among them as descriptors; None where there can be no such.

    `steps` are the strides of each, along the dimensions of the batch and then along its own axes.
    """
    given: list[Any] = []
    for tensor, strides, kind in zip(every, steps, gluon.kinds, strict=True):
        if not kind:
            given.append(tensor)
            continue
        found = streaming_tma.dims_of(tensor, strides, batch)
        if found is None or tensor.dtype != every[0].dtype:
            return None
        given.append(described(tensor, found, kind))
    others = (one for one in given if not isinstance(one, TensorDescriptor))
    fits = tensors.index_dtype(*others) == tl.int32
    return tuple(given) if fits else None


def described(
    tensor: torch.Tensor, dims: streaming_tma.Dims, kind: str
) -> TensorDescriptor:
    """A descriptor of a tensor, one block of which is whole rows of one head, or has the scores of a warp group."""
    rows = BLOCK_N if kind == "cols" else BLOCK_M // 2
    block = streaming_tma.block_of(dims[0], rows)
    if kind == "scores":
        block[-1] = BLOCK_N
    dtype = dtypes.triton_dtype(tensor.dtype)
    layout = gl.NVMMASharedLayout.get_default_for(block, dtype)
    return TensorDescriptor(tensor, *map(list, dims), block, layout)
