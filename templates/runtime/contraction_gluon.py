"""Launches of Gluon kernels that multiply matrices of float8."""

from typing import Any

import torch
import triton.experimental.gluon.language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from . import launch, matmul_heuristics, tensors, tma

ROWS, COLS = 64, 128  # that a warp group multiplies at a time
# Registers of a thread as the launch begins, for two warp groups and for three; then they have 240 and 160.
REGISTERS = {2: 168, 3: 128}


def stage(
    kernel: Any,
    left: torch.Tensor,
    right: torch.Tensor,
    result: torch.Tensor,
    args: tuple[Any, ...],
    tile: matmul_heuristics.GluonTile,
) -> launch.Stage:
    """The launch of a kernel on two matrices, a contiguous result, and other arguments."""
    n_rows, n_cols = len(left), len(right)
    alignment = matmul_heuristics.row_alignment(n_rows)
    descs = (
        described(tma.readable(left), ROWS),
        described(tma.readable(right, alignment), COLS),
        described(result.view(n_rows, n_cols), ROWS),
    )
    options = {"BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n, "GROUP": tile.group}
    options |= {"STAGES": tile.stages, "num_warps": 4}
    options |= {"UNROLL": tile.unroll} if "UNROLL" in kernel.arg_names else {}
    options["maxnreg"] = REGISTERS[tile.block_m // ROWS]
    tiles = tensors.cdiv(n_rows, tile.block_m) * tensors.cdiv(n_cols, tile.block_n)
    programs = matmul_heuristics.persistent_programs(left.device)
    return launch.Stage(kernel, (min(tiles, programs),), (*descs, *args), options)


def described(matrix: torch.Tensor, rows: int) -> TensorDescriptor:
    """A descriptor of a matrix, in blocks of `rows` rows."""
    block = [rows, COLS]
    like = gl.uint8 if matrix.itemsize == 1 else gl.float16  # It counts bytes alone.
    layout = gl.NVMMASharedLayout.get_default_for(block, like)
    shape, strides = [*matrix.shape], [*matrix.stride()]
    return TensorDescriptor(matrix, shape, strides, block, layout)
