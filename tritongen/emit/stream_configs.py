"""The launch configurations of streaming kernels, like attention."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..spec.types import Schedule
from .candidates import Config, listed


@dataclass(frozen=True, slots=True)
class Streaming:
    """How many matmuls read a block, for scores and for sums; and whether TMA may read it, or it is float8.

    `light` says that a tile computes little for each score, and has many blocks: it has no largest, no function such as
    a soft cap's tanh, and no window or documents that leave only blocks near the diagonal.
    """

    scores: int
    sums: int
    described: bool = False
    float8: bool = False
    light: bool = False


def _streamed(width: int, block_m: int, block_n: int, warps: int, stages: int) -> Config:
    """The candidate for matrices up to a width: rows of a tile, and length of a block."""
    return Config(warps, block_m, block_n, stages=stages, width=width)


# Measured: see docs/design/attention.md. For the forward, and for gradients along the rows and the streamed axis.
FORWARD = (
    _streamed(64, 64, 64, 4, 3),
    _streamed(128, 128, 64, 8, 3),
    _streamed(256, 64, 32, 8, 2),
    _streamed(1024, 16, 16, 8, 1),
)
BY_ROWS = FORWARD
BY_STREAMED = (
    _streamed(64, 64, 64, 4, 3),
    _streamed(128, 128, 64, 8, 2),
    _streamed(256, 32, 32, 4, 2),
    _streamed(1024, 16, 16, 8, 1),
)
# For heads of up to 64 with two scores, and one or two sums: s and dp, and dq or dk and dv.
NARROW_BY_ROWS = _streamed(64, 128, 64, 8, 3)
NARROW_BY_STREAMED = _streamed(64, 64, 128, 4, 2)
# For tiles of scores, all of whose matrices are read in each iteration.
BY_TILES = (
    _streamed(64, 64, 64, 4, 2),
    _streamed(128, 64, 64, 4, 2),
    _streamed(256, 32, 32, 4, 2),
    _streamed(1024, 16, 16, 4, 1),
)
# For TMA, which needs no registers for addresses.
BY_STREAMED_DESCRIBED = (
    _streamed(128, 64, 64, 4, 2),
    *BY_STREAMED[2:],
)
# For float32 and float64, which tensor cores do not multiply as they are.
WIDE = (
    _streamed(64, 64, 32, 4, 2),
    _streamed(128, 32, 32, 4, 2),
    _streamed(256, 16, 16, 4, 1),
)
WIDE_SEVERAL = (
    _streamed(64, 32, 32, 4, 2),
    _streamed(256, 16, 16, 4, 1),
)
# Tiles that a search times, for any width: for half precision, and for wider dtypes.
TIMED = (
    _streamed(0, 128, 128, 8, 2),
    _streamed(0, 128, 64, 8, 3),
    _streamed(0, 128, 64, 8, 2),
    _streamed(0, 128, 64, 4, 2),
    _streamed(0, 128, 32, 8, 3),
    _streamed(0, 64, 128, 4, 2),
    _streamed(0, 64, 64, 4, 3),
    _streamed(0, 64, 64, 4, 2),
    _streamed(0, 64, 32, 4, 3),
    _streamed(0, 32, 64, 4, 2),
    _streamed(0, 32, 32, 4, 2),
    _streamed(0, 16, 128, 4, 2),
    _streamed(0, 16, 64, 4, 3),
    _streamed(0, 16, 32, 4, 4),
)
TIMED_WIDE = (
    _streamed(0, 64, 32, 4, 2),
    _streamed(0, 64, 16, 4, 2),
    _streamed(0, 32, 64, 4, 2),
    _streamed(0, 32, 32, 4, 2),
    _streamed(0, 32, 16, 4, 2),
    _streamed(0, 16, 32, 4, 2),
    _streamed(0, 16, 16, 4, 2),
)


# What `[schedule]` may list of them.
_FIELDS = ("block_m", "block_n", "warps", "stages")


def tiles_of(streaming: Streaming) -> tuple[tuple[Config, ...], tuple[Config, ...], tuple[Config, ...]]:
    """The tiles for half precision, for wider dtypes, and for half precision that TMA reads, if those differ."""
    has_long = streaming.scores == 2 and streaming.sums <= 2 and streaming.light
    if not streaming.sums:
        return BY_TILES, WIDE_SEVERAL, ()
    if streaming.sums > 1:
        described = (*((NARROW_BY_STREAMED,) if has_long else ()), *BY_STREAMED_DESCRIBED)
        return BY_STREAMED, WIDE_SEVERAL, described if streaming.described else ()
    if streaming.scores > 1:
        return (NARROW_BY_ROWS, *BY_ROWS[1:]) if has_long else BY_ROWS, WIDE_SEVERAL, ()
    return FORWARD, WIDE, ()


def explicit_streams(tiles: tuple[Config, ...], schedule: Schedule) -> tuple[Config, ...]:
    """The tiles as `[schedule]` says, where it does: the first of each list."""
    (said,) = listed(schedule, _FIELDS, _FIELDS)
    return tuple(replace(tile, **said) for tile in tiles[-1 if said else 0 :])


def timed_streams(schedule: Schedule) -> tuple[tuple[Config, ...], ...]:
    """The tiles that a search times, for half precision and wider dtypes: with each value that `[schedule]` lists."""
    said = listed(schedule, _FIELDS)
    return tuple(
        tuple(dict.fromkeys(replace(tile, **one) for one in said for tile in each)) for each in (TIMED, TIMED_WIDE)
    )
