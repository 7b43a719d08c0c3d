"""Copies of matrices into layouts that matmuls read faster, where a copy costs little compared with the matmul."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton

from . import launch, sources, tensors
from .copy_kernels import contiguous_copy_kernel, copy_kernel, split_kernel

ROWS = 128  # bytes: the alignment of rows of copies
Tiling = tuple[int, triton.Config, tuple[int, ...]]  # programs, their tile, and sizes
Copying = Callable[[torch.Tensor], torch.Tensor]
INTS = (torch.int64, torch.int32, torch.int16, torch.int8)


def aligned_empty(like: torch.Tensor, *shape: int) -> torch.Tensor:
    """Memory for a tensor whose rows are aligned to 128 bytes, a cache line."""
    in_row = ROWS // like.itemsize
    *outer, length = shape
    return like.new_empty((*outer, tensors.cdiv(length, in_row) * in_row))[..., :length]


def with_cols_last(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of [rows, cols] or [batch, rows, cols] whose columns are contiguous, and whose rows are aligned."""
    copy = aligned_empty(tensor, *tensor.shape)
    if tensor.numel() > 0:
        same = _widest(tensor)
        moved = tensor.view(same), copy.view(same)
        if same.itemsize > 2 or tensor.stride(-1) != 1:
            _launch("copy", copy_kernel, *moved, _in_tiles)
        elif tensor.is_contiguous():  # 4095 x 4093: 32 us, and 55 by the kernel above.
            _launch("contiguous_copy", contiguous_copy_kernel, *moved, _in_blocks)
        else:  # 48 us.
            moved[1].copy_(moved[0])
    return marked(copy, tensor, with_cols_last)


def with_rows_last(tensor: torch.Tensor) -> torch.Tensor:
    """The same with contiguous rows."""
    copy = with_cols_last(tensor.mT)
    turned = copy.mT
    vars(turned).update(vars(copy))
    return turned


def alignments(
    left: Sequence[torch.Tensor],
    right: Sequence[torch.Tensor],
    lengths: tuple[int, int, int],
    pads: bool,
) -> dict[str, int]:
    """The common divisor, up to 8, of the lengths and strides of contiguous axes, so that loads are as wide as
    16 bytes: ALIGN_M for rows of the left matrices, ALIGN_N for columns of the right ones, and ALIGN_K for inner axes.

    It is 1 where no axis is contiguous, and of sizes that are symbolic. If a kernel `pads`, the lengths are those that
    copies are padded to.
    """
    n_rows, n_cols, n_inner = lengths
    return {
        "ALIGN_M": _alignment(left, n_rows, -2, pads),
        "ALIGN_N": _alignment(right, n_cols, -2, pads),
        "ALIGN_K": _alignment((*left, *right), n_inner, -1, False),
    }


def _alignment(
    matrices: Sequence[torch.Tensor], length: int, axis: int, pads: bool
) -> int:
    """The alignment along an axis of matrices."""
    alongside = [one for one in matrices if is_one(one.stride(axis))]
    if not alongside:
        return 1
    steps = [one.stride(-3 - axis) for one in matrices]
    pads = pads and all(sources.copied_from(one) is not None for one in alongside)
    reach = 8 if pads and length % 16 else length
    steps_between = [step for step in steps if not is_one(step)]
    return tensors.divisor([reach, *steps_between], 8, 4, 2)


def is_one(step: Any) -> bool:
    """Whether a stride is known to be 1: symbols are not compared."""
    return isinstance(step, int) and step == 1


def split(tensor: torch.Tensor, n_components: int) -> torch.Tensor:
    """Float32 [rows, cols] as [n_components, rows, cols], or [batch, rows, cols] as [batch * n_components, rows, cols]:
    bfloat16 values that add up to each element, the largest first; columns are contiguous and rows aligned.
    """
    *batch, n_rows, n_cols = tensor.shape
    n_batch = batch[0] if batch else 1
    like = torch.empty(0, dtype=tensors.component_dtype(), device=tensor.device)
    components = aligned_empty(like, n_batch * n_components, n_rows, n_cols)
    if tensor.numel() > 0:
        _launch(
            "split",
            split_kernel,
            tensor,
            components,
            _in_tiles,
            N_COMPONENTS=n_components,
        )
    return marked(
        components, tensor, functools.partial(split, n_components=n_components)
    )


def marked(copy: torch.Tensor, tensor: torch.Tensor, again: Copying) -> torch.Tensor:
    """The copy of a tensor, with a record for repeated calls of how to copy theirs, which may be seen another way."""
    if not launch.is_traced():
        size, stride = tensor.size(), tensor.stride()
        vars(copy)["copied_from"] = sources.Copied(
            tensor.data_ptr(), lambda other: again(other.as_strided(size, stride))
        )
    return copy


def _widest(tensor: torch.Tensor) -> torch.dtype:
    """The widest integer dtype whose size divides the bytes of a row."""
    *outer, last = tensor.stride()
    places = [tensor.storage_offset(), tensor.shape[-1], *outer]
    places.append(tensor.data_ptr() // tensor.itemsize)

    def fits(count: int) -> bool:
        vectors = count > 1 and last == 1 and all(n % count == 0 for n in places)
        return count == 1 or vectors

    return next(one for one in INTS if fits(one.itemsize // tensor.itemsize))


def _launch(
    name: str,
    kernel: Any,
    tensor: torch.Tensor,
    copy: torch.Tensor,
    tiling: Callable[[torch.Tensor, torch.Tensor], Tiling],
    **constants: int,
) -> None:
    """Launch a kernel on a tensor [rows, cols] or [batch, rows, cols], `tiling` among programs."""
    key, replay = launch.lookup(name, (tensor,), *constants.values())
    if replay is not None:
        replay((tensor, copy))
        return
    programs, config, sizes = tiling(tensor, copy)
    both = tensor, copy
    options = constants | {"INDEX": tensors.index_dtype(*both)}
    launch.run(key, kernel, (programs,), config, both, sizes, **options)


def _in_blocks(tensor: torch.Tensor, copy: torch.Tensor) -> Tiling:
    """By consecutive elements."""
    config = triton.Config({"BLOCK": 2048}, num_warps=8)
    sizes = tensor.numel(), tensor.shape[-1], copy.stride(-2)
    return tensors.cdiv(tensor.numel(), 2048), config, sizes


def _in_tiles(tensor: torch.Tensor, copy: torch.Tensor) -> Tiling:
    *batch, n_rows, n_cols = tensor.shape
    n_batch = batch[0] if batch else 1
    if tensor.stride(-1) == 1:  # As long rows as there are.
        cols = min(1024, tensors.power_of_two(n_cols))
        rows = 2048 // cols
    else:  # Squares, which are read along one axis and written along the other.
        rows = cols = 64
    config = triton.Config({"BLOCK_M": rows, "BLOCK_N": cols}, num_warps=4)
    strides = (*(0,) * (3 - tensor.ndim), *tensor.stride())
    programs = n_batch * tensors.cdiv(n_rows, rows) * tensors.cdiv(n_cols, cols)
    return programs, config, (n_rows, n_cols, copy.stride(-2), *strides)
