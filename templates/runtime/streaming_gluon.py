"""Launches of Gluon kernels that hold a tile of rows and stream another axis."""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import triton.experimental.gluon.language as gl
import triton.language as tl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from . import heuristics, launch, streaming, streaming_tma, tensors

BLOCK_M = 128
# By the number of scores of a block and of the sums that it adds to, which are in registers: its length, and
# the number of blocks in flight for heads wider than 64.
TILES = {(1, 1): (128, 2), (2, 1): (64, 3), (2, 2): (64, 3)}
OF_SCORES = ("scores", "across")  # kinds of tensors with a value per score
WARPS = 4  # of a warp group: kernels have two, and a warp that loads
REGISTERS = 168  # of a thread as the launch begins, for three groups


def run(
    key: launch.Key | None,
    gluon: streaming.Gluon,
    lengths: tuple[int, int, int],
    in_group: int | None,
    args: launch.Args,
) -> bool:
    """Launch a Gluon kernel in place of the plain one that `streaming.run` was given; False if TMA does not support a
    tensor, or offsets exceed int32.

    `in_group` adjacent heads share the streamed matrices, if there are groups.
    """
    every, scalars, params = args
    known = cast(Sequence[int], scalars)
    n_heads, n_rows, _ = lengths
    groups = [] if in_group is None else [in_group]
    n_matrices = n_heads // (in_group or 1)
    batch, steps = streaming_tma.steps_of(known, gluon.n_dims, gluon.n_own, n_matrices)
    for place, own in enumerate(gluon.n_own):
        if own is None:  # It is the same for all of the batch.
            steps[place] = (*(0 for _ in batch), *every[place].stride())
    batch, steps = with_shared_last(batch, steps, gluon.kinds)
    block, n_stages = TILES[gluon.matmuls]
    given = descriptors(every, steps, gluon, batch, block)
    if given is None:
        return False
    kernels = launch.gluon_kernels(gluon.module, gluon.name)
    kernel = getattr(kernels, f"{gluon.name}_gluon_kernel")
    # Strides of tensors without a descriptor.
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
    tiles = tensors.cdiv(n_rows, BLOCK_M)
    sms = heuristics.sm_count(every[0].device)
    # Programs of gradients have one tile each, others are persistent.
    programs = n_heads * tiles if gluon.is_gradient else min(n_heads * tiles, sms)
    sizes: tuple[Any, ...] = (*lengths, *batch[1:], *groups, *others)
    blocks = {"BLOCK_M": BLOCK_M, "BLOCK_N": block}
    options = {"STAGES": n_stages if width > 64 else 3, **blocks}
    options |= {"num_warps": WARPS, "maxnreg": REGISTERS}
    stages = []
    if gluon.found_of:
        finder = getattr(kernels, f"{gluon.name}_bounds_kernel")
        read = [(every[place], steps[place]) for place in gluon.found_of]
        first, bounds, bound_strides = found_bounds(
            finder, read, lengths, batch, tiles, blocks
        )
        stages, sizes = [first], (bounds, *sizes, *bound_strides)
    args = (*given, *sizes, *params)
    stages.append(launch.Stage(kernel, (programs,), args, options))
    launch.run_stages(key, launch.named(kernel, (every, sizes, params)), stages)
    return True


def found_bounds(
    finder: Any,
    read: Sequence[tuple[torch.Tensor, tuple[int, ...]]],
    lengths: tuple[int, int, int],
    batch: tuple[int, ...],
    tiles: int,
    blocks: dict[str, Any],
) -> tuple[launch.Stage, torch.Tensor, list[int]]:
    """The launch that finds the bounds of all tiles from tensors and their strides; memory for the bounds, and its
    strides along the dimensions of the batch.
    """
    # Bounds are shared along dimensions in which none of these tensors has a stride.
    differ = [
        size if any(steps[dim] for _, steps in read) else 1
        for dim, size in enumerate(batch)
    ]
    device = read[0][0].device
    bounds = torch.empty((*differ, tiles, 4), dtype=torch.int32, device=device)
    bound_strides = [
        0 if size == 1 else step
        for size, step in zip(differ, bounds.stride(), strict=False)
    ]
    found_of = (tensor for tensor, _ in read)
    strides = (step for _, steps in read for step in steps)
    args = (*found_of, bounds, *lengths[1:], *differ[1:], *strides)
    return (
        launch.Stage(finder, (math.prod(differ) * tiles,), args, blocks),
        bounds,
        bound_strides,
    )


def with_shared_last(
    batch: tuple[int, ...], steps: Sequence[tuple[int, ...]], kinds: Sequence[str]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The dimensions of the batch, and the strides of all tensors, reordered: dimensions along which scores have the
    same values come last, so that adjacent heads read these from the cache, and after them those of length 1, as
    descriptors require.
    """
    of_scores = [
        one for one, kind in zip(steps, kinds, strict=True) if kind in OF_SCORES
    ]
    if not of_scores:
        return batch, [*steps]

    def place(dim: int) -> tuple[bool, bool]:
        return batch[dim] == 1, not any(one[dim] for one in of_scores)

    order = sorted(range(len(batch)), key=place)
    found = [(*(one[dim] for dim in order), *one[len(order) :]) for one in steps]
    return tuple(batch[dim] for dim in order), found


def descriptors(
    every: Sequence[Any],
    steps: Sequence[tuple[int, ...]],
    gluon: streaming.Gluon,
    batch: tuple[int, ...],
    block: int,
) -> tuple[Any, ...] | None:
    """The tensors, with descriptors in place of matrices; None if there cannot be one, or a matrix is not wanted.

    `steps` are the strides of each, along the dimensions of the batch and then along its own axes.
    """
    given: list[Any] = []
    for tensor, strides, kind in zip(every, steps, gluon.kinds, strict=True):
        if not kind:
            given.append(tensor)
            continue
        if tensor is None or tensor.dtype != every[0].dtype:
            return None
        found = streaming_tma.dims_of(tensor, strides, batch)
        if found is None:
            return None
        given.append(described(tensor, found, kind, block))
    others = (one for one in given if not isinstance(one, TensorDescriptor))
    fits = tensors.index_dtype(*others) == tl.int32
    return tuple(given) if fits else None


def described(
    tensor: torch.Tensor, dims: streaming_tma.Dims, kind: str, n_cols: int
) -> TensorDescriptor:
    """A descriptor of a tensor, in blocks of full rows of one head, or of the scores of a warp group."""
    n_rows = BLOCK_M // 2
    rows = n_cols if kind in ("cols", "across") else n_rows
    block = streaming_tma.block_of(dims[0], rows)
    if kind in OF_SCORES:
        block[-1] = n_rows if kind == "across" else n_cols
    dtype = tensors.triton_dtype(tensor.dtype)
    layout = gl.NVMMASharedLayout.get_default_for(block, dtype)
    return TensorDescriptor(tensor, *map(list, dims), block, layout)
