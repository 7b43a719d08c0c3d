"""The launch configurations of streaming kernels, like attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from ..spec.types import Schedule


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


@dataclass(frozen=True, slots=True)
class Streamed:
    """For matrices up to a width: rows of a tile, length of a block, warps and pipeline stages."""

    width: int
    block_m: int
    block_n: int
    warps: int
    stages: int


# Measured: see docs/design/attention.md. For the forward, and for gradients along the rows and the streamed axis.
FORWARD = (
    Streamed(64, 64, 64, 4, 3),
    Streamed(128, 128, 64, 8, 3),
    Streamed(256, 64, 32, 8, 2),
    Streamed(1024, 16, 16, 8, 1),
)
BY_ROWS = FORWARD
BY_STREAMED = (
    Streamed(64, 64, 64, 4, 3),
    Streamed(128, 128, 64, 8, 2),
    Streamed(256, 32, 32, 4, 2),
    Streamed(1024, 16, 16, 8, 1),
)
# For heads of up to 64 with two scores, and one or two sums: s and dp, and dq or dk and dv.
NARROW_BY_ROWS = Streamed(64, 128, 64, 8, 3)
NARROW_BY_STREAMED = Streamed(64, 64, 128, 4, 2)
# For tiles of scores, all of whose matrices are read in each iteration.
BY_TILES = (
    Streamed(64, 64, 64, 4, 2),
    Streamed(128, 64, 64, 4, 2),
    Streamed(256, 32, 32, 4, 2),
    Streamed(1024, 16, 16, 4, 1),
)
# For TMA, which needs no registers for addresses.
BY_STREAMED_DESCRIBED = (
    Streamed(128, 64, 64, 4, 2),
    *BY_STREAMED[2:],
)
# For float32 and float64, which tensor cores do not multiply as they are.
WIDE = (
    Streamed(64, 64, 32, 4, 2),
    Streamed(128, 32, 32, 4, 2),
    Streamed(256, 16, 16, 4, 1),
)
WIDE_SEVERAL = (
    Streamed(64, 32, 32, 4, 2),
    Streamed(256, 16, 16, 4, 1),
)


def _of_any_width(*tiles: tuple[int, int, int, int]) -> tuple[Streamed, ...]:
    return tuple(Streamed(0, *tile) for tile in tiles)


# Tiles that a search times, for any width: for half precision, and for wider dtypes.
TIMED = _of_any_width(
    (128, 128, 8, 2),
    (128, 64, 8, 3),
    (128, 64, 8, 2),
    (128, 64, 4, 2),
    (128, 32, 8, 3),
    (64, 128, 4, 2),
    (64, 64, 4, 3),
    (64, 64, 4, 2),
    (64, 32, 4, 3),
    (32, 64, 4, 2),
    (32, 32, 4, 2),
    (16, 128, 4, 2),
    (16, 64, 4, 3),
    (16, 32, 4, 4),
)
TIMED_WIDE = _of_any_width(
    (64, 32, 4, 2),
    (64, 16, 4, 2),
    (32, 64, 4, 2),
    (32, 32, 4, 2),
    (32, 16, 4, 2),
    (16, 32, 4, 2),
    (16, 16, 4, 2),
)


def tiles_of(streaming: Streaming) -> tuple[tuple[Streamed, ...], tuple[Streamed, ...], tuple[Streamed, ...]]:
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


def explicit_streams(tiles: tuple[Streamed, ...], schedule: Schedule) -> tuple[Streamed, ...]:
    """The tiles as `[schedule]` says, where it does: the first of each list."""
    said = {name: values[0] for name, values in _lists(schedule).items()}
    return tuple(replace(tile, **said) for tile in tiles[-1 if said else 0 :])


def timed_streams(schedule: Schedule) -> tuple[tuple[Streamed, ...], tuple[Streamed, ...]]:
    """The tiles that a search times, for half precision and wider dtypes: with each value that `[schedule]` lists."""
    lists = _lists(schedule)
    said = [dict(zip(lists, values, strict=True)) for values in product(*lists.values())]
    half, wide = (
        tuple(dict.fromkeys(replace(tile, **one) for one in said for tile in tiles)) for tiles in (TIMED, TIMED_WIDE)
    )
    return half, wide


def _lists(schedule: Schedule) -> dict[str, tuple[int, ...]]:
    given = {"block_m": schedule.block_m, "block_n": schedule.block_n}
    given |= {"warps": schedule.num_warps, "stages": schedule.num_stages}
    return {name: values for name, values in given.items() if values}
