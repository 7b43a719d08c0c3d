"""The launch configurations of kernels that hold a tile of rows and stream an axis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Streamed:
    """Up to a width of the widest matrix: rows of a tile, length of a block, warps and pipeline stages."""

    width: int
    block_m: int
    block_n: int
    warps: int
    stages: int


# Measured: see docs/design/attention.md.
STREAMED = (
    Streamed(64, 64, 64, 4, 2),
    Streamed(128, 128, 64, 8, 3),
    Streamed(256, 64, 32, 8, 2),
    Streamed(1024, 16, 16, 8, 1),
)
STREAMED_WIDE = (
    Streamed(64, 64, 32, 4, 2),
    Streamed(128, 32, 32, 4, 2),
    Streamed(256, 16, 16, 4, 1),
)
